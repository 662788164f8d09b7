package staleseries

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/kit/series"
)

// S22.24: the series of a binding that is gone, or that binds another policy now, are dropped; the
// series of policies and bindings that still exist stay.
func TestBindingsThatGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checks := metrics.NewCounterVec(&metrics.CounterOpts{Name: "gatehouse_admission_policy_test_total", Help: "h"}, []string{"policy", "policy_binding"})
		legacyregistry.MustRegister(checks)
		defer legacyregistry.Registerer().Unregister(checks)
		r := &Registrations{Gone: series.NewGone(time.Minute)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Gone.Run(ctx)
		}()
		// read has the policies, and bindings by their policy.
		read := func(policies []string, bindings map[string]string) {
			var objects []runtime.Object
			for _, name := range policies {
				objects = append(objects, &v1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ValidatingAdmissionPolicySpec{
					MatchConstraints: &v1.MatchResources{}, Validations: []v1.Validation{{Expression: "true"}},
				}})
			}
			for name, policy := range bindings {
				objects = append(objects, &v1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.ValidatingAdmissionPolicyBindingSpec{
					PolicyName: policy, ValidationActions: []v1.ValidationAction{v1.Deny},
				}})
			}
			r.Observe(snapshot.Read{Changed: true, Snapshot: snapshot.Compile(snapshot.Registrations{Objects: objects})})
		}
		left := func() []string {
			families, err := legacyregistry.DefaultGatherer.Gather()
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, f := range families {
				if f.GetName() != "gatehouse_admission_policy_test_total" {
					continue
				}
				for _, m := range f.GetMetric() {
					found = append(found, fmt.Sprintf("%s/%s", m.GetLabel()[0].GetValue(), m.GetLabel()[1].GetValue()))
				}
			}
			return found
		}
		policies := []string{"a", "b"}
		read(policies, map[string]string{"stays": "a", "goes": "a", "moves": "a", "returns": "a", "other": "b"})
		for _, binding := range []string{"goes", "moves", "returns", "stays"} {
			checks.WithLabelValues("a", binding).Inc()
		}
		checks.WithLabelValues("b", "other").Inc()
		read(policies, map[string]string{"stays": "a", "moves": "b", "other": "b"})
		checks.WithLabelValues("b", "moves").Inc()
		read(policies, map[string]string{"stays": "a", "moves": "b", "returns": "a", "other": "b"})
		time.Sleep(3 * time.Minute)
		if got, want := left(), []string{"a/returns", "a/stays", "b/moves", "b/other"}; !slices.Equal(got, want) {
			t.Errorf("the series left are %q, want %q", got, want)
		}
		read([]string{"a"}, map[string]string{"stays": "a", "returns": "a", "moves": "b"})
		time.Sleep(3 * time.Minute)
		if got, want := left(), []string{"a/returns", "a/stays"}; !slices.Equal(got, want) {
			t.Errorf("without their policy the series left are %q, want %q", got, want)
		}
		cancel()
		<-ended
	})
}
