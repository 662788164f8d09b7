package dispatch

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

func TestARequestThatWaitsStepsAside(t *testing.T) {
	for _, source := range []registration.Source{registration.Mutating, registration.Validating} {
		t.Run(source.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixtureInBubble(t)
				aside, back := make(chan struct{}), 0
				slow := true
				f.Answer("quick", hooktest.Allow)
				f.Answer("slow", func(*http.Request, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					// It answers once the request has stepped aside.
					if slow {
						<-aside
					}
					return &admissionv1.AdmissionResponse{Allowed: true}
				})
				d := f.dispatcher(t, source, func(o *Options) {
					o.StepAside = func(context.Context) func() {
						if slow {
							close(aside)
						}
						return func() { back++ }
					}
				})
				for _, step := range []struct {
					hook string
					slow bool
					back int
				}{
					{"quick.x.y", true, 0},
					{"slow.x.y", true, 1},
					// It is expected to be slow again.
					{"slow.x.y", false, 2},
					{"slow.x.y", false, 2},
					{"quick.x.y", false, 2},
				} {
					slow = step.slow
					if err := f.run(t.Context(), d, attributes(admission.Create, widget(t, ""), nil, false), numbered(f.hook(source, step.hook))); err != nil {
						t.Fatal(err)
					}
					if back != step.back {
						t.Errorf("%+v: it came back %d times", step, back)
					}
				}
			})
		})
	}
}
