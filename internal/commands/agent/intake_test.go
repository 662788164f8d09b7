package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/auditlog"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

const token = "token-of-the-api-server"

// newAgent returns an Agent without a cluster.
func newAgent() *Agent {
	return &Agent{
		converter: auditlog.NewConverter(auditlog.NewCluster(nil)), ring: traces.NewRing(8 << 20), queue: newQueue(maxQueued), token: []byte(token),
	}
}

// event returns an event of a request for a ConfigMap.
func event(id string) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":%q,"stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/configmaps","verb":"create","user":{"username":"anna"},"objectRef":{"resource":"configmaps","namespace":"shop","name":%q,"apiVersion":"v1"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-01-02T03:04:05.000000Z","stageTimestamp":"2026-01-02T03:04:05.100000Z"}`, id, id)
}

// eventList returns a request body of the API server's audit webhook backend.
func eventList(events ...string) string {
	return `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[` + strings.Join(events, ",") + `]}`
}

// kept returns the names of the objects whose traces are kept.
func (a *Agent) kept(t *testing.T) (names []string) {
	t.Helper()
	list, err := traces.NewStorage(a.ring, nil, trace.RecordOptions{}).List(t.Context(), &metainternalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range list.(*v1alpha1.AdmissionTraceList).Items {
		names = append(names, item.Request.Name)
	}
	return names
}

// S32.2 and S32.3: only the API server may send audit events, in bounded requests.
func TestEventsAreOfTheAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		token, method, body string
		code, events        int
	}{
		"S32.2: the API server":                {token: token, body: eventList(event("a"), event("b")), code: 200, events: 2},
		"S32.2: nobody":                        {body: eventList(event("a")), code: 401},
		"S32.2: somebody else":                 {token: "token-of-somebody-else!", body: eventList(event("a")), code: 401},
		"S32.2: a part of the token":           {token: token[:5], body: eventList(event("a")), code: 401},
		"another method":                       {token: token, method: http.MethodGet, code: 405},
		"no events":                            {token: token, body: eventList(), code: 200},
		"items are absent":                     {token: token, body: `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":null}`, code: 200},
		"another kind":                         {token: token, body: `{"kind":"PodList","apiVersion":"v1","items":[]}`, code: 400},
		"no JSON":                              {token: token, body: `<html>`, code: 400},
		"a part":                               {token: token, body: eventList(event("a"))[:300], code: 400},
		"items are no list":                    {token: token, body: `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":{}}`, code: 400},
		"S32.3: more events than are read":     {token: token, body: eventList(strings.Repeat("{},", maxEvents) + "{}"), code: 413},
		"S32.3: a larger body than is read":    {token: token, body: eventList(`{"verb":"` + strings.Repeat("x", maxBody) + `"}`), code: 413},
		"S32.3: an event that is not readable": {token: token, body: eventList(`7`, event("a")), code: 200, events: 2},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgent()
			server := httptest.NewServer(a.front(http.NotFoundHandler()))
			defer server.Close()
			method := http.MethodPost
			if tc.method != "" {
				method = tc.method
			}
			req, err := http.NewRequestWithContext(t.Context(), method, server.URL+Path, strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			if tc.token != "" {
				req.Header.Set("Authorization", "Bearer "+tc.token)
			}
			resp, err := server.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tc.code || bytes.Contains(text, []byte(token)) {
				t.Errorf("%d %s, want %d", resp.StatusCode, text, tc.code)
			}
			n := 0
			for _, b := range a.queue.batches {
				n += len(b.events)
			}
			if n != tc.events {
				t.Errorf("%d events are queued, want %d", n, tc.events)
			}
		})
	}
}

// S32.3: slow bodies block a bounded number of other requests, which the API server retries.
func TestFewBodiesAreReadAtATime(t *testing.T) {
	a := newAgent()
	server := httptest.NewServer(a.front(http.NotFoundHandler()))
	defer server.Close()
	send := func(body io.Reader) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+Path, body)
		if err != nil {
			return 0, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := server.Client().Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
			return 0, fmt.Errorf("%s without Retry-After", resp.Status)
		}
		return resp.StatusCode, nil
	}
	codes := make(chan int, maxReading)
	writers := make([]*io.PipeWriter, maxReading)
	for i := range writers {
		var r *io.PipeReader
		r, writers[i] = io.Pipe()
		go func() {
			code, err := send(r)
			if err != nil {
				t.Error(err)
			}
			codes <- code
		}()
		// The writes return while the handler reads the body.
		if _, err := io.WriteString(writers[i], eventList()[:20]); err != nil {
			t.Fatal(err)
		}
	}
	// The last requests may not have reached the handler yet.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		code, err := send(strings.NewReader(eventList()))
		if err != nil {
			t.Fatal(err)
		}
		if code == http.StatusTooManyRequests {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%d: more than %d bodies are read at a time", code, maxReading)
		}
	}
	for _, w := range writers {
		if _, err := io.WriteString(w, eventList()[20:]); err != nil {
			t.Error(err)
		}
		w.Close()
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a slow body: %d", code)
		}
	}
	if code, err := send(strings.NewReader(eventList())); code != http.StatusOK || err != nil {
		t.Errorf("%d, %v when the others are read", code, err)
	}
}

