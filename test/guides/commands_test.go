package guides

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// pagesRunElsewhere maps pages to the tests that run their commands.
var pagesRunElsewhere = map[string]string{
	"webhooks.md":         "TestTheWebhookGuide",
	"initializers.md":     "TestTheInitializerGuide",
	"exclusions.md":       "TestTheExamplesOfExclusionsWork in test/manifests",
	"one-server.md":       "test/operations, which says for each block why it is not run",
	"three-servers.md":    "test/operations and test/replicas",
	"backup.md":           "test/operations",
	"certificates.md":     "test/operations",
	"monitoring.md":       "test/operations",
	"troubleshooting.md":  "test/operations",
	"install.md":          "test/operations; the rest needs a release",
	"writing-webhooks.md": "test/developing",
	"agent.md":            "test/reporting, and bench/agent with a kube-apiserver",
	"controllers.md":      "test/controllers",
	"envtest.md":          "test/envtest",
	"testing.md":          "test/envtest and gatehousetest",
}

// commandsRunElsewhere maps parts of commands that this test does not run to the reason.
var commandsRunElsewhere = map[string]string{
	"gatehouse serve":                       "the server of the test is one",
	"explain -f painting.yaml":              "examples/aggregated explains by its own server",
	"clusterrole gallery-reports":           "examples/aggregated has the resource",
	"gatehouse console":                     "test/console",
	"gatehouse record":                      "test/webhooks records and ends",
	"--service policies/gatehouse":          "test/plugins",
	"--engine ":                             "bench/engines builds the engines",
	"library/ engine/ --call":               "needs an engine in a cluster",
	"gatehouse trace 842920fb870b36dc":      "is the ID of an example",
	"--base main":                           "needs a repository of git",
	"helm template":                         "is another program",
	"kubectl kustomize overlays/production": "is an example of a project",
	"gatehouse explain --rbac | kubectl":    "is another program; TestThePageHasTheClusterRole reads the output",
}

// failing lists commands that fail, as documented on their page.
var failing = []string{
	"gatehouse kubectl run web --image=nginx",
	"gatehouse kubectl apply -f examples/policies/web.yaml",
	"gatehouse kubectl describe apiservice v1alpha1.wardle.example.com",
	"gatehouse lint hooks.yaml",
	"gatehouse test policies/ --coverage-min 80",
}

// Every gatehouse command on every page is run here or by the test in pagesRunElsewhere. Logs of managed
// clusters are the samples of examples/audit-logs.
func TestCommandsOfPagesRun(t *testing.T) {
	t.Parallel()
	g := newSandbox(t)
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	// The page about policies is first: later pages use its policies.
	pages = slices.DeleteFunc(pages, func(p string) bool {
		return pagesRunElsewhere[filepath.Base(p)] != "" || filepath.Base(p) == "policies.md"
	})
	pages = append([]string{"../../docs/policies.md", "../../README.md"}, pages...)
	done, skipped := map[string]bool{}, maps.Clone(commandsRunElsewhere)
	// The test reads all pages and runs the commands of some.
	run := append([]string{pages[0]}, speed.Some(t, 1, pages[1:])...)
	t.Logf("%q", run)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, typed := range shellLines(string(text)) {
			reason := slices.ContainsFunc(slices.Collect(maps.Keys(commandsRunElsewhere)), func(part string) bool {
				if strings.Contains(typed, part) {
					delete(skipped, part)
					return true
				}
				return false
			})
			if reason || done[typed] {
				continue
			}
			done[typed] = true
			if !slices.Contains(run, page) {
				continue
			}
			out, code := g.run(typed)
			fails := slices.ContainsFunc(failing, func(begin string) bool { return strings.HasPrefix(typed, begin) })
			if fails != (code == 1) || code != 0 && code != 1 {
				t.Errorf("%s: %s: exit %d\n%s", filepath.Base(page), typed, code, out)
			}
		}
	}
	for part, why := range skipped {
		if part != "gatehouse serve" {
			t.Errorf("no page has a command with %q (%s)", part, why)
		}
	}
	if len(done) < 50 {
		t.Errorf("the pages have only %d commands", len(done))
	}
}

// The recipes of "Who changed my pod" give the same answer for each provider, with samples in the provider's
// format.
func TestTheRecipesForManagedLogs(t *testing.T) {
	t.Parallel()
	jq, err := exec.LookPath("jq")
	if err != nil {
		t.Skip("jq is not installed")
	}
	samples, err := filepath.Abs("../../examples/audit-logs")
	if err != nil {
		t.Fatal(err)
	}
	for provider, convert := range map[string][]string{
		"eks": {"-r", ".events[].message"},
		"aks": {"-r", ".[].log_s"},
		"gke": {"-c", "-f", filepath.Join(samples, "gke.jq")},
	} {
		page, err := os.ReadFile("../../docs/who-changed-it.md")
		if err != nil {
			t.Fatal(err)
		}
		if last := convert[len(convert)-1]; !strings.Contains(string(page), strings.TrimPrefix(last, filepath.Dir(filepath.Dir(samples))+"/")) {
			t.Errorf("%s: the page does not convert by %s", provider, last)
		}
		events, err := exec.CommandContext(harness.Context(t), jq, append(convert, filepath.Join(samples, provider+".json"))...).Output()
		if err != nil {
			t.Fatalf("%s: %v", provider, err)
		}
		log := filepath.Join(t.TempDir(), "audit.log")
		if err := os.WriteFile(log, events, 0o600); err != nil {
			t.Fatal(err)
		}
		out := harness.Run(t, "blame", "pod/plain", "-n", "shop", "--audit-log", log)
		if out.Code != 0 || !strings.Contains(out.Out, "gatehouse-policies/alwayspullimages.policies.gatehouse.dev") || !strings.Contains(out.Out, "anna@example.com") {
			t.Errorf("%s: exit %d\n%s", provider, out.Code, out.Out)
		}
	}
}

