package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

var update = flag.Bool("update", false, "rewrite the expected records")

// whole returns a trace with a value in every field, for a request for a resource.
func whole(resource schema.GroupVersionResource, kind string) *Trace {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	entry := func(source registration.Source, name string) registration.Origin {
		return registration.Origin{Source: source, Configuration: "config", Index: 1, Name: name}
	}
	gvk := schema.GroupVersionKind{Version: "v1", Kind: kind}
	denial := apierrors.NewForbidden(schema.GroupResource{Resource: resource.Resource}, "web", errors.New("no hunter2 here"))
	request := Request{
		Operation: "UPDATE", Resource: resource, Subresource: "status", Kind: gvk,
		Namespace: "shop", Name: "web", User: "jane", DryRun: true,
	}
	call := Call{
		FailurePolicy: registration.Ignore, Rule: 2, Kind: gvk, Resource: resource, Subresource: "status", Equivalent: true,
		ReviewVersion: "v1", UID: "review", Start: at.Add(time.Millisecond), Latency: 2 * time.Millisecond,
		Turn: Ahead, Sent: true, Code: 200, Deprecated: []string{MissingSAN},
		// The webhook's forged members are ignored.
		Patch:   []byte(`[{"op":"add","path":"/data/password","value":"hunter2","field":"forged","was":"forged","wasBytes":1},{"op":"move","from":"/data/a~1b","path":"/metadata/labels/x"}]`),
		Edits:   []review.Edit{{Field: "data.password[name=hunter2]", Was: []byte(`"hunter2"`)}, {Field: "metadata.labels.x", WasBytes: review.MaxWas + 1}},
		Mutated: true, Warnings: []string{"hunter2 is short"}, AuditAnnotations: map[string]string{"saw": "hunter2"},
	}
	patched := call
	patched.Entry = entry(registration.Mutating, "patched.example.com")
	thrown := call
	thrown.Entry, thrown.Fate = entry(registration.Mutating, "thrown.example.com"), Superseded
	failed := Call{
		Entry: entry(registration.Mutating, "failed.example.com"), FailurePolicy: registration.Ignore, UID: "other", Start: at, Latency: time.Second,
		Sent: true, Verdict: Failed, Code: 500, Err: errors.New("answer hunter2 " + strings.Repeat("é", MaxText)), Class: "Response", Reason: "Busy", Ignored: true, ClientGone: true,
	}
	denied := Call{
		Entry: entry(registration.Validating, "denied.example.com"), FailurePolicy: registration.Fail, UID: "last", Start: at,
		Sent: true, Verdict: Denied, Code: 403, Err: denial,
	}
	t := &Trace{ID: "0123456789abcdef", Start: at}
	t.Note(Subject{Request: request, UID: "uid"})
	object := types.NamespacedName{Namespace: "shop", Name: "web"}
	t.Add(Step{Plugin: "NamespaceLifecycle", Object: object, Start: at, Latency: time.Microsecond})
	t.Add(Step{Plugin: registration.InitializersPlugin, Object: object, Start: at, Run: &Run{Request: request, Source: registration.Initializing, Pending: []string{"i.example.com"}}})
	t.Add((&Run{
		Request: request, Source: registration.Mutating, Round: 1, Revision: "7", ReadAt: at, Start: at, Latency: 4 * time.Millisecond,
		Calls: []Call{patched, failed}, Discarded: []Call{thrown},
		Conditions: []Condition{{Entry: entry(registration.Mutating, "excluded.example.com"), Latency: time.Microsecond, Errors: 1, Excluded: true, Err: errors.New("hunter2 is no number")}},
		Skips:      []Skip{{Entry: entry(registration.Mutating, "skipped.example.com"), Code: "Rules", Reason: "rules: none lists UPDATE"}},
	}).Step())
	t.Add((&Run{Request: request, Source: registration.Validating, Revision: "8", Start: at, Calls: []Call{denied}, Err: denial}).Step())
	t.mu.latency = 5 * time.Millisecond
	return t
}

// The form is a contract: fields are only added to these files.
func TestRecordsHaveAStableForm(t *testing.T) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	for name, c := range map[string]struct {
		trace   *Trace
		options RecordOptions
	}{
		"whole":    {whole(pods, "Pod"), RecordOptions{}},
		"redacted": {whole(pods, "Pod"), RecordOptions{RedactPatches: true}},
		"secret":   {whole(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret"), RecordOptions{}},
	} {
		t.Run(name, func(t *testing.T) {
			record := c.trace.Record(c.options)
			got, err := json.MarshalIndent(record, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			file := filepath.Join("testdata", "record", name+".json")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("the record is another (-want +got); fields are only ever added:\n%s", diff)
			}
			var back Record
			if err := json.Unmarshal(got, &back); err != nil {
				t.Fatal(err)
			}
			again, err := json.MarshalIndent(back, "", "  ")
			if err != nil || !bytes.Equal(append(again, '\n'), got) {
				t.Errorf("what is read back is another: %v\n%s", err, again)
			}
			var copied Record
			record.DeepCopyInto(&copied)
			if diff := cmp.Diff(record, copied); diff != "" {
				t.Errorf("the copy is another (-want +got):\n%s", diff)
			}
			secret := name == "secret"
			if leaks := bytes.Contains(got, []byte("hunter2")); leaks == secret {
				t.Errorf("the contents of the object are shown: %v", leaks)
			}
		})
	}
}

func TestOutcome(t *testing.T) {
	boom := errors.New("boom")
	run := func(err error, calls ...Call) Step {
		return (&Run{Source: registration.Validating, Calls: calls, Err: err}).Step()
	}
	for _, c := range []struct {
		name string
		step Step
		want Outcome
	}{
		{"allowed", run(nil, Call{}), OutcomeAllowed},
		{"ignored", run(nil, Call{Verdict: Failed, Ignored: true}), OutcomeFailedOpen},
		{"denied", run(boom, Call{Verdict: Denied}), OutcomeDenied},
		{"refused", run(boom, Call{Verdict: Refused}), OutcomeDenied},
		{"failed", run(boom, Call{Verdict: Failed}), OutcomeFailed},
		{"one ignored and another denies", run(boom, Call{Verdict: Failed, Ignored: true}, Call{Verdict: Denied}), OutcomeDenied},
		{"a plugin denies", Step{Err: apierrors.NewBadRequest("no")}, OutcomeDenied},
		{"a plugin fails", Step{Err: boom}, OutcomeFailed},
	} {
		tr := New()
		tr.Add(Step{})
		tr.Add(c.step)
		if got := tr.Outcome(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestWhatARequestIsAbout(t *testing.T) {
	note := func(names ...string) Subject {
		tr := New()
		for _, name := range names {
			tr.Note(Subject{Request: Request{Operation: "CREATE", Name: name}, UID: types.UID(name)})
		}
		return tr.Subject()
	}
	for _, c := range []struct {
		name  string
		noted []string
		want  string
	}{
		{"a name that is generated", []string{"", "web-1", "web-1"}, "web-1"},
		{"one object", []string{"web", "web"}, "web"},
		{"several objects", []string{"", "a", "a", "b", "c"}, ""},
	} {
		if got := note(c.noted...); got.Name != c.want || string(got.UID) != c.want || got.Operation != "CREATE" {
			t.Errorf("%s: got %+v", c.name, got)
		}
	}
	tr := New()
	tr.Add((&Run{Request: Request{Name: "web"}}).Step())
	if got := tr.Subject(); got.Name != "web" {
		t.Errorf("a trace without a note is about %+v", got)
	}
}
