package house

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// group is a layer: a tree of packages, the trees that it imports, and the reason.
type group struct {
	tree    string
	imports []string
	why     string
}

// groups are the layers of layers.txt, from the top down. The engine is one group in two trees: a public one for
// embedders, and a private one.
var groups = readGroups()

func readGroups() (all []group) {
	data, err := os.ReadFile("layers.txt")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(data)) {
		text := strings.TrimSpace(line)
		switch {
		case text == "" || strings.HasPrefix(line, "#"):
		case !strings.HasPrefix(line, "\t"):
			all = append(all, group{tree: text})
		case strings.HasPrefix(text, "#"):
			all[len(all)-1].why = strings.TrimSpace(text[1:])
		default:
			all[len(all)-1].imports = strings.Fields(text)
		}
	}
	return all
}

// inEngine reports whether a package is part of the engine.
func inEngine(pkg string) bool { return in(pkg, "admission") || in(pkg, "internal/engine") }

// groupOf returns the row of a package, -1 for none.
func groupOf(pkg string) int {
	best := -1
	if inEngine(pkg) {
		pkg = "admission"
	}
	for i, g := range groups {
		if in(pkg, g.tree) && (best < 0 || len(g.tree) > len(groups[best].tree)) {
			best = i
		}
	}
	return best
}

// The layout is the architecture: groups import lower groups, and inside a group packages import packages below
// them in packages.txt.
func TestImportsPointDown(t *testing.T) {
	t.Chdir(root)
	found := packages(t)
	text, err := os.ReadFile("internal/house/packages.txt")
	if err != nil {
		t.Fatal(err)
	}
	place := map[string]int{}
	for i, m := range regexp.MustCompile(`(?m)^ {0,2}([a-z]+(?:/[a-z0-9-]+)*) +\S`).FindAllStringSubmatch(string(text), -1) {
		place[m[1]] = i + 1
	}
	used := make([]map[string]bool, len(groups))
	for _, pkg := range sorted(found) {
		own := groupOf(pkg)
		if own < 0 {
			t.Errorf("layers.txt: package %s is in no group; move it into one, or add a layer with the reason", pkg)
			continue
		}
		if used[own] == nil {
			used[own] = map[string]bool{}
		}
		for _, file := range found[pkg] {
			for _, imported := range file.imports {
				target, ok := strings.CutPrefix(imported, modulePath+"/")
				if !ok || file.test() {
					continue
				}
				other := groupOf(target)
				switch {
				case other < 0:
					t.Errorf("%s imports %s, which is in no group", file.path, target)
				case other == own:
					if from, to := place[pkg], place[target]; from > to && to > 0 {
						t.Errorf("%s imports %s, which stands above it in packages.txt", file.path, target)
					}
				case !slices.Contains(groups[own].imports, groups[other].tree):
					t.Errorf("%s imports %s: layers.txt does not allow %s to import %s; add it to the layer with the reason, or do without", file.path, target, groups[own].tree, groups[other].tree)
				default:
					used[own][groups[other].tree] = true
				}
			}
		}
	}
	for i, g := range groups {
		if g.why == "" {
			t.Errorf("layers.txt: %s has no reason", g.tree)
		}
		if used[i] == nil {
			t.Errorf("layers.txt: there is no package in %s; remove the layer", g.tree)
		}
		for _, allowed := range g.imports {
			if !used[i][allowed] {
				t.Errorf("layers.txt: %s no longer imports %s; remove it there", g.tree, allowed)
			}
			if j := slices.IndexFunc(groups, func(o group) bool { return o.tree == allowed }); j <= i {
				t.Errorf("layers.txt: %s stands above %s or is not listed, so %[2]s cannot import it", allowed, g.tree)
			}
		}
	}
}

