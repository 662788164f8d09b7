package gatehouse_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers is the architecture: every package of the module, from the top down,
// with the packages of the module that it imports and why. A package imports
// only what stands below it.
var layers = []struct {
	pkg     string
	imports []string
	why     string
}{
	{"cmd/gatehouse", []string{"internal/cli"}, "main is the command line and nothing else"},
	{"docs/reference", nil, "its tests compare the pages with the code"},
	{"test", nil, "its tests see a server as clients do, with the harness"},
	{"test/envtest", nil, "its tests start the programs as the test libraries of operators do"},
	{"test/aggregation", nil, "its tests put other servers behind one, and see both as clients do"},
	{"test/initialization", nil, "its tests see a server as clients do, and initialize what it stores"},
	{"test/operations", nil, "its tests do what docs/operations.md says"},
	{"test/chaos", nil, "its tests see a server as clients and its machine do, when everything goes wrong"},
	{"test/replicas", nil, "three servers on three members of etcd"},
	{"test/harness", []string{"server"}, "tests run a server as a process or inside the test"},
	{"test/harness/etcd", nil, "an etcd in a process of its own, which tests take away and bring back"},
	{"deploy/monitoring", nil, "queries, and tests that ask a server for what they need"},
	{"examples/podpolicy", nil, "what a webhook's author writes, who has never heard of this project"},
	{"examples/plainhook", nil, "what a webhook is, with nothing but the standard library"},
	{"examples/aggregated", []string{
		"examples/aggregated/gallery", "examples/aggregated/gallery/v1", "examples/aggregated/gallery/v1beta1",
		"server/initialization", "admission", "admission/announce", "admission/snapshot",
	}, "an API server as anybody writes it, with the engine for its admission, and initializers as the server has them"},
	{"examples/aggregated/gallery/v1beta1", []string{"examples/aggregated/gallery"}, "API types, and how they become internal ones"},
	{"examples/aggregated/gallery/v1", []string{"examples/aggregated/gallery"}, "API types, and how they become internal ones"},
	{"examples/aggregated/gallery", nil, "API types"},
	{"examples/openshift", []string{"initializer"}, "what the authors of a webhook and of initializers write; its tests need a server"},
	{"examples/operator", []string{"examples/operator/api/v1"}, "what an operator's author writes, who has never heard of this project"},
	{"examples/operator/api/v1", nil, "API types"},
	{"examples/sidecar-initializer", []string{"initializer"}, "what an initializer's author writes"},
	{"gatehousetest", nil, "what a test of an operator imports: client-go, and the program as a process"},
	{"test/prediction", []string{"internal/cli", "server/replicas/v1alpha1", "admission/plan"}, "runs the command explain, and compares what happens with its plans"},
	{"internal/cli", []string{"internal/terminal", "internal/files", "internal/check", "internal/clustersnapshot", "internal/manifests", "internal/nearest", "internal/prelude", "internal/program", "internal/sarif", "internal/scratch", "policies", "policies/webhook", "admission", "server", "server/offline", "server/replicas/v1alpha1", "server/traces/v1alpha1", "initializer", "admission/lint", "admission/plan", "admission/review", "admission/trace"},
		"serve runs a server; initializers reads what is hidden as an initializer does; explain prints plans, lint findings, and trace records of traces"},
	{"internal/check", []string{"internal/clustersnapshot", "internal/manifests", "internal/scratch", "policies", "server", "server/offline", "server/traces/v1alpha1", "admission", "admission/plan", "admission/registration", "admission/trace"},
		"applies objects to a server of its own, explains the webhooks that it does not call, and shows what traces say"},
	{"internal/clustersnapshot", []string{"internal/files", "admission/registration"}, "reads clusters through the API; the kinds of registrations are a table"},
	{"internal/prelude", []string{"internal/program"}, "comes before other packages, so it imports next to nothing"},
	{"internal/program", nil, "comes before nearly all packages, so it imports nothing"},
	{"internal/scratch", nil, "temporary directories and who has them"},
	{"initializer", nil, "works through the API, like any controller"},

	{"server", []string{
		"internal/files", "server/aggregation", "server/auth", "server/catalog", "server/controllers", "server/customresources", "server/discovery", "server/dormant", "server/election", "server/etcd", "server/fresh", "server/marks",
		"server/costs", "server/explain", "server/manifests", "server/replicas", "server/replicas/v1alpha1",
		"server/params", "server/quotas",
		"server/inflight", "server/initialization", "server/kubernetesservice", "server/namespaces", "server/openapi", "server/registrations", "server/resources",
		"server/rejections", "server/traces", "server/traces/v1alpha1", "server/typechecking",
		"server/stack", "server/storage", "server/waiting", "policies", "admission", "admission/call", "admission/lint", "admission/plan", "admission/snapshot", "admission/initializers",
		"admission/registration", "admission/registration/v1alpha1", "admission/trace",
	}, "the one place that knows all parts puts them together"},
	{"server/customresources", []string{
		"server/initialization", "server/openapi", "server/resources", "server/stack", "server/storage", "admission/call", "admission/initializers",
		"admission/registration", "admission/trace",
	}, "a definition becomes resources like the built-in ones, initializers in their metadata included; conversion webhooks are reached, and their certificates and circuits counted, as admission webhooks are"},
	{"server/aggregation", []string{"server/latecomers", "server/storage", "admission/call"},
		"stores APIServices, and passes requests on to where services are, which is found as for webhooks"},
	{"server/controllers", []string{"admission/initializers", "internal/nearest", "server/dormant", "server/election", "server/fakenodes", "server/latecomers", "server/namespaces", "server/quotas"},
		"work through the API, one server's at a time; what nobody uses costs nothing"},
	{"server/fakenodes", nil, "works through the API, like a scheduler and kubelets"},
	{"server/election", nil, "reads and writes a Lease through a storage that its caller chooses"},
	{"server/latecomers", nil, "a wrapper of informers"},
	{"server/dormant", nil, "a transport of a client, and counts of keys in etcd"},
	{"server/fresh", []string{"server/marks", "server/registrations", "admission/snapshot", "admission/initializers", "admission/registration"},
		"reads the registrations that another package stores for the engine's snapshots"},
	{"server/params", []string{"server/resources", "admission/initializers"}, "reads params as the API shows them"},
	{"server/marks", nil, "a wrapper of etcd's client"},
	{"server/kubernetesservice", nil, "works through the API and on leases of etcd"},
	{"server/replicas", []string{"server/registrations", "server/replicas/v1alpha1", "admission/announce", "admission/registration"},
		"tells of each stored registration which snapshots have it"},
	{"server/explain", []string{"server/replicas/v1alpha1", "server/resources", "admission", "admission/plan", "admission/registration"},
		"asks the engine for the plan of a request that is handled up to admission"},
	{"server/costs", []string{"admission/expression", "admission/registration", "admission/snapshot"},
		"what expressions of policies cost by the schemas of the kinds"},
	{"server/manifests", []string{"internal/files", "internal/manifests", "admission/exclusion", "admission/plan", "admission/registration", "admission/snapshot"},
		"files become registrations that are compiled like those of the API; another package finds the lines in them"},
	{"server/offline", []string{"internal/files", "internal/manifests", "server/catalog", "server/openapi", "admission/dispatch", "admission/initializers", "admission/lint", "admission/objects", "admission/plan", "admission/registration", "admission/snapshot"},
		"makes a plan, and what rules look at, of what can be read from outside, with the built-in types for defaults, conversions and what policies merge"},
	{"internal/manifests", []string{"internal/files", "admission/plan", "admission/registration"}, "files with objects, and the lines of their fields; plans name registrations in them"},
	{"server/replicas/v1alpha1", []string{"admission/announce", "admission/plan"}, "API types; an explanation is a plan, and what a server announces has one form"},
	{"server/traces", []string{"server/traces/v1alpha1", "admission/trace"}, "keeps what the engine recorded"},
	{"server/traces/v1alpha1", []string{"admission/trace"}, "API types, around the stable form of a trace"},
	{"server/rejections", []string{"admission/trace"}, "tells what a request was rejected with, and which trace has it"},
	{"server/registrations", []string{"server/initialization", "server/storage", "admission/registration", "admission/registration/v1alpha1"},
		"serves the kinds whose rules the engine knows"},
	{"server/quotas", nil, "a fence in etcd between what is charged and what is counted"},
	{"server/namespaces", nil, "works through the API, like any controller"},
	{"server/discovery", []string{"server/resources"}, "describes what is served"},
	{"server/openapi", []string{"server/openapi/upstream", "server/resources"}, "describes what is served, upstream's kinds by upstream's definitions"},
	{"server/openapi/upstream", nil, "data"},
	{"server/catalog/catalogtest", []string{"server/catalog", "server/etcd/etcdtest", "server/initialization", "server/resources", "server/storage"},
		"the built-in kinds, for the tests of what describes them"},
	{"server/catalog", []string{"admission/initializers", "admission/registration"}, "data about kinds, what initializers may change in them, and what policies may ask of their order"},
	{"server/auth", []string{"internal/files"}, "users and rules"},
	{"server/resources", []string{"server/inflight", "server/initialization", "server/stack", "server/waiting", "admission/initializers"},
		"the edge where metadata.initializers becomes an annotation, and where creators of uninitialized objects wait"},
	{"server/stack", nil, "the stacks of requests"},
	{"server/initialization", []string{"admission/initializers", "admission/plan", "admission/snapshot"}, "readers and writers of what is pending, around a storage; what is registered says who must act"},
	{"server/storage", []string{"server/inflight"}, "etcd3 stores; who waits for a watch cache gives its place back"},
	{"server/inflight", nil, "requests handled at once"},
	{"server/waiting", nil, "creates that wait, outside of all handlers"},
	{"server/etcd/etcdtest", []string{"server/etcd"}, "an etcd for a test, or for all of a package"},
	{"server/etcd", nil, "the embedded etcd and clients"},
	{"server/typechecking", nil, "works through the API, with the type checker of kube-apiserver"},

	{"policies/webhook", []string{"internal/files", "policies", "admission", "admission/objects"}, "plugins judge what a cluster asks about, and their changes become patches"},
	{"policies", []string{"admission", "admission/registration"}, "the compiled-in plugins of kube-apiserver, among those of the engine"},

	{"admission", []string{
		"internal/files", "admission/announce", "admission/dispatch", "admission/call", "admission/mutation", "admission/plan", "admission/objects", "admission/snapshot", "admission/trace",
		"admission/exclusion", "admission/initializers", "admission/registration",
	}, "the engine's front door puts its parts together"},
	{"admission/lint", []string{"admission/plan", "admission/snapshot", "admission/registration", "admission/expression"},
		"rules read a snapshot, ask for the plan of requests that a cluster makes, and what expressions give for all requests"},
	{"admission/dispatch", []string{
		"admission/call", "admission/mutation", "admission/plan", "admission/policy", "admission/objects", "admission/snapshot", "admission/trace", "admission/review",
		"admission/exclusion", "admission/registration",
	}, "runs a plan: calls webhooks with reviews, evaluates policies, and writes the trace"},
	{"admission/call", []string{"internal/files", "admission/review", "admission/registration"}, "reaches the webhook that an entry names, with a review"},
	{"admission/plan", []string{"admission/snapshot", "admission/condition", "admission/exclusion", "admission/expression", "admission/mutation", "admission/policy", "admission/registration", "admission/review", "admission/initializers"},
		"a plan is read off a snapshot: entries, their rules and conditions, what policies say, the version of the review, and the list of initializers"},
	{"admission/objects", []string{"admission/mutation", "admission/registration", "admission/review", "admission/initializers"},
		"the objects of a request, as reviews have them and as mutations change them, with metadata.initializers where users see it"},
	{"admission/initializers", []string{"admission/registration"},
		"the field, its rules, and who is registered to initialize"},
	{"admission/announce", []string{"admission/snapshot"}, "tells which snapshots a server has"},
	{"admission/snapshot", []string{"admission/condition", "admission/exclusion", "admission/expression", "admission/policy", "admission/registration"}, "a snapshot is registrations, compiled, and the rules that exclude some of them"},
	{"admission/policy", []string{"admission/condition", "admission/expression", "admission/mutation", "admission/registration"},
		"a policy is conditions and other expressions that were registered"},
	{"admission/trace", []string{"admission/exclusion", "admission/registration", "admission/review"}, "a trace says which entry acted, and which rule kept it from acting"},
	{"admission/exclusion", []string{"admission/registration"}, "rules are about plugins, which the table of sources names"},
	{"admission/registration", []string{"admission/condition", "admission/expression", "admission/registration/v1alpha1"},
		"validation compiles the conditions; the alpha kinds are its own"},
	{"admission/registration/v1alpha1", nil, "API types"},
	{"admission/internal/hooktest", nil, "a server with webhooks, for tests"},
	{"admission/internal/fieldtest", nil, "comments of Go types, for tests"},
	{"admission/condition", []string{"admission/expression"}, "conditions are expressions that must all be true"},
	{"admission/expression", nil, "CEL"},
	{"admission/mutation", []string{"admission/review"}, "what the expressions of mutating policies give; a patch is a patch, whoever wrote it"},
	{"admission/review", nil, "wire formats"},
	{"internal/files", nil, "reads and replaces files"},
	{"internal/terminal", nil, "characters"},
	{"internal/nearest", nil, "names and typing errors"},
	{"internal/sarif", nil, "a format of files"},
}