// S32.3: the oldest events are dropped, and counted.
func TestTheOldestEventsAreDropped(t *testing.T) {
	q := newQueue(maxQueued)
	piece := jsontext.Value(strings.Repeat("x", maxQueued/4))
	sum := 0
	for i := range 10 {
		sum += q.add(batch{events: []jsontext.Value{piece}, source: fmt.Sprint(i), size: len(piece)})
	}
	if sum != 6 || q.size > maxQueued || len(q.batches) != 4 {
		t.Errorf("%d dropped, %d batches of %d bytes", sum, len(q.batches), q.size)
	}
	for want := 6; want < 10; want++ {
		if b, ok := q.next(t.Context()); !ok || b.source != fmt.Sprint(want) {
			t.Errorf("got %q %t, want %d", b.source, ok, want)
		}
	}
	if q.size != 0 {
		t.Errorf("%d bytes of none", q.size)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := q.next(ctx); ok {
		t.Error("an empty queue has something")
	}
}

// S32.1 and S32.8: events become traces, even if the end of their request was not seen.
func TestEventsBecomeTraces(t *testing.T) {
	a := newAgent()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.convert(ctx)
	}()
	a.queue.add(batch{events: []jsontext.Value{jsontext.Value(event("a")), jsontext.Value(event("a")), jsontext.Value(`7`)}, source: "audit webhook of 192.0.2.1", size: 1})
	a.queue.add(batch{events: []jsontext.Value{jsontext.Value(strings.Replace(event("b"), "ResponseComplete", "RequestReceived", 1))}, size: 1})
	for deadline := time.Now().Add(time.Minute); len(a.kept(t)) == 0 || !a.queue.empty(); {
		if time.Now().After(deadline) {
			t.Fatal("no trace is kept")
		}
	}
	cancel()
	<-ended
	if got := fmt.Sprint(a.kept(t)); got != "[a]" {
		t.Errorf("traces of %s, want [a]", got)
	}
	for range 2 {
		a.keepUnanswered(time.Now())
		if got := fmt.Sprint(a.kept(t)); got != "[a b]" {
			t.Errorf("traces of %s, want [a b]", got)
		}
	}
}

// S32.17 and S32.19: a trace includes facts derived from the registrations, and metrics count only the facts of
// the event.
func TestTracesAreDerived(t *testing.T) {
	const text = `{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: guards}
webhooks:
- {name: derived.example.com, admissionReviewVersions: [v1], sideEffects: None, clientConfig: {url: "https://127.0.0.1:1/"}, rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
`
	path := filepath.Join(t.TempDir(), "registrations.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := offline.Read([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	w.Registrations.Kubernetes = true
	a := newAgent()
	registerMetrics(a)
	derived := func() (names []string) {
		list, err := traces.NewStorage(a.ring, nil, trace.RecordOptions{}).List(t.Context(), &metainternalversion.ListOptions{FieldSelector: fields.ParseSelectorOrDie("webhook=derived.example.com")})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.(*v1alpha1.AdmissionTraceList).Items {
			names = append(names, item.Request.Name)
		}
		return names
	}
	for _, c := range []struct {
		world *offline.World
		name  string
	}{{nil, "a"}, {w.Still(w.Namespace), "b"}, {nil, "c"}} {
		a.converter.SetCluster(auditlog.NewCluster(c.world))
		if !a.take([]byte(event(c.name)), "log", false) {
			t.Fatal(c.name)
		}
	}
	if got := derived(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the webhook is in the traces %q", got)
	}
	counted, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range counted {
		if strings.Contains(family.String(), "derived.example.com") {
			t.Errorf("what is derived is counted: %s", family)
		}
	}
}

// empty reports whether the queue is empty.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.batches) == 0
}
