package dispatch

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

func TestBudget(t *testing.T) {
	const fail, ignore = registration.Fail, registration.Ignore
	const mutating, validating, external = registration.Mutating, registration.Validating, registration.External
	tests := []struct {
		name    string
		request time.Duration // 0: no deadline
		spent   time.Duration // of the request, before the call
		source  registration.Source
		hook    time.Duration
		policy  registration.FailurePolicy
		later   int
		want    time.Duration // 0: no deadline of its own
	}{
		{"S7.7 no deadline of the request", 0, 0, mutating, 10 * time.Second, ignore, 0, 0},
		{"S7.2 S7.7 Fail gets what the request has but for the time to say so", 10 * time.Second, 0, mutating, 20 * time.Second, fail, 6, 9900 * time.Millisecond},
		{"S7.2 S7.7 of little time, that is little", time.Second, 0, validating, 20 * time.Second, fail, 0, 950 * time.Millisecond},
		{"S3.3 so that the timeout sent is the same", 10 * time.Second, 2 * time.Second, mutating, 20 * time.Second, fail, 0, 7900 * time.Millisecond},
		{"S7.7 a shorter timeout of a Fail hook is not cut", 10 * time.Second, 0, mutating, 9 * time.Second, fail, 0, 10 * time.Second},
		{"S7.7 no deadline of the request, Fail", 0, 0, mutating, 10 * time.Second, fail, 0, 0},
		{"S3.3 Ignore leaves less than a second, so that the timeout sent is the same", 10 * time.Second, 0, mutating, 20 * time.Second, ignore, 0, 9200 * time.Millisecond},
		{"S3.3 also when time was spent before", 10 * time.Second, 2 * time.Second, mutating, 20 * time.Second, ignore, 0, 7200 * time.Millisecond},
		{"S3.3 a shorter timeout of its own is not cut", 10 * time.Second, 0, mutating, 5 * time.Second, ignore, 0, 10 * time.Second},
		{"hooks that come later get their part", 10 * time.Second, 0, mutating, 20 * time.Second, ignore, 4, 8400 * time.Millisecond},
		{"only the validating pass is to come", 10 * time.Second, 0, external, 20 * time.Second, ignore, 0, 9400 * time.Millisecond},
		{"only the write is to come", 10 * time.Second, 0, validating, 20 * time.Second, ignore, 0, 9600 * time.Millisecond},
		{"of little time, little is kept back", time.Second, 0, mutating, 20 * time.Second, ignore, 0, 800 * time.Millisecond},
		{"never more than half is kept back", 10 * time.Second, 0, mutating, 20 * time.Second, ignore, 100, 5 * time.Second},
		{"what is kept does not shrink with the time that is left", time.Second, 700 * time.Millisecond, mutating, 20 * time.Second, ignore, 0, 100 * time.Millisecond},
		{"nothing is left for it", time.Second, 950 * time.Millisecond, mutating, 20 * time.Second, ignore, 0, -150 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := request.WithReceivedTimestamp(t.Context(), time.Now())
				if tt.request != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.request)
					defer cancel()
				}
				time.Sleep(tt.spent)
				now := time.Now()
				limited, cancel := newBudget(ctx, tt.source, now).limit(ctx, now, &plan.Candidate{Entry: &snapshot.Entry{
					Entry: &registration.Entry{FailurePolicy: tt.policy, Webhook: &registration.Webhook{Timeout: tt.hook}},
				}}, tt.later)
				defer cancel()
				deadline, ok := limited.Deadline()
				if !ok {
					deadline = now
				}
				if got := deadline.Sub(now); got != tt.want {
					t.Errorf("got %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// TestIgnoreHooksThatHangCannotFailARequest runs all passes over a request whose webhooks with
// policy Ignore all hang, far longer than the request may take: it does not time out, the required
// webhooks are called, and time is left to write.
func TestIgnoreHooksThatHangCannotFailARequest(t *testing.T) {
	const whole = 1500 * time.Millisecond
	mutating, external, validating := registration.Mutating, registration.External, registration.Validating
	tests := []struct {
		name string
		// steps are the policies of the webhooks of each pass: F answers, I hangs.
		steps map[registration.Source]string
		// stamped reports whether the server records when the request was received.
		stamped bool
	}{
		{"one mutating", map[registration.Source]string{mutating: "I"}, true},
		{"a chain of mutating", map[registration.Source]string{mutating: "IIIIIIIIIIII"}, true},
		{"mutating, some needed", map[registration.Source]string{mutating: "IIFIIF"}, true},
		{"validating, some needed", map[registration.Source]string{validating: "IIFI"}, true},
		{"every pass", map[registration.Source]string{mutating: "IIFI", external: "IFI", validating: "IFI"}, true},
		{"a chain, on a server that does not say when the request came in", map[registration.Source]string{mutating: "IIFIIIIIIIII"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixtureInBubble(t)
				f.Answer("hangs", func(r *http.Request, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					<-r.Context().Done()
					return &admissionv1.AdmissionResponse{Allowed: true}
				})
				f.Answer("answers", hooktest.Allow)
				f.AnswerAlpha("hangs-alpha", func(r *http.Request, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					<-r.Context().Done()
					return &admissionv1.AdmissionResponse{Allowed: true}
				})
				f.AnswerAlpha("answers-alpha", hooktest.Allow)
				needed := 0
				ctx, cancel := context.WithTimeout(t.Context(), whole)
				defer cancel()
				if tt.stamped {
					ctx = request.WithReceivedTimestamp(ctx, time.Now())
				}
				a := attributes(admission.Create, widget(t, ""), nil, false)
				for _, source := range []registration.Source{mutating, external, validating} {
					var steps []plan.Candidate
					alpha := ""
					if source == external {
						alpha = "-alpha"
					}
					for i, policy := range tt.steps[source] {
						if policy == 'F' {
							needed++
							steps = append(steps, f.hook(source, fmt.Sprintf("answers%s.%d.y", alpha, i)))
						} else {
							steps = append(steps, f.hook(source, fmt.Sprintf("hangs%s.%d.y", alpha, i), ignore))
						}
					}
					if err := f.run(ctx, f.dispatcher(t, source), a, numbered(steps...)); err != nil {
						t.Errorf("%s rejected the request: %v", source.String(), err)
					}
				}
				if deadline, _ := ctx.Deadline(); time.Until(deadline) < whole/shares {
					t.Errorf("%v are left to write", time.Until(deadline))
				}
				if got := len(f.Requests("answers")) + len(f.Requests("answers-alpha")); got != needed {
					t.Errorf("%d hooks that the request needs were called, want %d", got, needed)
				}
				for _, tr := range f.traces {
					for _, c := range tr.Calls {
						want := trace.Failed
						if c.FailurePolicy == registration.Fail {
							want = trace.Allowed
						}
						if diff := cmp.Diff(want, c.Verdict); diff != "" || c.Ignored != (want == trace.Failed) {
							t.Errorf("%s: (-want +got)\n%s", c.Entry.String(), diff)
						}
					}
				}
			})
		})
	}
}
