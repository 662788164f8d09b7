package operations

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

const inside = "Look inside"

// Administrators can inspect a server; other users see what their permissions allow, and their bundles lack
// the rest.
func TestLookInside(t *testing.T) {
	t.Parallel()
	tokens := harness.WriteFile(t, filepath.Join(t.TempDir(), "tokens.csv"), "jane-token,jane,uid-jane\n")
	s := harness.Start(t, "--token-auth-file", tokens)
	a := harness.NewAdministrator(t).Of(s)
	harness.Contains(t, "what the page's commands print", a.Follow(t, inside, "cpu.pb.gz"), "apiserver statusz")
	if profile, err := os.ReadFile(filepath.Join(a.Dir, "cpu.pb.gz")); err != nil || !bytes.HasPrefix(profile, []byte{0x1f, 0x8b}) {
		t.Errorf("the profile: %v, %d bytes", err, len(profile))
	}

	h := s.HTTP(t, nil)
	if blocks(t, h) {
		t.Error("waits are recorded without --contention-profiling")
	}
	if log := string(h.Get("/debug/log").Raw); strings.Contains(log, `"HTTP"`) {
		t.Fatalf("the log has requests already: %s", log)
	}
	a.Follow(t, inside, "/debug/flags/v")
	create(t, s, http.StatusCreated, fmt.Sprintf(configMaps, "default"), named("logged"))
	harness.Eventually(t, "the log has the request", func() error {
		if log := string(h.Get("/debug/log").Raw); !strings.Contains(log, `URI="/api/v1/namespaces/default/configmaps"`) {
			return fmt.Errorf("it has %d bytes without it", len(log))
		}
		return nil
	})
	h.Must(http.StatusMethodNotAllowed, "POST", "/debug/log", "")

	create(t, s, http.StatusCreated, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"stringData":{"a":"of-a-secret"}}`)
	harness.Contains(t, "the index of the bundle", a.Follow(t, inside, "debug bundle"),
		"bundle.tar.gz has ", "profiles/cpu.pb.gz (", "log.txt (", "metrics.txt (", "flagz.txt (", "states/admissionservers.yaml (", "traces.yaml (")
	if packed, err := os.ReadFile(filepath.Join(a.Dir, "bundle.tar.gz")); err != nil || bytes.Contains(packed, []byte("of-a-secret")) {
		t.Errorf("the bundle: %v", err)
	}
	if r := harness.Run(t, "debug", "bundle", "--kubeconfig", s.Kubeconfig, "--file", filepath.Join(a.Dir, "bundle.tar.gz")); r.Code != 1 || !strings.Contains(r.Err, "exists already: name another file with --file") {
		t.Errorf("a second bundle in the same file: exit code %d, %s", r.Code, r.Err)
	}

	jane := s.WithToken("jane-token")
	for _, path := range []string{"/debug/pprof/", "/debug/flags/v", "/debug/log", "/statusz", "/flagz", "/metrics"} {
		s.HTTP(t, jane).Must(http.StatusForbidden, "GET", path, "")
	}
	kubeconfig := harness.WriteFile(t, filepath.Join(a.Dir, "jane.kubeconfig"), harness.AsJSON(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": s.URL, "certificate-authority-data": jane.CAData}}},
		"users":    []any{map[string]any{"name": "c", "user": map[string]any{"token": "jane-token"}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "c"}}},
	}))
	r := harness.Run(t, "debug", "bundle", "--kubeconfig", kubeconfig, "--file", filepath.Join(a.Dir, "jane.tar.gz"))
	if r.Code != 0 {
		t.Errorf("a bundle with few rights: exit code %d, %s", r.Code, r.Err)
	}
	harness.Contains(t, "what jane is told", r.Out+r.Err, "jane.tar.gz has 3 parts", "left out metrics.txt: ", `"jane" cannot get path "/metrics"`, `"jane" cannot list resource "admissiontraces"`)
}

// withoutProfiling verifies that a server whose profiling is disabled has no pages below /debug.
func withoutProfiling(t *testing.T, s *harness.Server) {
	t.Helper()
	for _, path := range []string{"/debug/pprof/", "/debug/flags/v", "/debug/log"} {
		s.HTTP(t, nil).Must(http.StatusNotFound, "GET", path, "")
	}
	s.HTTP(t, nil).Get("/statusz")
	r := harness.Run(t, "debug", "bundle", "--kubeconfig", s.Kubeconfig, "--file", filepath.Join(t.TempDir(), "b.tar.gz"))
	harness.Contains(t, "what is left out", r.Err, "profiles/heap.pb.gz", "log.txt", "404 not found")
}

// blocks reports whether the server records where goroutines block, which it does only if contention profiling is
// enabled.
func blocks(t *testing.T, h *harness.HTTP) bool {
	t.Helper()
	h.Get("/api/v1/configmaps")
	return strings.Contains(string(h.Get("/debug/pprof/block?debug=1").Raw), " @ 0x")
}

// The metrics that the page names exist.
func TestWhatToWatch(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	out := harness.NewAdministrator(t).Of(s).Follow(t, "What to watch", "/metrics")
	harness.Contains(t, "the metric", out, "\ngatehouse_admission_registrations_age_seconds ")
}

// S3.20: one ID identifies a request in its response, the log, the audit log, the trace and the webhook; and
// each line of the log is a JSON object.
func TestOneIDOfARequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy := harness.WriteFile(t, filepath.Join(dir, "policy.yaml"), "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	audit := filepath.Join(dir, "audit.log")
	s := harness.Start(t, "--contention-profiling", "--logging-format=json", "-v", "3", "--audit-log-path", audit, "--audit-policy-file", policy)
	harness.Eventually(t, "waits are recorded with --contention-profiling", func() error {
		if !blocks(t, s.HTTP(t, nil)) {
			return errors.New("none")
		}
		return nil
	})
	hooks := harness.NewWebhookServer(t, nil)
	hook := hooks.Hook("/", harness.Allow)
	harness.Register(t, s, "v1", validating, harness.Webhook("id.example.com", "default", hook))

	id := s.HTTP(t, nil).Must(http.StatusCreated, "POST", fmt.Sprintf(configMaps, "default"), named("a")).Header.Get("Audit-Id")
	if id == "" {
		t.Fatal("the answer has no Audit-Id")
	}
	if got := hook.Reviews()[0].HTTP.Header.Get("Audit-Id"); got != id {
		t.Errorf("the webhook got the ID %q, want %q", got, id)
	}
	page := harness.NewAdministrator(t).Of(s).Set("ID=" + id)
	harness.Contains(t, "the trace of the page's command", page.Follow(t, "Log", "--audit-id"), "configmaps a")
	out := harness.Run(t, "trace", "--kubeconfig", s.Kubeconfig, "-A", "--audit-id", id, "-o", "json").Out
	if !strings.Contains(out, `"auditID": "`+id+`"`) || strings.Count(out, `"outcome"`) != 1 {
		t.Errorf("the trace: %s", out)
	}
	harness.Eventually(t, "the log and the audit log have the ID", func() error {
		events, err := os.ReadFile(audit)
		if err != nil {
			return err
		}
		if !bytes.Contains(events, []byte(`"auditID":"`+id+`"`)) {
			return fmt.Errorf("no event has %s", id)
		}
		log := string(s.HTTP(t, nil).Get("/debug/log").Raw)
		found := false
		for lines := bufio.NewScanner(strings.NewReader(log)); lines.Scan(); {
			var record map[string]any
			if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
				t.Fatalf("%v: %s", err, lines.Text())
			}
			found = found || record["msg"] == "HTTP" && record["audit-ID"] == id
		}
		if !found {
			return fmt.Errorf("no record has %s", id)
		}
		return nil
	})
}
