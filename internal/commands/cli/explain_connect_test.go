package cli

import (
	"encoding/base64"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
)

// With --connect, explain reports for each webhook of the plan whether it can be reached from here, whether its
// certificate matches its caBundle, and when the certificate expires. It sends no request.
func TestExplainConnects(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer server.Close()
	own := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	stranger := strings.TrimSpace(strings.SplitN(strings.SplitN(lint.Find("ca-bundle-invalid").Passes, "caBundle: ", 2)[1], "\n", 2)[0])
	address := clusterOfTests(t)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret.yaml")
	if err := os.WriteFile(secret, []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: default}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hook := func(name, client string) string {
		return "- name: " + name + ".example.com\n  clientConfig: {" + client + "}\n  sideEffects: None\n  admissionReviewVersions: [v1]\n  failurePolicy: Ignore\n" +
			"  rules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]\n"
	}
	hooks := "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: hooks}\nwebhooks:\n" +
		hook("own", `url: "`+server.URL+`", caBundle: `+own) +
		hook("other", `url: "`+server.URL+`", caBundle: `+stranger) +
		hook("nobody", `url: "https://127.0.0.1:1", caBundle: `+own) +
		hook("inside", `service: {namespace: one, name: hooks}, caBundle: `+own)
	file := filepath.Join(dir, "hooks.yaml")
	if err := os.WriteFile(file, []byte(hooks), 0o600); err != nil {
		t.Fatal(err)
	}
	apply(t, address.Admin, hooks)
	says := []string{
		"reached from here: its certificate fits its caBundle; the certificate expires at 2",
		"reached from here: each call fails, since the API server does not trust its certificate: x509: ",
		"it could not be reached from here: ", "connection refused",
		"service one/hooks is reachable in its cluster only: run the command in a pod, or name the address of the service with --service-address",
	}
	for _, from := range [][]string{{"--registrations", file}, {"--kubeconfig", address.Kubeconfig}} {
		out, problems, code := execution(t.Context(), "", append([]string{"explain", "-f", secret, "--connect", "-o", "yaml"}, from...)...)
		words := strings.Join(strings.Fields(out), " ")
		for _, want := range says {
			if code != command.ExitOK || !strings.Contains(words, want) {
				t.Errorf("%q: exit %d, %s: no %q in\n%s", from, code, problems, want, out)
			}
		}
		out, problems, code = execution(t.Context(), "", append([]string{"explain", "-f", secret, "--connect", "--service-address", "one/hooks=" + strings.TrimPrefix(server.URL, "https://")}, from...)...)
		if words = strings.Join(strings.Fields(out), " "); code != command.ExitOK || strings.Contains(words, "is reachable in its cluster only") || !strings.Contains(words, "not hooks.one.svc") {
			t.Errorf("%q: with an address: exit %d, %s\n%s", from, code, problems, out)
		}
		if out, problems, code = execution(t.Context(), "", append([]string{"explain", "-f", secret}, from...)...); code != command.ExitOK || strings.Contains(out, "from here") {
			t.Errorf("%q: without --connect: exit %d, %s\n%s", from, code, problems, out)
		}
	}
	if out, problems, code := execution(t.Context(), "", "explain", "-f", secret, "--service-address", "a/b=c:1"); code != command.ExitUsage || !strings.Contains(problems, "--service-address needs --connect") {
		t.Errorf("exit %d, %s%s", code, out, problems)
	}
	if n := requests.Load(); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}
