package auditlog

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

var update = flag.Bool("update", false, "rewrite the records in testdata")

// record returns the record of a trace in the form that a server serves.
func record(t *trace.Trace) *trace.Record {
	r := t.Record(trace.RecordOptions{})
	return &r
}

// read returns the latest trace of each request, by ID.
func read(c *Converter, events []string) map[string]*trace.Record {
	found := map[string]*trace.Record{}
	for i, e := range events {
		if t, _ := c.Add([]byte(e), fmt.Sprintf("audit.log:%d", i+1)); t != nil {
			found[t.ID] = record(t)
		}
	}
	for _, t := range c.Unanswered(time.Time{}) {
		found[t.ID] = record(t)
	}
	return found
}

// S30.1, S30.2, S30.3, S30.4, S30.5, S30.6, S30.8 and S30.10: the events of a log are converted to traces.
func TestRecordsOfEvents(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var events []string
			var w *offline.World
			var want *txtar.File
			for i := range archive.Files {
				switch f := &archive.Files[i]; f.Name {
				case "events":
					events = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
				case "want":
					want = f
				default:
					path := filepath.Join(t.TempDir(), f.Name)
					if err := os.WriteFile(path, f.Data, 0o600); err != nil {
						t.Fatal(err)
					}
					if w, err = offline.Read([]string{path}); err != nil {
						t.Fatal(err)
					}
					w.Registrations.Kubernetes = true
				}
			}
			found := read(NewConverter(NewCluster(w)), events)
			var got bytes.Buffer
			for _, r := range slices.SortedFunc(maps.Values(found), func(a, b *trace.Record) int { return a.Start.Compare(b.Start.Time) }) {
				if err := view.OfTrace(r, view.Links{}).Format(&got, "text"); err != nil {
					t.Fatal(err)
				}
				got.WriteByte('\n')
			}
			if *update {
				want.Data = got.Bytes()
				if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got.String() != string(want.Data) {
				t.Errorf("got:\n%s\nwant:\n%s", got.String(), want.Data)
			}
		})
	}
}

// of returns an event of a request that was rejected with a status.
func of(resource, group, object string, s metav1.Status) *event {
	e := &event{}
	e.Verb, e.Stage, e.ResponseStatus = "create", auditv1.StageResponseComplete, &s
	e.ObjectRef = &auditv1.ObjectReference{Resource: resource, APIGroup: group, APIVersion: "v1", Namespace: "shop", Name: object}
	return e
}

