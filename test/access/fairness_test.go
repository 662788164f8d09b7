package access

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// S27.1, S27.2, S27.3: FlowSchemas and PriorityLevelConfigurations act as in kube-apiserver: they say which requests share
// which bound, answers name them, and a schema without its level says so.
func TestPriorityAndFairness(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("alice-token,alice,uid-alice,\nbob-token,bob,uid-bob,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, "--token-auth-file", tokens, "--authorization-mode", "AlwaysAllow", "--enable-priority-and-fairness")
	admin, alice, bob := s.HTTP(t, nil), s.HTTP(t, s.WithToken("alice-token")), s.HTTP(t, s.WithToken("bob-token"))
	const group = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	for _, path := range []string{"flowschemas/global-default", "flowschemas/exempt", "prioritylevelconfigurations/workload-low", "prioritylevelconfigurations/catch-all"} {
		admin.Must(http.StatusOK, "GET", group+path, "")
	}
	admin.Must(http.StatusCreated, "POST", group+"flowschemas", `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"FlowSchema","metadata":{"name":"alice"},
		"spec":{"priorityLevelConfiguration":{"name":"narrow"},"matchingPrecedence":500,"rules":[{"subjects":[{"kind":"User","user":{"name":"alice"}}],
		"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"clusterScope":true,"namespaces":["*"]}]}]}}`)
	dangling := func(want string) {
		t.Helper()
		harness.Eventually(t, "the condition Dangling is "+want, func() error {
			raw := string(admin.Must(http.StatusOK, "GET", group+"flowschemas/alice", "").Raw)
			if !strings.Contains(raw, `"type":"Dangling","status":"`+want+`"`) {
				return fmt.Errorf("%s", raw)
			}
			return nil
		})
	}
	dangling("True")
	// Nobody waits in a queue of this level, and it lends and borrows nothing.
	level := admin.Must(http.StatusCreated, "POST", group+"prioritylevelconfigurations", `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"PriorityLevelConfiguration","metadata":{"name":"narrow"},
		"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":0,"lendablePercent":0,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}}}}`)
	dangling("False")
	const path = "/api/v1/namespaces/default/configmaps"
	// A level without shares lets in one request at a time. The body of this one does not end yet.
	body, rest := io.Pipe()
	slow := make(chan int, 1)
	go func() {
		code, err := alice.TrySend(t.Context(), "POST", path, body)
		if err != nil {
			t.Errorf("the slow request: %v", err)
		}
		slow <- code
	}()
	if _, err := io.WriteString(rest, configMapNamed("slow")[:10]); err != nil {
		t.Fatal(err)
	}
	// Until it has its seat, another request of alice could take that, and the slow one would be refused.
	harness.Eventually(t, "the slow request has its seat", func() error {
		dump := string(admin.Must(http.StatusOK, "GET", "/debug/api_priority_and_fairness/dump_priority_levels", "").Raw)
		for line := range strings.Lines(dump) {
			// The name of a level is in the first column, and how many requests it runs in the sixth.
			if columns := strings.Split(line, ","); len(columns) > 5 && columns[0] == "narrow" && strings.TrimSpace(columns[5]) == "1" {
				return nil
			}
		}
		return fmt.Errorf("%d slow requests have ended, and the levels are:\n%s", len(slow), dump)
	})
	harness.Eventually(t, "alice is refused", func() error {
		r := alice.Do("GET", path, "")
		if r.Code != http.StatusTooManyRequests {
			return fmt.Errorf("%d, and %d slow requests have ended", r.Code, len(slow))
		}
		if got, want := r.Header.Get("X-Kubernetes-PF-PriorityLevel-UID"), level.Text("metadata", "uid"); got != want || r.Header.Get("Retry-After") == "" {
			t.Errorf("level %q, want %q; Retry-After %q", got, want, r.Header.Get("Retry-After"))
		}
		return nil
	})
	if _, err := io.WriteString(rest, configMapNamed("slow")[10:]); err != nil {
		t.Fatal(err)
	}
	rest.Close()
	if code := <-slow; code != http.StatusCreated {
		t.Errorf("the slow request: %d", code)
	}
	if r := bob.Must(http.StatusOK, "GET", path, ""); r.Header.Get("X-Kubernetes-PF-FlowSchema-UID") == "" {
		t.Error("an answer without its schema")
	}
	bob.Must(http.StatusCreated, "POST", path, configMapNamed("bob"))
	admin.Must(http.StatusCreated, "POST", path, configMapNamed("admin"))
	dump := string(admin.Must(http.StatusOK, "GET", "/debug/api_priority_and_fairness/dump_priority_levels", "").Raw)
	if !strings.Contains(dump, "narrow") || !strings.Contains(dump, "global-default") {
		t.Errorf("the levels:\n%s", dump)
	}
	metrics := string(admin.Must(http.StatusOK, "GET", "/metrics", "").Raw)
	if !strings.Contains(metrics, `apiserver_flowcontrol_rejected_requests_total{flow_schema="alice",priority_level="narrow",reason="concurrency-limit"}`) {
		t.Error("no metric of refused requests")
	}

	t.Run("a watch takes no seat once it has begun", func(t *testing.T) {
		watch := alice.Watch(path + "?watch=1")
		for _, name := range []string{"admin", "bob", "slow"} {
			if e := watch.Next(); e.Type != "ADDED" || harness.At(e.Object, "metadata", "name") != name {
				t.Errorf("%s of %v, want %s", e.Type, harness.At(e.Object, "metadata", "name"), name)
			}
		}
		harness.Eventually(t, "another request is let in", func() error {
			if r := alice.Do("GET", path, ""); r.Code != http.StatusOK {
				return fmt.Errorf("%d", r.Code)
			}
			return nil
		})
		admin.Must(http.StatusCreated, "POST", path, configMapNamed("later"))
		if e := watch.Next(); harness.At(e.Object, "metadata", "name") != "later" {
			t.Errorf("the watch has %v", e)
		}
	})
	admin.Must(http.StatusOK, "DELETE", group+"flowschemas/alice", "")
	harness.Eventually(t, "alice is let in again", func() error {
		if r := alice.Do("GET", path, ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
}

func configMapNamed(name string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`
}
