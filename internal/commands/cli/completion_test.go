package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
)

// otherCluster serves the discovery, the namespaces and the pods of a cluster without Gatehouse.
func otherCluster(t *testing.T) (kubeconfig string) {
	t.Helper()
	answers := map[string]string{
		"/api":  `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[
			{"name":"namespaces","singularName":"namespace","kind":"Namespace","namespaced":false,"verbs":["get","list"]},
			{"name":"pods","singularName":"pod","kind":"Pod","namespaced":true,"verbs":["get","list"]},
			{"name":"pods/log","kind":"Pod","namespaced":true,"verbs":["get"]}]}`,
		"/api/v1/namespaces":           `{"kind":"NamespaceList","apiVersion":"v1","items":[{"metadata":{"name":"shop"}},{"metadata":{"name":"staging"}}]}`,
		"/api/v1/namespaces/shop/pods": `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"web-1"}},{"metadata":{"name":"db-0"}}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	t.Setenv("HOME", t.TempDir())
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: '" + server.URL + "'}}]\ncontexts: [{name: c, context: {cluster: c}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// A cluster without initializers is an error, rather than an empty list of waiting objects.
func TestInitializersOfAnotherServer(t *testing.T) {
	kubeconfig := otherCluster(t)
	for _, verb := range []string{"list", "watch"} {
		out, problems, code := execution(t.Context(), "", "initializers", verb, "-A", "--kubeconfig", kubeconfig)
		if code != command.ExitError || out != "" || !strings.Contains(problems, "is not Gatehouse, and has no initializers") {
			t.Errorf("%s: exit %d: %s%s", verb, code, out, problems)
		}
	}
}

// The help lists the command that prints the scripts of shells.
func TestTheHelpListsCompletion(t *testing.T) {
	out, problems, code := execution(t.Context(), "", "--help")
	if code != command.ExitOK || !strings.Contains(out, "\n  completion ") {
		t.Errorf("exit %d: %s%s", code, out, problems)
	}
}

// The shell completes rules, formats, contexts, plugins and names from a cluster, also after a comma.
func TestValuesAreCompleted(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: production, context: {cluster: c}}, {name: preview, context: {cluster: c}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	other := otherCluster(t)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"trace", "--outcome", "F"}, []string{"FailedOpen", "Failed"}},
		{[]string{"explain", "--enable-admission-plugins", "AlwaysPullImages,PodS"}, []string{"AlwaysPullImages,PodSecurity"}},
		{[]string{"serve", "--disable-admission-plugins", "LimitR"}, []string{"LimitRanger"}},
		{[]string{"webhook", "--plugins", "LimitR"}, []string{"LimitRanger"}},
		{[]string{"explain", "--kubeconfig", other, "-n", "s"}, []string{"shop", "staging"}},
		{[]string{"explain", "--kubeconfig", other, "p"}, []string{"pods/"}},
		{[]string{"explain", "--kubeconfig", other, "-n", "shop", "pod/w"}, []string{"pod/web-1"}},
		{[]string{"blame", "--kubeconfig", other, "-n", "shop", "pods/"}, []string{"pods/web-1", "pods/db-0"}},
		{[]string{"blame", "--kubeconfig", other, "pod/a", ""}, nil},
		{[]string{"blame", "--kubeconfig", kubeconfig, "--context", "preview", "pod/"}, nil},
		{[]string{"initializers", "list", "--kubeconfig", other, ""}, []string{"namespaces", "pods"}},
		{[]string{"wait-in-force", "--kubeconfig", other, "mutatingw"}, []string{"mutatingwebhookconfigurations/"}},
		{[]string{"lint", "--explain", "self-"}, []string{"self-deadlock"}},
		{[]string{"lint", "--disable", "self-deadlock,deadlock"}, []string{"self-deadlock,deadlock-cycle"}},
		{[]string{"lint", "-o", "git"}, []string{"github", "gitlab"}},
		{[]string{"check", "--missing-definitions", ""}, []string{"error", "warn", "skip"}},
		{[]string{"lint", "--kubeconfig", kubeconfig, "--context", "pr"}, []string{"preview", "production"}},
		{[]string{"blame", "--kubeconfig", kubeconfig, "--context", "pre"}, []string{"preview"}},
	} {
		out, problems, code := execution(t.Context(), "", append([]string{"__complete"}, c.args...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got := lines[:len(lines)-1]; code != command.ExitOK || !slices.Equal(got, c.want) {
			t.Errorf("%q: exit %d, %q, want %q: %s", c.args, code, got, c.want, problems)
		}
	}
}

// The page has the ClusterRole that the command prints.
func TestThePageHasTheClusterRole(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "rejected.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Rights")
	_, block, _ := strings.Cut(section, "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	printed, problems, code := execution(t.Context(), "", "explain", "--rbac")
	if code != command.ExitOK {
		t.Fatalf("exit %d: %s", code, problems)
	}
	var documented, real rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict([]byte(block), &documented); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(printed), &real); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(real, documented); diff != "" {
		t.Errorf("the page has another role:\n%s", diff)
	}
}