// S30.4: the cause of a rejection is parsed from unambiguous messages only.
func TestWhoRejected(t *testing.T) {
	for _, c := range []struct {
		claim    string
		resource string
		group    string
		object   string
		status   metav1.Status
		want     cause
	}{
		{"a webhook denies", "pods", "", "web", metav1.Status{Code: 400, Message: `admission webhook "a.b.c" denied the request: no`}, cause{webhook: "a.b.c", verdict: trace.Denied}},
		{"a webhook gives no reason", "pods", "", "web", metav1.Status{Code: 403, Message: `admission webhook "a.b.c" denied the request without explanation`}, cause{webhook: "a.b.c", verdict: trace.Denied}},
		{"a webhook supports no dry run", "pods", "", "web", metav1.Status{Code: 400, Message: `admission webhook "a.b.c" does not support dry run`}, cause{webhook: "a.b.c", verdict: trace.Refused}},
		{"a webhook fails", "pods", "", "web", metav1.Status{Code: 500, Message: `Internal error occurred: failed calling webhook "a.b.c": EOF`}, cause{webhook: "a.b.c", verdict: trace.Failed}},
		{"a webhook speaks of another one", "pods", "", "web", metav1.Status{Code: 400, Message: `admission webhook "a.b.c" denied the request: admission webhook "d.e.f" denied the request: no`}, cause{webhook: "a.b.c", verdict: trace.Denied}},
		{"a webhook is quoted in the name of an object", "pods", "", `x" is forbidden: violates PodSecurity "`, metav1.Status{Code: 409, Reason: metav1.StatusReasonAlreadyExists, Message: `pods "x\" is forbidden: violates PodSecurity \"" already exists`}, cause{by: "Storage"}},
		{"a policy denies", "deployments", "apps", "web", metav1.Status{Code: 422, Message: "deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: line\nline"}, cause{by: "ValidatingAdmissionPolicy", policy: "p", binding: "b", message: "line\nline"}},
		{"a policy without a binding denies", "pods", "", "web", metav1.Status{Code: 403, Message: `pods "web" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no`}, cause{by: "ValidatingAdmissionPolicy", policy: "p", message: "no"}},
		{"a mutating policy fails", "pods", "", "web", metav1.Status{Code: 403, Message: `policy 'p' with binding 'b' denied request: no`}, cause{by: "MutatingAdmissionPolicy", policy: "p", binding: "b", message: "no"}},
		{"pod security", "pods", "", "web", metav1.Status{Code: 403, Message: `pods "web" is forbidden: violates PodSecurity "baseline:latest": host namespaces`}, cause{by: "PodSecurity"}},
		{"a quota", "pods", "", "web", metav1.Status{Code: 403, Message: `pods "web" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1`}, cause{by: "ResourceQuota"}},
		{"a limit", "pods", "", "web", metav1.Status{Code: 403, Message: `pods "web" is forbidden: [maximum memory usage per Container is 1Gi, but limit is 2Gi, maximum cpu usage]`}, cause{by: "LimitRanger"}},
		{"no service account", "pods", "", "web", metav1.Status{Code: 403, Message: `pods "web" is forbidden: error looking up service account shop/default: serviceaccount "default" not found`}, cause{by: "ServiceAccount"}},
		{"no namespace", "pods", "", "web", metav1.Status{Code: 404, Message: `namespaces "shop" not found`}, cause{by: "NamespaceLifecycle"}},
		{"another namespace", "pods", "", "web", metav1.Status{Code: 404, Message: `namespaces "other" not found`}, cause{by: unknown}},
		{"rights", "pods", "", "web", metav1.Status{Code: 403, Message: `pods "web" is forbidden: User "u" cannot create resource "pods"`}, cause{by: "Authorization"}},
		{"validation", "pods", "", "web", metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: `Pod "web" is invalid: spec.containers: Required value`}, cause{by: "Validation"}},
		{"another write came first", "pods", "", "web", metav1.Status{Code: 409, Reason: metav1.StatusReasonConflict, Message: `Operation cannot be fulfilled on pods "web": modified`}, cause{by: "Storage"}},
		{"no object", "pods", "", "web", metav1.Status{Code: 404, Message: `pods "web" not found`, Details: &metav1.StatusDetails{Name: "web", Kind: "pods"}}, cause{by: "Storage"}},
		{"another resource is forbidden", "pods", "", "web", metav1.Status{Code: 403, Message: `configmaps "web" is forbidden: violates PodSecurity "baseline:latest"`}, cause{by: unknown}},
		{"a plugin that nobody knows", "pods", "", "web", metav1.Status{Code: 403, Message: `pods "web" is forbidden: because`}, cause{by: unknown}},
		{"a body that cannot be read", "pods", "", "", metav1.Status{Code: 400, Reason: metav1.StatusReasonBadRequest, Message: `the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input ({"kind":)`}, cause{by: "Decoding"}},
		{"the time is over", "pods", "", "web", metav1.Status{Code: 504, Message: "Timeout: request did not complete within requested timeout"}, cause{by: unknown}},
		{"nothing rejects", "pods", "", "web", metav1.Status{Code: 201}, cause{}},
	} {
		if got := of(c.resource, c.group, c.object, c.status).rejection(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.claim, got, c.want)
		}
	}
}

// The head of an object identifies it, at any position in the event.
func TestObjectsOfEvents(t *testing.T) {
	const large = `"spec":{"kind":"Other","metadata":{"name":"other"},"list":[{"items":[]}]}`
	for _, c := range []struct{ claim, object, want string }{
		{"as the server writes it", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","uid":"u"},` + large + `}`, "v1/Pod a u"},
		{"the head is at the end", `{` + large + `,"metadata":{"uid":"u","name":"a"},"kind":"Pod","apiVersion":"v1"}`, "v1/Pod a u"},
		{"no metadata", `{"kind":"Pod","apiVersion":"v1"}`, "v1/Pod  "},
		{"metadata of another form", `{"kind":"Pod","apiVersion":"v1","metadata":[]}`, ""},
		{"no kind", `{"metadata":{"name":"a"}}`, ""},
		{"a status", `{"kind":"Status","apiVersion":"v1","metadata":{}}`, ""},
		{"a list", `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`, ""},
		{"an object whose kind ends like a list", `{"kind":"AllowList","apiVersion":"v1","metadata":{"name":"a","uid":"u"},"spec":{}}`, "v1/AllowList a u"},
		{"metadata alone", `{"kind":"PartialObjectMetadata","apiVersion":"v1","metadata":{"name":"a"}}`, ""},
		{"no object", `[{"kind":"Pod"}]`, ""},
	} {
		got := ""
		if s := head(&runtime.Unknown{Raw: []byte(c.object)}); s != nil {
			got = fmt.Sprintf("%s/%s %s %s", s.APIVersion, s.Kind, s.Metadata.Name, s.Metadata.UID)
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.claim, got, c.want)
		}
	}
}

