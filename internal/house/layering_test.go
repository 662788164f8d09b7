package house

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// group is a row of groups.
type group struct {
	tree    string
	imports []string
	why     string
}

// groups are the layers of the architecture from the top down: trees of packages, the groups that each imports,
// and the reason. A package belongs to the row with the longest prefix of its path. A group imports only lower
// groups.
var groups = []group{
	{"cmd", []string{"internal/cli"}, "main is the command line and nothing else"},
	{"docs", nil, "tests compare the pages with the code"},
	{"deploy", nil, "queries, and tests that ask a server for what they need"},
	{"test", []string{"internal/cli", "internal/server", "internal/server/reporting", "internal/server/api", "internal/server/storage", "initialization", "admission"},
		"tests see a server as clients do; the harness runs one as a process or inside the test; parts that tests of packages need stand apart"},
	{"examples", []string{"initializer", "initialization", "admission"}, "what the authors of webhooks, initializers and API servers write, with public packages only"},
	{"internal/cli", []string{"internal/cli/serving", "internal/cli/before", "internal/cli/after", "internal/cli/changing", "internal/cli/upkeep", "internal/cli/command", "internal"},
		"the root of the commands, and the names that the program goes by; the doors do not import each other"},
	{"internal/cli/serving", []string{"internal/cli/command", "internal/server", "internal/server/api", "plugins", "admission", "internal"},
		"serve and kube-apiserver run a server, webhook serves the plugins without one"},
	{"internal/cli/before", []string{"internal/cli/command", "internal/dev", "internal/predict", "internal/manifests", "internal/server", "internal/server/reporting", "internal/server/judging", "internal/lint", "internal/view", "plugins", "admission", "internal"},
		"predict and find what is dangerous, in files and clusters; lint finds webhooks and versions as a server does"},
	{"internal/cli/after", []string{"internal/cli/command", "internal/agent", "internal/auditlog", "internal/manifests", "internal/predict", "internal/server/reporting", "internal/console", "internal/view", "internal/blame", "admission", "initializer", "internal"},
		"show what a server says it did, or its audit log, whose registrations may be in a snapshot"},
	{"internal/cli/changing", []string{"internal/cli/command", "internal/predict", "internal/manifests", "internal/rollout", "internal/view", "admission", "internal"},
		"judge what was recorded by a change, and make the change step by step"},
	{"internal/cli/upkeep", []string{"internal/cli/command", "internal/server", "internal/server/reporting", "internal/server/storage", "internal/server/handling", "internal"},
		"work on the data of a server, wait for the servers that use them, and look inside one"},
	{"internal/cli/command", []string{"internal/predict", "internal/server/reporting", "internal/server/storage", "internal/view", "internal"},
		"what commands share: flags, the cluster that is meant, whose snapshot says how it judges, traces, reports"},
	{"gatehousetest", nil, "what a test of an operator imports: client-go, and the program as a process"},
	{"initializer", nil, "works through the API, like any controller"},

	{"internal/agent", []string{"internal/auditlog", "internal/predict", "internal/lint", "internal/server/reporting", "internal/server/api", "internal/server/controllers", "initialization", "admission", "internal"},
		"traces of audit events, served as a server serves its own; a line of a log has the bound of a recording; what lint and an audit find, by whoever holds a Lease"},
	{"internal/auditlog", []string{"internal/predict", "admission"}, "events become traces of the engine; a plan derives what they lack"},
	{"internal/dev", []string{"internal/predict", "internal/manifests", "internal/server", "admission", "internal"},
		"a stage that others reach, with the objects of a project; a question to a program is a review of the engine"},
	{"internal/predict", []string{"internal/manifests", "internal/server", "internal/server/api", "internal/server/reporting", "internal/lint", "internal/view", "plugins", "admission", "internal"},
		"plans, findings and verdicts without a cluster: by the engine, by the kinds that the server has, by what its explanations say, and by a server of its own"},
	{"internal/rollout", []string{"internal/server/reporting", "internal/lint", "admission", "internal"}, "what a server says of soft registrations, and what one becomes"},
	{"internal/server", []string{"internal/server/reporting", "internal/server/judging", "internal/server/api", "internal/server/controllers", "internal/server/storage", "internal/server/handling", "internal/console", "initialization", "admission", "internal"},
		"the one place that knows all parts puts them together"},
	{"internal/server/reporting", []string{"internal/server/judging", "internal/server/api", "internal/lint", "admission", "internal"}, "what people see of admission: traces, states, problems, explanations, events, metrics"},
	{"internal/server/judging", []string{"internal/server/api", "internal/server/controllers", "internal/server/storage", "internal/server/handling", "plugins", "internal/manifests", "admission", "internal"}, "what requests are judged by: registrations, params, files, and what they cost"},
	{"internal/server/api", []string{"internal/server/controllers", "internal/server/storage", "internal/server/handling", "initialization", "admission", "internal"},
		"kinds become resources, and their series go with them; a late informer is one that a controller of APIServices can use"},
	{"internal/server/controllers", []string{"internal/server/storage", "internal/server/handling", "admission", "internal"}, "work through the API, one server's at a time"},
	{"internal/server/storage", []string{"internal/server/handling", "internal"}, "etcd; a request that waits for a watch cache gives its place back"},
	{"internal/server/handling", []string{"internal"}, "what a request goes through before and after it is judged"},
	{"plugins", []string{"admission", "internal"}, "the compiled-in plugins of kube-apiserver, among those of the engine"},
	{"initialization", []string{"admission"}, "uninitialized objects, for this server and for those that embed the engine"},
	{"internal/manifests", []string{"admission", "internal"}, "files with objects; plans name registrations in them"},
	{"internal/console", []string{"internal/blame", "internal/view", "internal/lint", "admission", "internal"}, "a page in the browser: draws what its viewers have read, and finds what is dangerous in it"},
	{"internal/blame", []string{"admission", "internal"}, "who set which fields, by traces, which do not show credentials"},
	{"internal/view", []string{"admission", "internal"}, "what people see of traces, plans and findings, for terminals, for files and for the console"},
	{"internal/lint", []string{"admission", "internal"}, "rules read a snapshot, and ask for the plan of requests that a cluster makes"},
	{"admission", []string{"internal"}, "the engine: it needs nothing of the server; how files are read, and what is a credential, is the same everywhere"},
	{"internal", nil, "small tools that know nothing of admission"},
}

