package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

func TestVerdictIsDeterministic(t *testing.T) {
	broken := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", 500) }
	tests := []struct {
		name string
		// hooks are served as a, b, c, ...: an answer, or nil for a broken webhook.
		hooks  []hooktest.Answer
		ignore bool // the broken ones have policy Ignore
		want   *metav1.Status
	}{
		{name: "S6.4 none rejects", hooks: []hooktest.Answer{hooktest.Allow, hooktest.Allow}},
		{
			name:  "S6.4 one rejects: its own status",
			hooks: []hooktest.Answer{hooktest.Allow, hooktest.Deny(metav1.Status{Code: 403, Reason: "Forbidden", Message: "no"})},
			want:  &metav1.Status{Status: "Failure", Code: 403, Reason: "Forbidden", Message: `admission webhook "b.x.y" denied the request: no`},
		},
		{
			name: "S6.4 the first in order is returned, the others are causes, after its own details",
			hooks: []hooktest.Answer{
				hooktest.Allow,
				hooktest.Deny(metav1.Status{Code: 403, Message: "first", Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "own"}}}}),
				hooktest.Deny(metav1.Status{Message: "second"}),
				hooktest.Deny(metav1.Status{}),
			},
			want: &metav1.Status{
				Status: "Failure", Code: 403, Message: `admission webhook "b.x.y" denied the request: first`,
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
					{Message: "own"},
					{Type: "AdmissionWebhookDenied", Message: `admission webhook "c.x.y" denied the request: second`},
					{Type: "AdmissionWebhookDenied", Message: `admission webhook "d.x.y" denied the request without explanation`},
				}},
			},
		},
		{
			name:   "S7.3 a failure is ignored",
			hooks:  []hooktest.Answer{nil, hooktest.Deny(metav1.Status{Message: "no"})},
			ignore: true,
			want:   &metav1.Status{Status: "Failure", Code: 400, Message: `admission webhook "b.x.y" denied the request: no`},
		},
	}
	for _, source := range []registration.Source{registration.Validating, registration.External} {
		for _, tt := range tests {
			t.Run(source.String()+" "+tt.name, func(t *testing.T) {
				f := newFixture(t)
				// All calls begin before the first one may answer, and they answer in reverse
				// order.
				var all sync.WaitGroup
				all.Add(len(tt.hooks))
				done := make([]chan struct{}, len(tt.hooks)+1)
				for i := range done {
					done[i] = make(chan struct{})
				}
				close(done[len(tt.hooks)])
				var steps []plan.Candidate
				for i, a := range tt.hooks {
					path := string(rune('a' + i))
					serve := broken
					if a != nil {
						serve = inVersion(source, a)
					}
					f.Serve(path, func(w http.ResponseWriter, r *http.Request) {
						all.Done()
						all.Wait()
						<-done[i+1]
						serve(w, r)
						close(done[i])
					})
					var edit []func(*registration.Entry)
					if tt.ignore {
						edit = append(edit, ignore)
					}
					steps = append(steps, f.hook(source, path+".x.y", edit...))
				}
				d := f.dispatcher(t, source)
				err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false), numbered(steps...))
				if diff := cmp.Diff(tt.want, status(err)); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
				if got := len(f.traces[0].Calls); got != len(tt.hooks) {
					t.Errorf("S6.3 %d calls are on record, want %d", got, len(tt.hooks))
				}
			})
		}
	}
}

// inVersion returns a webhook with an answer, in the version of the source's reviews.
func inVersion(source registration.Source, a hooktest.Answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if source == registration.External {
			response := a(r, nil)
			result, _ := json.Marshal(response.Result)
			fmt.Fprintf(w, `{"status":{"allowed":%v,"status":%s}}`, response.Allowed, result)
			return
		}
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		response := a(r, review.Request)
		response.UID = review.Request.UID
		review.Request, review.Response = nil, response
		json.NewEncoder(w).Encode(&review)
	}
}

func TestValidatingHooksCannotPatch(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Patch(`[{"op":"add","path":"/x","value":1}]`))
	d := f.dispatcher(t, registration.Validating)
	err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false), numbered(f.hook(registration.Validating, "a.x.y")))
	if s := status(err); s == nil || !strings.HasPrefix(s.Message, `Internal error occurred: failed calling webhook "a.x.y": received invalid webhook response: validating webhook may not return response.patch`) {
		t.Errorf("S4.9 got %v", err)
	}
}

func TestObjectsAreSharedByValidatingHooks(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Allow)
	var steps []plan.Candidate
	for i := range 6 {
		s := f.hook(registration.Validating, "a.x.y")
		if i%2 == 1 {
			s.Kind = widgetV2
		}
		steps = append(steps, s)
	}
	d := f.dispatcher(t, registration.Validating)
	if err := f.run(t.Context(), d, attributes(admission.Update, widget(t, ""), widget(t, ""), false), numbered(steps...)); err != nil {
		t.Fatal(err)
	}
	if f.scheme.conversions != 2 {
		t.Errorf("S6.5 got %d conversions, want one of the object and one of the old object", f.scheme.conversions)
	}
}