// The engine's tests also do not depend on the server, and an example uses only public packages. The webhooks
// for these tests are in test/hooktest, their speeds in test/speed. Reading files, recognising credentials, declaring
// metrics and the names of upstream's types are shared by all.
func TestTestsOfTheEngineAndExamplesStandAlone(t *testing.T) {
	t.Chdir(root)
	found := packages(t)
	for _, pkg := range sorted(found) {
		for _, file := range found[pkg] {
			for _, imported := range file.imports {
				target, ok := strings.CutPrefix(imported, modulePath+"/")
				switch {
				case !ok:
				case inEngine(pkg) && !inEngine(target) && !slices.Contains([]string{"internal/kit/files", "internal/kit/credentials", "internal/kit/metric", "internal/kit/upstream"}, target) && !(file.test() && (target == "test/hooktest" || target == "test/speed")):
					t.Errorf("%s imports %s: the engine is used without the server", file.path, target)
				case in(pkg, "examples") && !slices.Contains([]string{"admission", "admission/announce", "admission/snapshot", "internal/server", "initialization", "initializer", "gatehousetest"}, target) && !in(target, example(pkg)):
					t.Errorf("%s imports %s: examples use the public packages admission, admission/announce, admission/snapshot, server, initialization, initializer and gatehousetest only", file.path, target)
				}
			}
		}
	}
}

// readers are the packages that make the engine observable, and the files outside of admission/trace that
// import them, with the reason.
var readers = struct {
	packages []string
	except   map[string]string
}{
	[]string{
		"k8s.io/klog/v2", "k8s.io/component-base/metrics", "k8s.io/component-base/metrics/legacyregistry",
		"k8s.io/apiserver/pkg/admission/metrics", "k8s.io/apiserver/pkg/audit", "k8s.io/apiserver/pkg/warning", modulePath + "/internal/kit/metric",
	},
	map[string]string{
		"admission/chain.go":                   "the library measures passes and compiled-in plugins, which have no webhook",
		"admission/freshness.go":               "how old registrations are is a fact about no request",
		"admission/announce/announcer.go":      "an announcement belongs to no request",
		"admission/call/exchange.go":           "the ID of a request goes to its webhooks; nothing is annotated",
		"admission/traced.go":                  "the trace has the ID of its request",
		"internal/engine/question/question.go": "the inner request gets an audit context of its own, so that nothing of it is annotated",
	},
}

// Only the trace feeds the metrics, the log and the annotations of the engine.
func TestOnlyTheTraceCountsAndLogs(t *testing.T) {
	t.Chdir(root)
	found := packages(t)
	used := map[string]bool{}
	for _, pkg := range sorted(found) {
		if !inEngine(pkg) || pkg == "admission/trace" {
			continue
		}
		for _, file := range found[pkg] {
			for _, imported := range file.imports {
				if file.test() || !slices.Contains(readers.packages, imported) {
					continue
				}
				if readers.except[file.path] == "" {
					t.Errorf("%s imports %s: record it in admission/trace, and read it from there", file.path, imported)
				}
				used[file.path] = true
			}
		}
	}
	for file := range readers.except {
		if !used[file] {
			t.Errorf("readers: %s no longer needs an exception; remove it", file)
		}
	}
}