// The layout is the architecture, and imports point down only.
func TestImportsPointDown(t *testing.T) {
	found := packages(t)
	below := map[string]bool{}
	for i := len(layers) - 1; i >= 0; i-- {
		row := layers[i]
		if row.why == "" {
			t.Errorf("layers: %s has no reason", row.pkg)
		}
		if below[row.pkg] {
			t.Errorf("layers: %s stands there twice", row.pkg)
		}
		if found[row.pkg] == nil {
			t.Errorf("layers: there is no package %s; remove its row", row.pkg)
		}
		used := map[string]bool{}
		for _, file := range found[row.pkg] {
			for _, imported := range file.imports {
				target, ok := strings.CutPrefix(imported, modulePath+"/")
				if !ok || file.test() || used[target] {
					continue
				}
				used[target] = true
				if !slices.Contains(row.imports, target) {
					t.Errorf("%s imports %s, which layers does not allow: add it to the row with the reason, or do without", file.path, target)
				}
			}
		}
		for _, allowed := range row.imports {
			if !used[allowed] {
				t.Errorf("layers: %s no longer imports %s; remove it from the row", row.pkg, allowed)
			}
			if !below[allowed] {
				t.Errorf("layers: %s stands above %s or is not listed, so %[2]s cannot import it", allowed, row.pkg)
			}
		}
		below[row.pkg] = true
	}
	for _, pkg := range sorted(found) {
		if pkg != "." && !below[pkg] {
			t.Errorf("layers: package %s is missing; say where it stands, what it imports and why", pkg)
		}
	}
}

