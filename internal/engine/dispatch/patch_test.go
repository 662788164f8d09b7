package dispatch

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

// A patch is applied as long as its webhook may use the request's time: with Ignore, the request
// continues without the patch while there is time to finish it (S5.34, S7.8).
func TestPatchesEndInTime(t *testing.T) {
	const whole = 10 * time.Second
	for name, tt := range map[string]struct {
		edit []func(*registration.Entry)
		// left is the remaining time of the request when the patch arrives.
		left time.Duration
		want trace.Verdict
	}{
		"Ignore, enough time":                    {[]func(*registration.Entry){ignore}, time.Second, trace.Allowed},
		"Ignore, only the time for what follows": {[]func(*registration.Entry){ignore}, 700 * time.Millisecond, trace.Failed},
		"Fail, the same time":                    {nil, 700 * time.Millisecond, trace.Allowed},
		"Fail, only the time to say so":          {nil, 90 * time.Millisecond, trace.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixtureInBubble(t)
				ctx, cancel := context.WithTimeout(t.Context(), whole)
				defer cancel()
				step := f.hook(registration.Mutating, "a.x.y", tt.edit...)
				a := attributes(admission.Create, widget(t, ""), nil, false)
				r := &run{
					Dispatcher: f.dispatcher(t, registration.Mutating), a: a, request: requestOf(a), steps: []plan.Candidate{step},
					objects: objects.New(a, f.scheme.interfaces()), budget: newBudget(ctx, registration.Mutating, time.Now()),
				}
				r.share = &remembered(a.GetReinvocationContext(), "p").share
				to, err := r.prepare(&step)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(whole - tt.left)
				c := r.record(&step, 0)
				rejection := r.patch(ctx, to, &c, &review.Response{
					Allowed: true, PatchType: review.PatchTypeJSONPatch, Patch: []byte(`[{"op":"add","path":"/size","value":1}]`),
				}, 0)
				if c.Verdict != tt.want {
					t.Fatalf("%s: %v, want %s", c.Verdict, c.Err, tt.want)
				}
				if rejected := judge(&step, &c, rejection); tt.want == trace.Failed {
					if c.Class != "PatchFailed" || c.Reason != plan.OutOfTime.String() || c.Ignored != step.Forgives() || (rejected == nil) != step.Forgives() {
						t.Errorf("class %s, reason %s, ignored %v, rejection %v", c.Class, c.Reason, c.Ignored, rejected)
					}
					if s := rejection.Status(); s.Code != http.StatusGatewayTimeout || !strings.Contains(s.Message, `"a.x.y" returned a patch that could not be applied`) || !strings.Contains(s.Message, "no result within") {
						t.Errorf("%d %s", s.Code, s.Message)
					}
				}
			})
		})
	}
}

// The memory for answers and their patches is released at the end of the request, not before
// (S4.22).
func TestAnswersTakeMemoryUntilTheRequestIsOver(t *testing.T) {
	// Two such answers exceed the memory for the answers of one server.
	long := strings.Repeat("x", 12<<20)
	for _, source := range []registration.Source{registration.Mutating, registration.Validating} {
		t.Run(source.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixtureInBubble(t)
				f.Answer("a", func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					return &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"long": long}}
				})
				d, steps := f.dispatcher(t, source), numbered(f.hook(source, "a.x.y", ignore))
				request := func() (end context.CancelFunc) {
					ctx, cancel := context.WithCancel(t.Context())
					if err := f.run(ctx, d, attributes(admission.Create, widget(t, ""), nil, false), steps); err != nil {
						t.Error(err)
					}
					return cancel
				}
				first := request()
				second := request()
				first()
				synctest.Wait()
				third := request()
				second()
				third()
				var got []string
				for _, run := range f.traces {
					got = append(got, run.Calls[0].Class)
				}
				if diff := cmp.Diff([]string{"", "NoRoom", ""}, got); diff != "" {
					t.Errorf("classes of the calls (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A patch that needs more memory than is available fails before it is decoded; the request is
// rejected, with an error that names the webhook and asks to retry, or continues without the patch
// (S4.22).
func TestPatchesThatNeedTooMuchMemory(t *testing.T) {
	f := newFixture(t)
	f.Answer("a", hooktest.Patch(`[{"op":"add","path":"/x","value":[`+strings.Repeat("{},", 2<<20)+`{}]}]`))
	for _, policy := range []registration.FailurePolicy{registration.Fail, registration.Ignore} {
		object := widget(t, "")
		err := f.run(t.Context(), f.dispatcher(t, registration.Mutating), attributes(admission.Create, object, nil, false),
			numbered(f.hook(registration.Mutating, "a.x.y", func(h *registration.Entry) { h.FailurePolicy = policy })))
		if _, there := object.Object["x"]; there {
			t.Errorf("%s: the patch was applied", policy)
		}
		s := status(err)
		if policy == registration.Ignore {
			if err != nil {
				t.Errorf("%s: %v", policy, err)
			}
			continue
		}
		if s == nil || s.Code != http.StatusInternalServerError || s.Reason != metav1.StatusReasonInternalError || s.Details.RetryAfterSeconds != 1 ||
			!strings.Contains(s.Message, `failed calling webhook "a.x.y": there is no memory for the answer`) {
			t.Errorf("%s: %+v", policy, s)
		}
	}
}