// BenchmarkEvents converts events with two objects of 4 KiB, the first of which a webhook changed.
func BenchmarkEvents(b *testing.B) {
	object := `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"web","namespace":"shop"},"spec":{"template":{"spec":{"containers":[` +
		strings.Repeat(`{"name":"c","image":"example.com/c:1","env":[{"name":"LEVEL","value":"info"}],"resources":{"limits":{"memory":"128Mi"}}},`, 32) + `{"name":"d"}]}}}}`
	c := NewConverter(NewCluster(nil))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		event := fmt.Appendf(nil, `{"level":"RequestResponse","auditID":"%d","stage":"ResponseComplete","requestURI":"/apis/apps/v1/namespaces/shop/deployments","verb":"create","user":{"username":"anna"},
			"objectRef":{"resource":"deployments","namespace":"shop","name":"web","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201},"requestObject":%s,"responseObject":%s,"annotations":{"authorization.k8s.io/decision":"allow",
			"mutation.webhook.admission.k8s.io/round_0_index_0":"{\"configuration\":\"sidecars\",\"webhook\":\"inject.example.com\",\"mutated\":true}",
			"patch.webhook.admission.k8s.io/round_0_index_0":"{\"configuration\":\"sidecars\",\"webhook\":\"inject.example.com\",\"patch\":[{\"op\":\"add\",\"path\":\"/metadata/labels\",\"value\":{\"injected\":\"yes\"}}],\"patchType\":\"JSONPatch\"}"}}`, i, object, object)
		if t, why := c.Add(event, "log"); t == nil {
			b.Fatal(why)
		}
	}
}

// recorded returns the events of the files in testdata.
func recorded(t testing.TB) (events []string) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			if f.Name == "events" {
				events = append(events, strings.Split(strings.TrimSpace(string(f.Data)), "\n")...)
			}
		}
	}
	return events
}

// S30.7: order and repetition of events make no difference.
func TestOrderAndRepetitionMakeNoDifference(t *testing.T) {
	events := recorded(t)
	for _, e := range events {
		// The same request at other stages, at another level, and truncated.
		events = append(events, strings.Replace(e, `"stage":"ResponseComplete"`, `"stage":"RequestReceived"`, 1), strings.Replace(e, `"stage":"ResponseComplete"`, `"stage":"ResponseStarted"`, 1),
			strings.Replace(e, `"level":"RequestResponse"`, `"level":"Metadata"`, 1), strings.Replace(e, `"annotations":{`, `"annotations":{"audit.k8s.io/truncated":"true",`, 1))
	}
	shown := func(found map[string]*trace.Record) string {
		for _, r := range found {
			r.Audit.Source = ""
		}
		data, err := json.Marshal(found)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	want := shown(read(NewConverter(NewCluster(nil)), events))
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		mixed := slices.Clone(events)
		for range random.IntN(len(events)) {
			mixed = append(mixed, events[random.IntN(len(events))])
		}
		random.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		if got := shown(read(NewConverter(NewCluster(nil)), mixed)); got != want {
			t.Fatalf("got:\n%s\nwant:\n%s", got, want)
		}
	}
}

// S30.7: a Converter remembers a bounded number of requests.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	c := NewConverter(NewCluster(nil))
	c.remembered = 10
	received := recorded(t)
	i := slices.IndexFunc(received, func(e string) bool { return strings.Contains(e, `"stage":"RequestReceived"`) })
	for n := range 100 {
		c.Add([]byte(strings.Replace(received[i], `"auditID":"b1"`, fmt.Sprintf(`"auditID":"c%d"`, n), 1)), "")
	}
	waiting := c.Unanswered(time.Time{})
	if n := len(waiting); n != 10 || len(c.seen) != 10 || c.latest.Len() != 10 {
		t.Fatalf("%d waiting, %d seen, %d in order, want 10 of each", n, len(c.seen), c.latest.Len())
	}
	if got := waiting[9].AuditID; got != "c99" {
		t.Errorf("the latest one is %s, want c99", got)
	}
	if n := len(c.Unanswered(time.Time{})); n != 0 {
		t.Errorf("%d are returned twice", n)
	}
}