// room returns the part of the tree that a package belongs to: a folder of internal, or another folder of the root.
func room(pkg string) string {
	if inEngine(pkg) {
		return "admission"
	}
	parts := strings.Split(pkg, "/")
	if parts[0] == "internal" && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

// A newcomer sees few rooms, and no room imports a room that imports it.
func TestTheTreeHasFewRooms(t *testing.T) {
	t.Chdir(root)
	found := packages(t)
	arrows := map[string]map[string]bool{}
	for pkg, files := range found {
		for _, file := range files {
			if file.test() || path.Base(file.path) == "doc.go" {
				continue
			}
			from := room(pkg)
			if arrows[from] == nil {
				arrows[from] = map[string]bool{}
			}
			for _, imported := range file.imports {
				if target, ok := strings.CutPrefix(imported, modulePath+"/"); ok && room(target) != from {
					arrows[from][room(target)] = true
				}
			}
		}
	}
	count := 0
	for _, from := range sorted(arrows) {
		count += len(arrows[from])
		t.Logf("%s imports %s", from, strings.Join(sorted(arrows[from]), ", "))
		for to := range arrows[from] {
			if arrows[to][from] {
				t.Errorf("%s and %s import each other", from, to)
			}
		}
	}
	t.Logf("%d rooms, %d arrows", len(arrows), count)
	if len(arrows) > maxRooms || count > maxArrows {
		t.Errorf("%d rooms and %d arrows, want at most %d and %d", len(arrows), count, maxRooms, maxArrows)
	}
}

const maxRooms, maxArrows = 13, 30

// example is the folder of the example that a package belongs to.
func example(pkg string) string {
	parts := strings.SplitN(pkg, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// in reports whether a package is in a tree of packages.
func in(pkg, tree string) bool { return pkg == tree || strings.HasPrefix(pkg, tree+"/") }

// forbidden are trees of packages that may be imported directly only from the trees in except, and the reason.
var forbidden = []struct {
	pkg    string
	except []string
	why    string
}{
	{"k8s.io/apiserver/pkg/admission/plugin/webhook", nil, "that is the system this project is; the engine stands on its own"},
	{"k8s.io/apiserver/pkg/admission/plugin/policy", nil, "it is built on the webhook packages; the engine stands on its own"},
	{"k8s.io/apiserver/pkg/admission/configuration", nil, "how registrations are read and kept fresh is admission/snapshot"},
	{"k8s.io/apiserver/pkg/util/webhook", nil, "how a webhook is reached is admission/call, with other rules for redirects and retries"},
	{"k8s.io/kubernetes", []string{"internal/server", "internal/commands/predict", "internal/commands/dev/container", "plugins", "test/catalogtest"}, "who embeds the engine must not get all of Kubernetes"},
	{"go.etcd.io/etcd", []string{"internal/server", "initialization", "examples/aggregated", "test", "internal/commands/cli"}, "the engine and the tools read through the API; who stores objects needs an etcd"},
}

func TestForbiddenPackagesAreNotImported(t *testing.T) {
	t.Chdir(root)
	found := packages(t)
	for _, rule := range forbidden {
		used := map[string]bool{}
		for _, pkg := range sorted(found) {
			for _, file := range found[pkg] {
				for _, imported := range file.imports {
					if !in(imported, rule.pkg) {
						continue
					}
					i := slices.IndexFunc(rule.except, func(tree string) bool { return in(pkg, tree) })
					if i < 0 {
						t.Errorf("%s imports %s: %s", file.path, imported, rule.why)
						continue
					}
					used[rule.except[i]] = true
				}
			}
		}
		for _, tree := range rule.except {
			if !used[tree] {
				t.Errorf("forbidden: nothing in %s imports %s; remove the exception", tree, rule.pkg)
			}
		}
	}
}

// A forbidden package must exist: a rule about a moved package would have no effect.
func TestForbiddenPackagesExist(t *testing.T) {
	t.Chdir(root)
	args := []string{"list", "-find"}
	for _, rule := range forbidden {
		args = append(args, rule.pkg+"/...")
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range forbidden {
		if !slices.ContainsFunc(strings.Fields(string(out)), func(pkg string) bool { return in(pkg, rule.pkg) }) {
			t.Errorf("forbidden: no package in %s", rule.pkg)
		}
	}
}

// The engine does not depend on a forbidden package indirectly either.
func TestTheEngineStaysSmall(t *testing.T) {
	t.Chdir(root)
	g := imports(t)
	deps := g.closure(g.below(modulePath + "/admission")...)
	if !deps[modulePath+"/admission"] {
		t.Fatalf("the engine is not among its own dependencies: %d packages", len(deps))
	}
	for dep := range deps {
		for _, rule := range forbidden {
			if in(dep, rule.pkg) {
				t.Errorf("the engine depends on %s: %s", dep, rule.why)
			}
		}
	}
}

// withoutServer are the packages that run next to a cluster or read its data, and link no server.
var withoutServer = []string{"cmd/gatehouse-agent", "internal/commands/agent", "internal/commands/auditlog", "internal/readers"}

// serverParts are trees of packages that withoutServer may not reach.
var serverParts = []string{
	modulePath + "/internal/server/storage", modulePath + "/internal/server/api/stores", "k8s.io/kubernetes/pkg/registry", "go.etcd.io/etcd/server",
}

// The agent, its program, the audit log and the readers reach neither the server nor its storage nor its stores.
func TestTheAgentNeedsNoServer(t *testing.T) {
	t.Chdir(root)
	g := imports(t)
	for _, tree := range withoutServer {
		packages := g.below(modulePath + "/" + tree)
		if len(packages) == 0 {
			t.Errorf("there is no package in %s", tree)
		}
		for dep := range g.closure(packages...) {
			if dep == modulePath+"/internal/server" || slices.ContainsFunc(serverParts, func(part string) bool { return in(dep, part) }) {
				t.Errorf("%s depends on %s", tree, dep)
			}
		}
	}
	for _, part := range serverParts {
		if len(g.below(part)) == 0 {
			t.Errorf("there is no package in %s", part)
		}
	}
}

// A test that uses the server does not link it: the package needs only client-go and its dependencies.
func TestTestsOfOperatorsDoNotLinkTheServer(t *testing.T) {
	t.Chdir(root)
	deps := func(packages ...string) []string {
		t.Helper()
		cmd := exec.Command("go", append([]string{"list", "-deps"}, packages...)...)
		cmd.Dir, cmd.Env = "gatehousetest", append(os.Environ(), "GOWORK=off")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	allowed := deps("k8s.io/client-go/kubernetes", "k8s.io/client-go/dynamic", "k8s.io/client-go/restmapper", "k8s.io/client-go/discovery/cached/memory", "k8s.io/client-go/tools/clientcmd")
	for _, dep := range deps(".") {
		if strings.Contains(dep, ".") && dep != modulePath+"/gatehousetest" && !slices.Contains(allowed, dep) {
			t.Errorf("gatehousetest depends on %s", dep)
		}
	}
}

// The module gatehousetest requires only an old client-go, and neither it nor the server's module requires the
// other. docs/dev/decisions/011-gatehousetest-is-a-module.md has the reason.
func TestGatehousetestRaisesNoVersion(t *testing.T) {
	t.Chdir(root)
	direct := func(file string) []string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, m := range regexp.MustCompile(`(?m)^(?:require |\t)(\S+ v\S+)$`).FindAllStringSubmatch(string(text), -1) {
			found = append(found, m[1])
		}
		return found
	}
	if got, want := direct("gatehousetest/go.mod"), []string{"k8s.io/api v0.35.0", "k8s.io/apimachinery v0.35.0", "k8s.io/client-go v0.35.0"}; !slices.Equal(got, want) {
		t.Errorf("gatehousetest requires %v, want %v", got, want)
	}
	for _, required := range direct("go.mod") {
		if strings.HasPrefix(required, modulePath) {
			t.Errorf("the server's module requires %s", required)
		}
	}
}

// With the tag of our builds the program does not load Go plugins. A program that may load some keeps every
// function that they could call: it is a third larger, and its link time is a multiple.
func TestTheProgramLinksWithoutPlugins(t *testing.T) {
	t.Chdir(root)
	if deps := imports(t).closure(modulePath + "/cmd/gatehouse"); !deps[modulePath+"/internal/server"] || deps["plugin"] {
		t.Error("gatehouse depends on plugin: go list -deps -f '{{.ImportPath}}: {{.Imports}}' ./cmd/gatehouse says why")
	}
}

// walkOver matches a loop over the results of policies and webhooks in a trace, or over the steps of a plan or
// trace.
var walkOver = regexp.MustCompile(`range [^{]*(\.(Calls|Judgements|Discarded)|\b(p|plan|Plan|r|record|t|trace)\.Steps(\(\))?) `)

// sentence matches a text of the program for people about the outcome of a request.
var sentence = regexp.MustCompile("[\"`][^\"`\\n]*(the request goes on|would change the object|changed the object|ignored: failurePolicy|is false: |not delivered|[Tt]he request would be rejected|Rejected (by|before))")

// Traces and plans have methods for rejections, changes and violations that were not enforced. Only
// admission/trace, admission/plan and the engine, which writes traces, loop over the records themselves. Texts
// for people about them are in internal/readers/view, with the same words everywhere; the engine's own texts are for
// errors and logs. gatehousetest has its own form of traces.
func TestNobodyElseWalksOverTraces(t *testing.T) {
	t.Chdir(root)
	for _, c := range []struct {
		pattern *regexp.Regexp
		own     []string
		instead string
	}{
		{walkOver, []string{"admission/trace/", "admission/plan/", "internal/engine/dispatch/", "gatehousetest/"}, "ask the record or the plan (admission/trace/acts.go), or add the question there"},
		{sentence, []string{"admission/", "internal/readers/view/", "gatehousetest/", "bench/", "test/", "examples/"}, "say it in internal/readers/view, and draw that"},
	} {
		n := 0
		walk(t, func(file string) {
			if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found := c.pattern.FindAllString(string(data), -1)
			if n += len(found); slices.ContainsFunc(c.own, func(dir string) bool { return strings.HasPrefix(file, dir) }) {
				return
			}
			for _, text := range found {
				t.Errorf("%s: %q: %s", file, text, c.instead)
			}
		})
		if n == 0 {
			t.Errorf("the packages themselves have nothing of %s: the pattern is wrong", c.pattern)
		}
	}
}