// inEngine reports whether a package is part of the engine. The engine is one group in two trees: a public one
// for embedders, and a private one.
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
// them in the picture of ARCHITECTURE.md.
func TestImportsPointDown(t *testing.T) {
	t.Chdir(root)
	found := packages(t)
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	place := map[string]int{}
	for i, m := range regexp.MustCompile(`(?m)^ {4,6}([a-z]+(?:/[a-z0-9-]+)*) +\S`).FindAllStringSubmatch(string(text), -1) {
		place[m[1]] = i + 1
	}
	used := make([]map[string]bool, len(groups))
	for _, pkg := range sorted(found) {
		own := groupOf(pkg)
		if own < 0 {
			t.Errorf("groups: package %s is in no group; move it into one, or add a row with the reason", pkg)
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
						t.Errorf("%s imports %s, which stands above it in the picture of ARCHITECTURE.md", file.path, target)
					}
				case !slices.Contains(groups[own].imports, groups[other].tree):
					t.Errorf("%s imports %s: groups does not allow %s to import %s; add it to the row with the reason, or do without", file.path, target, groups[own].tree, groups[other].tree)
				default:
					used[own][groups[other].tree] = true
				}
			}
		}
	}
	for i, g := range groups {
		if g.why == "" {
			t.Errorf("groups: %s has no reason", g.tree)
		}
		if used[i] == nil {
			t.Errorf("groups: there is no package in %s; remove its row", g.tree)
		}
		for _, allowed := range g.imports {
			if !used[i][allowed] {
				t.Errorf("groups: %s no longer imports %s; remove it from the row", g.tree, allowed)
			}
			if j := slices.IndexFunc(groups, func(o group) bool { return o.tree == allowed }); j <= i {
				t.Errorf("groups: %s stands above %s or is not listed, so %[2]s cannot import it", allowed, g.tree)
			}
		}
	}
}

// The engine's tests also do not depend on the server, and an example uses only public packages. The webhooks
// for these tests are in test/hooktest. Reading files and recognising credentials are shared by all.
func TestTestsOfTheEngineAndExamplesStandAlone(t *testing.T) {
	t.Chdir(root)
	found := packages(t)
	for _, pkg := range sorted(found) {
		for _, file := range found[pkg] {
			for _, imported := range file.imports {
				target, ok := strings.CutPrefix(imported, modulePath+"/")
				switch {
				case !ok:
				case inEngine(pkg) && !inEngine(target) && !slices.Contains([]string{"internal/files", "internal/credentials"}, target) && !(file.test() && target == "test/hooktest"):
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
		"k8s.io/apiserver/pkg/admission/metrics", "k8s.io/apiserver/pkg/audit", "k8s.io/apiserver/pkg/warning",
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
	{"k8s.io/kubernetes", []string{"internal/server", "internal/predict", "plugins", "test/catalogtest"}, "who embeds the engine must not get all of Kubernetes"},
	{"go.etcd.io/etcd", []string{"internal/server", "initialization", "examples/aggregated", "test", "internal/cli"}, "the engine and the tools read through the API; who stores objects needs an etcd"},
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
	for _, rule := range forbidden {
		out, err := exec.Command("go", "list", "-find", rule.pkg+"/...").Output()
		if err != nil || !strings.HasPrefix(string(out), rule.pkg) {
			t.Errorf("forbidden: no package in %s: %v\n%s", rule.pkg, err, out)
		}
	}
}

// The engine does not depend on a forbidden package indirectly either.
func TestTheEngineStaysSmall(t *testing.T) {
	t.Chdir(root)
	cmd := exec.Command("go", "list", "-deps", "./admission/...")
	var diagnostics strings.Builder
	cmd.Stderr = &diagnostics
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, diagnostics.String())
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, modulePath+"/admission") {
		t.Fatalf("the engine is not among its own dependencies: %d packages", len(deps))
	}
	for _, dep := range deps {
		for _, rule := range forbidden {
			if in(dep, rule.pkg) {
				t.Errorf("the engine depends on %s: %s", dep, rule.why)
			}
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
	out, err := exec.Command("go", "list", "-tags=kustomize_disable_go_plugin_support", "-deps", "./cmd/gatehouse").Output()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(strings.Fields(string(out)), "plugin") {
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
// for people about them are in internal/view, with the same words everywhere; the engine's own texts are for
// errors and logs. gatehousetest has its own form of traces.
func TestNobodyElseWalksOverTraces(t *testing.T) {
	t.Chdir(root)
	for _, c := range []struct {
		pattern *regexp.Regexp
		own     []string
		instead string
	}{
		{walkOver, []string{"admission/trace/", "admission/plan/", "internal/engine/dispatch/", "gatehousetest/"}, "ask the record or the plan (admission/trace/acts.go), or add the question there"},
		{sentence, []string{"admission/", "internal/view/", "gatehousetest/", "bench/", "test/", "examples/"}, "say it in internal/view, and draw that"},
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