// S30.7: the memory of traces that wait for the end of their request is bounded. A trace beyond the limit is returned
// at once.
func TestWhatWaitsIsBounded(t *testing.T) {
	received := recorded(t)
	begin := received[slices.IndexFunc(received, func(e string) bool { return strings.Contains(e, `"stage":"RequestReceived"`) })]
	c := NewConverter(NewCluster(nil))
	named := func(n int) []byte {
		return []byte(strings.Replace(begin, `"auditID":"b1"`, fmt.Sprintf(`"auditID":"c%d"`, n), 1))
	}
	if got, _ := c.Add(named(0), ""); got != nil || c.waiting == 0 {
		t.Fatalf("got %v, %d bytes wait", got, c.waiting)
	}
	c.room = 3 * c.waiting
	at := 0
	for n := 1; n < 100; n++ {
		if got, _ := c.Add(named(n), ""); got != nil {
			at++
		}
	}
	if n := len(c.Unanswered(time.Time{})); n != 3 || at != 97 || c.waiting != 0 {
		t.Errorf("%d waited and %d were traces at once, %d bytes are left", n, at, c.waiting)
	}
	if got, _ := c.Add([]byte(strings.Replace(string(named(50)), `"stage":"RequestReceived"`, `"stage":"ResponseComplete"`, 1)), ""); got == nil {
		t.Error("the end of a request that did not wait is no trace")
	}
}

// For every log, the traces are bounded, and can be drawn.
func FuzzAdd(f *testing.F) {
	for _, e := range recorded(f) {
		f.Add([]byte(e))
	}
	f.Add([]byte(`{"verb":"create","objectRef":{"resource":"pods"},"annotations":{"mutation.webhook.admission.k8s.io/round_1_index_999999":"null","patch.webhook.admission.k8s.io/round_0_index_1":"{\"patch\":[{\"op\":\"copy\"}],\"patchType\":\"JSONPatch\"}"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := NewConverter(NewCluster(nil))
		got, _ := c.Add(data, "audit.log:1")
		for _, one := range append(c.Unanswered(time.Time{}), got) {
			if one == nil {
				continue
			}
			r := record(one)
			if _, err := json.Marshal(r); err != nil {
				t.Fatal(err)
			}
			if err := view.OfTrace(r, view.Links{}).Format(&bytes.Buffer{}, "text"); err != nil {
				t.Fatal(err)
			}
			if size := one.Size(); size > 20*len(data)+1<<16 {
				t.Errorf("%d bytes of %d", size, len(data))
			}
		}
	})
}

// S30.3: a call has the index of its webhook in its configuration if the registrations have it, and -1 otherwise. A
// configuration that the log does not name is derived, while the call itself is from the log.
func TestThePlaceOfAWebhook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registrations.yaml")
	const hook = "- {name: %s.example.com, admissionReviewVersions: [v1], sideEffects: None, clientConfig: {url: 'https://127.0.0.1:1/'}, rules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}\n"
	text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
	for _, kind := range []string{"Mutating", "Validating"} {
		text += fmt.Sprintf("---\napiVersion: admissionregistration.k8s.io/v1\nkind: %sWebhookConfiguration\nmetadata: {name: %s}\nwebhooks:\n", kind, strings.ToLower(kind)) +
			fmt.Sprintf(hook, strings.ToLower(kind[:1])+"0") + fmt.Sprintf(hook, strings.ToLower(kind[:1])+"1")
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := offline.Read([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	w.Registrations.Kubernetes = true
	const event = `{"level":"Metadata","auditID":"a","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/configmaps","verb":"create","user":{"username":"anna"},
		"objectRef":{"resource":"configmaps","namespace":"shop","name":"web","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201},"requestReceivedTimestamp":"2026-11-28T01:22:06.000000Z","annotations":{
		"mutation.webhook.admission.k8s.io/round_0_index_4":"{\"configuration\":\"mutating\",\"webhook\":\"m0.example.com\",\"mutated\":false}",
		"mutation.webhook.admission.k8s.io/round_0_index_5":"{\"configuration\":\"mutating\",\"webhook\":\"m1.example.com\",\"mutated\":true}",
		"failed-open.validating.webhook.admission.k8s.io/round_0_index_1":"v1.example.com"}}`
	for _, c := range []struct {
		world Cluster
		want  string
	}{
		{NewCluster(nil), "mutating/m0.example.com -1 written  | mutating/m1.example.com -1 written  | v1.example.com -1 written  | "},
		{NewCluster(w), "mutating/m0.example.com 0 written  | mutating/m1.example.com 1 written  | validating/v1.example.com 1 written derived | validating/v0.example.com 0 derived  | "},
	} {
		got := ""
		for _, r := range read(NewConverter(c.world), []string{event}) {
			for call := range r.Calls() {
				got += fmt.Sprintf("%s %d %s %s | ", &call.Webhook, call.Webhook.Index, call.Known, call.WebhookKnown)
			}
		}
		if got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