// The engine's tests do not lean on the server either, and an example shows what
// anybody can do. How files are read is the same everywhere.
func TestTestsOfTheEngineAndExamplesStandAlone(t *testing.T) {
	found := packages(t)
	for _, pkg := range sorted(found) {
		for _, file := range found[pkg] {
			for _, imported := range file.imports {
				target, ok := strings.CutPrefix(imported, modulePath+"/")
				switch {
				case !ok:
				case in(pkg, "admission") && !in(target, "admission") && target != "internal/files":
					t.Errorf("%s imports %s: the engine is used without the server", file.path, target)
				case in(pkg, "examples") && !slices.Contains([]string{"admission", "admission/announce", "admission/snapshot", "server", "server/initialization", "initializer", "gatehousetest"}, target) && !in(target, example(pkg)):
					t.Errorf("%s imports %s: examples use the public packages admission, admission/announce, admission/snapshot, server, server/initialization, initializer and gatehousetest only", file.path, target)
				}
			}
		}
	}
}

// readers are the packages by which the engine can be observed, and the files besides
// those of admission/trace that import them, with the reason.
var readers = struct {
	packages []string
	except   map[string]string
}{
	[]string{
		"k8s.io/klog/v2", "k8s.io/component-base/metrics", "k8s.io/component-base/metrics/legacyregistry",
		"k8s.io/apiserver/pkg/admission/metrics", "k8s.io/apiserver/pkg/audit", "k8s.io/apiserver/pkg/warning",
	},
	map[string]string{
		"admission/chain.go":              "the library measures passes and compiled-in plugins, which have no webhook",
		"admission/freshness.go":          "how old registrations are is a fact about no request",
		"admission/announce/announcer.go": "an announcement belongs to no request",
	},
}

