package snapshot

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// server is an API server that serves lists of registrations over TLS.
type server struct {
	mu struct {
		sync.Mutex
		// lists are the items by the path of the list; codes are the status codes of error
		// responses.
		lists    map[string][]any
		codes    map[string]int
		revision int
		queries  []string
	}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.queries = append(s.mu.queries, r.URL.RawQuery)
	_, kind, _ := strings.Cut(r.URL.Path, "admissionregistration.k8s.io/")
	w.Header().Set("Content-Type", "application/json")
	items, ok := s.mu.lists[kind]
	code := s.mu.codes[kind]
	if !ok && code == 0 {
		code = http.StatusNotFound
	}
	if code != 0 {
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Message: "no"})
		return
	}
	s.mu.revision++
	json.NewEncoder(w).Encode(map[string]any{
		"metadata": map[string]any{"resourceVersion": fmt.Sprint(98 + s.mu.revision)}, "items": items,
	})
}

func (s *server) set(kind string, items ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.lists[kind] = append([]any{}, items...)
}

func (s *server) answer(kind string, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.codes[kind] = code
}

// serving starts a server of webhooks and policies in v1 only, and a reader of it.
func serving(t *testing.T) (*server, *ClientReader) {
	t.Helper()
	s := &server{}
	s.mu.lists = map[string][]any{}
	for _, d := range registration.Sources() {
		if d.Versions[0] == "v1" {
			s.mu.lists["v1/"+d.Resource] = []any{}
		}
	}
	s.mu.codes = map[string]int{}
	ts := httptest.NewUnstartedServer(s)
	// Handshake errors of clients that give up are irrelevant.
	ts.Config.ErrorLog = log.New(io.Discard, "", 0)
	ts.StartTLS()
	t.Cleanup(ts.Close)
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{
		Host:            ts.URL,
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ts.Certificate().Raw})},
		QPS:             -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, NewClientReader(client.RESTClient())
}

func webhookItem(name string, timeout int) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": name, "uid": name, "resourceVersion": fmt.Sprint(timeout)},
		"webhooks": []any{map[string]any{"name": "a.example.com", "timeoutSeconds": timeout}},
	}
}

// S26.14: policies of a release that has them in beta only.
func TestPoliciesInBetaAreRead(t *testing.T) {
	s, reader := serving(t)
	s.mu.Lock()
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies"} {
		delete(s.mu.lists, "v1/"+resource)
	}
	s.mu.Unlock()
	s.set("v1beta1/mutatingadmissionpolicies", map[string]any{
		"metadata": map[string]any{"name": "p"}, "spec": map[string]any{"reinvocationPolicy": "Never", "mutations": []any{}},
	})
	s.set("v1beta1/mutatingadmissionpolicybindings", map[string]any{"metadata": map[string]any{"name": "b"}, "spec": map[string]any{"policyName": "p"}})
	s.answer("v1beta1/validatingadmissionpolicies", http.StatusForbidden)
	read, err := reader.Read(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range read.Objects {
		kinds = append(kinds, o.GetObjectKind().GroupVersionKind().String())
	}
	want := []string{"admissionregistration.k8s.io/v1, Kind=MutatingAdmissionPolicy", "admissionregistration.k8s.io/v1, Kind=MutatingAdmissionPolicyBinding"}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{registration.ValidatingPolicyKind}, read.Forbidden); diff != "" {
		t.Errorf("forbidden (-want +got):\n%s", diff)
	}
}

func TestClientReader(t *testing.T) {
	s, reader := serving(t)
	s.set("v1/validatingwebhookconfigurations", webhookItem("v", 3))
	s.set("v1alpha1/initializerconfigurations", map[string]any{
		"metadata": map[string]any{"name": "i"}, "initializers": []any{map[string]any{"name": "x.example.com"}},
	})
	s.answer("v1alpha1/externaladmissionhookconfigurations", http.StatusForbidden)

	first, err := reader.Read(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if first.Unchanged || first.Version == "" || first.Revision != "99" {
		t.Errorf("first read: %+v", first)
	}
	if diff := cmp.Diff([]string{registration.ExternalKind}, first.Disabled); diff != "" {
		t.Errorf("S11.12 disabled (-want +got):\n%s", diff)
	}
	snap := Compile(first)
	if hooks := snap.Entries(registration.Validating); len(hooks) != 1 || hooks[0].Timeout != 3*time.Second || len(snap.Entries(registration.Initializing)) != 1 {
		t.Errorf("S9.15 hooks %v, initializers %v, problems %v", names(hooks), snap.Entries(registration.Initializing), snap.Problems)
	}
	s.mu.Lock()
	for _, q := range s.mu.queries {
		if strings.Contains(q, "resourceVersion") {
			t.Errorf("S11.8 the list is not consistent: %q", q)
		}
	}
	s.mu.Unlock()

	again, err := reader.Read(t.Context(), first.Version)
	if err != nil || !again.Unchanged || again.Objects != nil || again.Revision != "106" {
		t.Errorf("second read: %+v, %v", again, err)
	}
	s.set("v1/validatingwebhookconfigurations", webhookItem("v", 4))
	changed, err := reader.Read(t.Context(), first.Version)
	if err != nil || changed.Unchanged || changed.Version == first.Version || len(changed.Objects) != 2 {
		t.Errorf("third read: %+v, %v", changed, err)
	}
}

func TestClientReaderFails(t *testing.T) {
	s, reader := serving(t)
	s.answer("v1/mutatingwebhookconfigurations", http.StatusInternalServerError)
	if _, err := reader.Read(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "listing mutatingwebhookconfigurations: ") {
		t.Errorf("S11.9 got %v", err)
	}
	s.answer("v1/mutatingwebhookconfigurations", 0)
	s.set("v1/mutatingwebhookconfigurations", "text")
	if _, err := reader.Read(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "reading the list of mutatingwebhookconfigurations: item 0 is not an object") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := reader.Read(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
