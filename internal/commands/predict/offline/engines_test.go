package offline

import (
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
)

// Plans that are made concurrently list the policies behind a webhook once.
func TestPoliciesBehindWebhooksAreListedOnce(t *testing.T) {
	kinds, err := NewKinds([]*metav1.APIResourceList{{GroupVersion: "kyverno.io/v1", APIResources: []metav1.APIResource{{Name: "clusterpolicies", Kind: "ClusterPolicy"}}}})
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{{Group: "kyverno.io", Version: "v1", Resource: "clusterpolicies"}: "ClusterPolicyList"})
	e := &Engines{objects: client, kinds: kinds}
	var plans sync.WaitGroup
	for range 8 {
		plans.Go(func() {
			notes := e.notes(t.Context(), &plan.About{Operation: "CREATE", Kind: "Pod"}, &plan.Step{Entry: &plan.Entry{Name: "validate.kyverno.svc-fail"}})
			if len(notes) != 1 || notes[0] != "Kyverno policies: none" {
				t.Errorf("notes %q", notes)
			}
		})
	}
	plans.Wait()
	if n := len(client.Actions()); n != 1 {
		t.Errorf("the policies were listed %d times", n)
	}
}