func TestAMatchingErrorStopsBeforeAnyCall(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Allow)
	b := f.hook(registration.Validating, "b.x.y", ignore)
	b.Kind = widgetV2
	d := f.dispatcher(t, registration.Validating)
	object := widget(t, `"broken":true`)
	err := f.run(t.Context(), d, attributes(admission.Create, object, nil, false), numbered(f.hook(registration.Validating, "a.x.y"), b))
	if s := status(err); s == nil || s.Code != 500 || s.Reason != "InternalError" {
		t.Errorf("S2.27 got %v", err)
	}
	if len(f.Requests("a")) != 0 {
		t.Error("S6.1 a hook was called")
	}
}

func TestTheRequestIsOverBeforeTheCalls(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Allow)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := f.dispatcher(t, registration.Validating)
	err := f.run(ctx, d, attributes(admission.Create, widget(t, ""), nil, false), numbered(f.hook(registration.Validating, "a.x.y", ignore)))
	want := &metav1.Status{Status: "Failure", Code: 504, Reason: "Timeout", Message: "Timeout: request did not complete within requested timeout", Details: &metav1.StatusDetails{}}
	if diff := cmp.Diff(want, status(err)); diff != "" {
		t.Errorf("S6.2 status (-want +got):\n%s", diff)
	}
	if len(f.Requests("a")) != 0 {
		t.Error("S6.2 the hook was called")
	}
}

func TestTheClientLeavesDuringValidatingCalls(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.Answer("a", func(r *http.Request, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		cancel()
		<-r.Context().Done()
		return &admissionv1.AdmissionResponse{Allowed: true}
	})
	d := f.dispatcher(t, registration.Validating)
	if err := f.run(ctx, d, attributes(admission.Create, widget(t, ""), nil, false), numbered(f.hook(registration.Validating, "a.x.y", ignore))); err != nil {
		t.Errorf("S7.9 got %v", err)
	}
	if c := f.traces[0].Calls[0]; !c.ClientGone || !c.Ignored {
		t.Errorf("S7.10 the record says %s", c.Entry.String())
	}
}

// panicking is a Caller with a bug.
type panicking struct{}

func (panicking) Call(context.Context, *call.Invocation) (*review.Response, *call.Error) {
	panic("of a sudden")
}

func TestPanicsFailTheCallOnly(t *testing.T) {
	for _, source := range []registration.Source{registration.Mutating, registration.Validating, registration.External} {
		for _, policy := range []registration.FailurePolicy{registration.Fail, registration.Ignore} {
			t.Run(source.String()+" "+string(policy), func(t *testing.T) {
				f := newFixture(t)
				d := f.dispatcher(t, source, func(o *Options) { o.Caller = panicking{} })
				step := f.hook(source, "a.x.y", func(h *registration.Entry) { h.FailurePolicy = policy })
				err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false), numbered(step, step))
				c := f.traces[0].Calls[0]
				if c.Panic == nil || len(c.Stack) == 0 || c.Verdict != trace.Failed {
					t.Errorf("the record says %s", c.Entry.String())
				}
				if policy == registration.Ignore {
					if err != nil {
						t.Errorf("S7.12 got %v", err)
					}
					return
				}
				want := map[registration.Source]string{
					registration.Mutating:   "Internal error occurred: MutatingAdmissionWebhook/a.x.y has panicked: of a sudden",
					registration.Validating: "Internal error occurred: ValidatingAdmissionWebhook/a.x.y has panicked: of a sudden",
					registration.External:   "Internal error occurred: GenericAdmissionWebhook/a.x.y has panicked: of a sudden",
				}[source]
				if s := status(err); s == nil || s.Code != 500 || !strings.HasPrefix(s.Message, want) {
					t.Errorf("S7.12 got %v", err)
				}
			})
		}
	}
}

func TestSideData(t *testing.T) {
	f := newFixture(t)
	data := func(allowed bool) hooktest.Answer {
		return func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Allowed: allowed, Warnings: []string{"w"}, AuditAnnotations: map[string]string{"k": "v"}}
		}
	}
	f.Answer("allowed", data(true))
	f.Answer("denied", data(false))
	f.Answer("late", func(r *http.Request, req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		response := hooktest.Patch(`[{"op":"remove","path":"/absent"}]`)(r, req)
		response.Warnings = []string{"w"}
		return response
	})
	f.Serve("bad", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"other","allowed":true,"warnings":["w"]}}`))
	})
	d := f.dispatcher(t, registration.Mutating)
	for path, want := range map[string]int{"allowed": 1, "denied": 1, "late": 1, "bad": 0} {
		f.traces = nil
		f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false), numbered(f.hook(registration.Mutating, path+".x.y")))
		if got := len(f.traces[0].Calls[0].Warnings); got != want {
			t.Errorf("S4.20 %s: got %d warnings, want %d", path, got, want)
		}
	}
}
