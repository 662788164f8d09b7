package access

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// S27.1, S27.2, S27.3: FlowSchemas and PriorityLevelConfigurations work as in kube-apiserver: they select the
// requests that share a limit, responses name them, and a schema without its level reports that in its
// status.
func TestPriorityAndFairness(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("alice-token,alice,uid-alice,\nbob-token,bob,uid-bob,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Creates by alice occupy their seats until the authorization webhook answers. It has no opinion.
	asked, answer := make(chan struct{}), make(chan struct{})
	answered := sync.OnceFunc(func() { close(answer) })
	authority, _ := authorities(t, func(r authorizationv1.SubjectAccessReviewSpec) bool {
		if r.User == "alice" && r.ResourceAttributes != nil && r.ResourceAttributes.Verb == "create" {
			close(asked)
			<-answer
		}
		return false
	})
	defer answered()
	s := harness.Start(t, "--token-auth-file", tokens, "--authorization-mode", "Webhook,AlwaysAllow", "--enable-priority-and-fairness",
		"--authorization-webhook-config-file", askedThrough(t, authority), "--authorization-webhook-version", "v1")
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
	// This level has no queue, and it lends and borrows nothing.
	level := admin.Must(http.StatusCreated, "POST", group+"prioritylevelconfigurations", `{"apiVersion":"flowcontrol.apiserver.k8s.io/v1","kind":"PriorityLevelConfiguration","metadata":{"name":"narrow"},
		"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":0,"lendablePercent":0,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}}}}`)
	dangling("False")
	const path = "/api/v1/namespaces/default/configmaps"
	// A level without shares executes one request at a time. This request occupies the seat when the webhook
	// is called.
	slow := make(chan int, 1)
	go func() {
		code, err := alice.TrySend(t.Context(), "POST", path, strings.NewReader(configMapNamed("slow")))
		if err != nil {
			t.Errorf("the slow request: %v", err)
		}
		slow <- code
	}()
	<-asked
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
	answered()
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

// Without priority and fairness, users get 429 when all slots are occupied. A request whose body has not
// arrived occupies no slot (S27.6); a request that waits for the authorization webhook does.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	const most = 3
	tokens := fileOf(t, "tokens.csv", "alice-token,alice,uid-alice,\n")
	answer := make(chan struct{})
	answered := sync.OnceFunc(func() { close(answer) })
	authority, _ := authorities(t, func(r authorizationv1.SubjectAccessReviewSpec) bool {
		if r.User == "slow" {
			<-answer
		}
		return false
	})
	defer answered()
	// Requests of controllers count, too.
	s := harness.Start(t, "--service-account-issuer", "gatehouse", "--max-mutating-requests-inflight", fmt.Sprint(most), "--max-requests-inflight", fmt.Sprint(most), "--controllers", "namespace-controller",
		"--token-auth-file", tokens, "--authorization-mode", "Webhook,AlwaysAllow", "--authorization-webhook-config-file", askedThrough(t, authority), "--authorization-webhook-version", "v1")
	admin, alice := s.HTTP(t, nil), s.HTTP(t, s.WithToken("alice-token"))
	const path = "/api/v1/namespaces/default/configmaps"
	answers := make(chan *harness.Response, most+2)

	var bodies []*io.PipeWriter
	for i := range most + 2 {
		body, w := io.Pipe()
		bodies = append(bodies, w)
		go func() { answers <- alice.Send("POST", path, body) }()
		if _, err := io.WriteString(w, configMapNamed(fmt.Sprintf("slow-%d", i))[:10]); err != nil {
			t.Fatal(err)
		}
	}
	alice.Must(http.StatusCreated, "POST", path, configMapNamed("between"))
	for i, w := range bodies {
		if _, err := io.WriteString(w, configMapNamed(fmt.Sprintf("slow-%d", i))[10:]); err != nil {
			t.Fatal(err)
		}
		w.Close()
		want(t, "code of a request with a slow body", (<-answers).Code, http.StatusCreated)
	}

	for range most + 2 {
		go func() {
			answers <- alice.Do("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
				`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"slow","nonResourceAttributes":{"path":"/","verb":"get"}}}`)
		}()
	}
	for range 2 {
		refused := <-answers
		refused.Refusal(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		if refused.Header.Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
	}
	// Reads have a separate limit, and administrators are exempt.
	alice.Get(path)
	admin.Must(http.StatusCreated, "POST", path, configMapNamed("urgent"))
	answered()
	for range most {
		want(t, "code of a slow review", (<-answers).Code, http.StatusCreated)
	}
	alice.Must(http.StatusCreated, "POST", path, configMapNamed("afterwards"))
	want(t, "code of the description of an issuer that is no URL", admin.Do("GET", "/.well-known/openid-configuration", "").Code, http.StatusNotFound)
}

func configMapNamed(name string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`
}