// Only the trace feeds the metrics, the log and the annotations of the engine.
func TestOnlyTheTraceCountsAndLogs(t *testing.T) {
	found := packages(t)
	used := map[string]bool{}
	for _, pkg := range sorted(found) {
		if !in(pkg, "admission") || pkg == "admission/trace" {
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

// in says whether a package is in a tree of packages.
func in(pkg, tree string) bool { return pkg == tree || strings.HasPrefix(pkg, tree+"/") }

// forbidden are trees of packages that nobody imports directly, except in the
// trees named, and why.
var forbidden = []struct {
	pkg    string
	except []string
	why    string
}{
	{"k8s.io/apiserver/pkg/admission/plugin/webhook", nil, "that is the system this project is; the engine stands on its own"},
	{"k8s.io/apiserver/pkg/admission/plugin/policy", []string{"server/typechecking"}, "it is built on the webhook packages; the engine stands on its own"},
	{"k8s.io/apiserver/pkg/admission/configuration", nil, "how registrations are read and kept fresh is admission/snapshot"},
	{"k8s.io/apiserver/pkg/util/webhook", nil, "how a webhook is reached is admission/call, with other rules for redirects and retries"},
	{"k8s.io/kubernetes", []string{"server", "policies"}, "who embeds the engine must not get all of Kubernetes"},
	{"go.etcd.io/etcd", []string{"server", "examples/aggregated", "test", "internal/cli"}, "the engine and the tools read through the API; who stores objects needs an etcd"},
}

func TestForbiddenPackagesAreNotImported(t *testing.T) {
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

// A rule about a package that has moved would forbid nothing.
func TestForbiddenPackagesExist(t *testing.T) {
	for _, rule := range forbidden {
		out, err := exec.Command("go", "list", "-find", rule.pkg+"/...").Output()
		if err != nil || !strings.HasPrefix(string(out), rule.pkg) {
			t.Errorf("forbidden: no package in %s: %v\n%s", rule.pkg, err, out)
		}
	}
}

// A forbidden package does not come in through the imports of another one either.
func TestTheEngineStaysSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./admission/...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
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

// A test that uses the server links nothing of it: the package needs client-go, and
// what client-go needs.
func TestTestsOfOperatorsDoNotLinkTheServer(t *testing.T) {
	deps := func(packages ...string) []string {
		t.Helper()
		out, err := exec.Command("go", append([]string{"list", "-deps"}, packages...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	allowed := deps("k8s.io/client-go/kubernetes", "k8s.io/client-go/dynamic", "k8s.io/client-go/restmapper", "k8s.io/client-go/discovery/cached/memory", "k8s.io/client-go/tools/clientcmd")
	for _, dep := range deps("./gatehousetest") {
		if strings.Contains(dep, ".") && dep != modulePath+"/gatehousetest" && !slices.Contains(allowed, dep) {
			t.Errorf("gatehousetest depends on %s", dep)
		}
	}
}

// With the tag of our builds nothing in the program loads Go plugins. A program that may load
// some keeps all that they could call: it is a third larger, and takes a multiple of the time
// to link.
func TestTheProgramLinksWithoutPlugins(t *testing.T) {
	out, err := exec.Command("go", "list", "-tags=kustomize_disable_go_plugin_support", "-deps", "./cmd/gatehouse").Output()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(strings.Fields(string(out)), "plugin") {
		t.Error("gatehouse depends on plugin: go list -deps -f '{{.ImportPath}}: {{.Imports}}' ./cmd/gatehouse says why")
	}
}
