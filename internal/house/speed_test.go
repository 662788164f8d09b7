package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// skips are the calls that skip a test, by file, with the missing condition. The calls of package test/speed
// skip tests by the speed of the run, so that each test runs at one of the three speeds.
var skips = map[string]string{
	"admission/bench_policies_test.go":                   "the race detector is on",
	"examples/aggregated/server_test.go":                 "-short",
	"examples/operator/suite_test.go":                    "the programs of envtest: test/envtest has them",
	"internal/commands/cli/before/test_base_test.go":     "git",
	"internal/commands/cli/serving/parent_test.go":       "the process of another test",
	"internal/kit/subprocess/places_linux_test.go":       "mount namespaces, which a container may refuse",
	"internal/kit/subprocess/subprocess_test.go":         "the environments of processes, which Linux shows",
	"test/manifests/hostile_test.go":                     "git",
	"internal/commands/cli/programs_test.go":             "the process of another test",
	"internal/engine/mutation/patch_test.go":             "inputs of a fuzz target that it is not about",
	"internal/engine/objects/encode_test.go":             "inputs of a fuzz target that it is not about",
	"internal/engine/review/patch_test.go":               "inputs of a fuzz target that it is not about",
	"internal/kit/files/files_test.go":                   "the rights of root",
	"internal/house/words_test.go":                       "git, or the whole history",
	"internal/readers/manifests/manifests_test.go":       "symbolic links",
	"internal/server/api/customresources/stored_test.go": "inputs of a fuzz target that it is not about",
	"internal/server/api/userpatch/cost_test.go":         "inputs of a fuzz target that it is not about",
	"internal/server/api/userpatch/patch_test.go":        "inputs of a fuzz target that it is not about",
	"internal/readers/view/view_test.go":                 "a folder for pages to look at",
	"test/console/browser_test.go":                       "a browser",
	"test/developing/developing_test.go":                 "/proc",
	"test/developing/live_test.go":                       "/proc",
	"test/developing/main_test.go":                       "Python or Node.js",
	"test/envtest/killed_linux_test.go":                  "the process of another test",
	"test/guides/commands_test.go":                       "jq",
	"test/harness/disk_linux.go":                         "a disk of its own",
	"test/harness/previous.go":                           "the history or the modules of the release",
	"test/manifests/oddfiles_test.go":                    "files of a kind that this system has not",
	"test/objects/equivalence_test.go":                   "the version of the case, on this server",
	"test/operations/service_test.go":                    "systemd-analyze",
	"test/operations/three_test.go":                      "the loopback of Linux, or openssl",
	"test/serving/badinput_test.go":                      "an answer: the server closed the connection",
	"test/terminaltest/open_linux.go":                    "a terminal",
	"test/webhooks/record_test.go":                       "a process that does not run under nohup",
}

// Each test runs at one of the three speeds: only a condition of the machine can skip it at all of them.
// .ci/run long finds its tests by the calls of package test/speed, which therefore must be in the test
// functions.
func TestEveryTestRunsAtOneSpeed(t *testing.T) {
	t.Chdir(root)
	used := map[string]bool{}
	for pkg, files := range packages(t) {
		if pkg == "test/speed" || in(pkg, "gatehousetest") || in(pkg, "bench") {
			continue
		}
		for _, file := range files {
			if !file.test() && !in(pkg, "test") {
				continue
			}
			calls := callsIn(t, file.path)
			for _, c := range calls {
				switch {
				case c.method == "Skip" || c.method == "Skipf" || c.method == "SkipNow":
					if c.receiver != "t" && c.receiver != "b" && c.receiver != "f" {
						continue
					}
					if skips[file.path] == "" {
						t.Errorf("skips: %s leaves a test out; say in the table what is missing then, or call test/speed", file.path)
					}
					used[file.path] = true
				case c.receiver == "testing" && c.method == "Short" && !in(pkg, "examples"):
					t.Errorf("%s asks for -short: call speed.Server", file.path)
				case c.receiver == "harness" && c.method == "Sole" && parallel(calls, c.function) > 1:
					t.Errorf("%s: %s has parallel subtests, which wait for tests that wait for its server: call harness.Start", file.path, c.function)
				case c.receiver == "speed" && slices.Contains([]string{"Long", "Of", "IsLong", "Some"}, c.method) && !strings.HasPrefix(c.function, "Test") && file.path != "test/harness/previous.go":
					t.Errorf("%s: %s calls speed.%s: .ci/run long does not find the test; call it in the test function", file.path, c.function, c.method)
				}
			}
		}
	}
	for file := range skips {
		if !used[file] {
			t.Errorf("skips: %s leaves no test out any more; remove its row", file)
		}
	}
}

// parallel counts the calls of t.Parallel in a function.
func parallel(calls []called, function string) (n int) {
	for _, c := range calls {
		if c.function == function && c.method == "Parallel" {
			n++
		}
	}
	return n
}

// called is a call of a method or of a function of another package.
type called struct{ function, receiver, method string }

func callsIn(t *testing.T, file string) (list []called) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
					if receiver, ok := sel.X.(*ast.Ident); ok {
						list = append(list, called{f.Name.Name, receiver.Name, sel.Sel.Name})
					}
				}
			}
			return true
		})
	}
	return list
}

// mostServers limits the programs of tests that link the server. mostKubernetes limits the programs that link more than
// typePackages packages of Kubernetes, the number of the types and the validation of the built-in kinds. Linking takes a
// good part of the time of all tests: a test that needs a server starts the program, with package test/harness.
const mostServers, mostKubernetes, typePackages = 10, 18, 130

func TestFewTestProgramsLinkTheServer(t *testing.T) {
	t.Chdir(root)
	found := packages(t)
	var servers, kubernetes []string
	g := imports(t)
	for _, program := range slices.Sorted(maps.Keys(g)) {
		pkg, ok := strings.CutSuffix(strings.TrimPrefix(program, modulePath+"/"), ".test")
		if !ok {
			continue
		}
		deps, ofKubernetes := g.closure(program), 0
		for dep := range deps {
			if in(dep, "k8s.io/kubernetes") {
				ofKubernetes++
			}
		}
		if ofKubernetes > typePackages {
			kubernetes = append(kubernetes, pkg)
		}
		if !deps[modulePath+"/internal/server"] {
			continue
		}
		servers = append(servers, pkg)
		// Main fails when a test started a server although -short was given. An example uses public packages
		// only.
		if !in(pkg, "examples") && !slices.ContainsFunc(found[pkg], func(file goFile) bool {
			return file.test() && slices.ContainsFunc(callsIn(t, file.path), func(c called) bool {
				return c.function == "TestMain" && c.method == "Main" && (c.receiver == "speed" || c.receiver == "harness")
			})
		}) {
			t.Errorf("%s: TestMain does not call speed.Main or harness.Main", pkg)
		}
	}
	if len(servers) > mostServers {
		t.Errorf("%d programs of tests link the server, more than %d:\n%s", len(servers), mostServers, strings.Join(servers, "\n"))
	}
	if len(kubernetes) > mostKubernetes {
		t.Errorf("%d programs of tests link more than %d packages of Kubernetes, more than %d:\n%s", len(kubernetes), typePackages, mostKubernetes, strings.Join(kubernetes, "\n"))
	}
}