var shellFence = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")

// shellLines returns the lines of a page that begin with gatehouse, or prepare a file for it.
func shellLines(page string) (list []string) {
	text := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(shellFence.ReplaceAllStringFunc(page, func(block string) string {
		body := shellFence.FindStringSubmatch(block)[1]
		return regexp.MustCompile("(?m)^").ReplaceAllString(body, "    ")
	}), "")
	for line := range strings.SplitSeq(regexp.MustCompile(`\\\n\s*`).ReplaceAllString(text, " "), "\n") {
		typed, ok := strings.CutPrefix(line, "    ")
		if !ok {
			continue
		}
		typed = strings.TrimPrefix(strings.TrimSpace(regexp.MustCompile(`\s+# .*$`).ReplaceAllString(typed, "")), "$ ")
		if strings.HasPrefix(typed, "gatehouse ") || strings.Contains(typed, "| gatehouse ") || strings.HasPrefix(typed, "grep -v gatehouse") {
			list = append(list, typed)
		}
	}
	return list
}

// sandbox is a folder with the files that pages mention, and a server.
type sandbox struct {
	t        *testing.T
	dir, log string
	env      []string
}

const (
	sandboxPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: web, image: 'web:1', resources: {limits: {memory: 1Gi}}}\n"
	sandboxCRD = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.example.com}\nspec:\n  group: example.com\n" +
		"  scope: Namespaced\n  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}\n" +
		"  versions:\n  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n"
	sandboxWeb = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n" +
		"  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers: [{name: web, image: 'web:1', resources: {limits: {memory: 1Gi}}}]\n"
)

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	top := t.TempDir()
	g := &sandbox{t: t, dir: filepath.Join(top, "work"), log: filepath.Join(top, "audit")}
	home, bin := filepath.Join(top, "home"), filepath.Join(top, "bin")
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	sample, err := os.ReadFile(filepath.Join(examples, "audit-logs", "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	recorded := strings.ReplaceAll(pageBlock(t, "impact.md", "json", `"kind":"RecordedRequest"`), "\n", "") + "\n"
	hooks := pageBlock(t, "lint.md", "yaml", "kind: ValidatingWebhookConfiguration")
	for name, text := range map[string]string{
		"work/policies/limits.yaml":  pageBlock(t, "test.md", "yaml", "metadata: {name: limits}"),
		"work/policies/tests.yaml":   pageBlock(t, "test.md", "yaml", "kind: AdmissionTests"),
		"work/hooks.yaml":            hooks,
		"work/hooks/hooks.yaml":      hooks,
		"work/pod.yaml":              sandboxPod,
		"work/extra.yaml":            sandboxPod,
		"work/web.yaml":              sandboxWeb,
		"work/deploy/web.yaml":       sandboxWeb,
		"main/deploy/web.yaml":       sandboxWeb,
		"operators/crds/widget.yaml": sandboxCRD,
		"work/audit.log":             string(sample),
		"audit/audit.log":            string(sample),
		"work/requests.jsonl":        recorded,
		"work/requests/one.jsonl":    recorded,
		"home/.kube/config":          "",
		"bin/README":                 "",
	} {
		file := filepath.Join(top, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(harness.Context(t), "tar", "-czf", filepath.Join(g.dir, "operator.tgz"), "-C", filepath.Join(top, "operators"), "crds").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	for from, to := range map[string]string{examples: filepath.Join(g.dir, "examples"), harness.Binary(t): filepath.Join(bin, "gatehouse")} {
		if err := os.Symlink(from, to); err != nil {
			t.Fatal(err)
		}
	}
	s := harness.Start(t)
	kubeconfig := filepath.Join(home, ".kube", "config")
	admin, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kubeconfig, admin, 0o600); err != nil {
		t.Fatal(err)
	}
	g.env = append(os.Environ(), "HOME="+home, "KUBECONFIG="+kubeconfig, "GATEHOUSE_DATA_DIR=", "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	for _, typed := range []string{
		"gatehouse kubectl config set-context prod --cluster gatehouse --user gatehouse-admin",
		"gatehouse kubectl create namespace pond",
		"gatehouse kubectl apply -f examples/policies/shop.yaml",
		"gatehouse kubectl -n shop apply -f pod.yaml -f web.yaml",
		"gatehouse snapshot -o cluster.yaml",
	} {
		if out, code := g.run(typed); code != 0 {
			t.Fatalf("%s: exit %d\n%s", typed, code, out)
		}
	}
	return g
}

// run runs a line of a page and returns its output and exit code.
func (g *sandbox) run(typed string) (string, int) {
	g.t.Helper()
	cmd := exec.CommandContext(harness.Context(g.t), "sh", "-ec", strings.ReplaceAll(typed, "/var/log/kubernetes/audit/", g.log))
	cmd.Dir, cmd.Env = g.dir, g.env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return string(out), 0
	case errors.As(err, &exit):
		return string(out), exit.ExitCode()
	}
	return fmt.Sprintf("%s%v", out, err), -1
}

// pageBlock returns the first fenced block of a page in a language that contains a text.
func pageBlock(t *testing.T, page, language, with string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[1], with) {
			return m[1]
		}
	}
	t.Fatalf("docs/%s has no block with %q", page, with)
	return ""
}
