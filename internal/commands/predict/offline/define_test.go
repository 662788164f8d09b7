package offline

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Requests that are planned concurrently read the CRD of a kind once.
func TestDefinitionsAreReadOnce(t *testing.T) {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	var stored []runtime.Object
	var kinds []*Kind
	for i, strategy := range []string{"None", "Webhook"} {
		plural := fmt.Sprintf("things%d", i)
		stored = append(stored, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + ".example.com"},
			"spec": map[string]any{"conversion": map[string]any{"strategy": strategy}},
		}})
		gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
		kinds = append(kinds, &Kind{Resource: gv.WithResource(plural), Kind: gv.WithKind(fmt.Sprintf("Thing%d", i))})
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{definitions: "CustomResourceDefinitionList"}, stored...)
	c := &cluster{objects: client, kinds: &Kinds{}}
	var group errgroup.Group
	for i := range 100 {
		group.Go(func() error {
			c.define(t.Context(), kinds[i%2])
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	asked := map[string]int{}
	for _, a := range client.Actions() {
		asked[a.(clienttesting.GetAction).GetName()]++
	}
	if asked["things0.example.com"] != 1 || asked["things1.example.com"] != 1 {
		t.Errorf("asked %v", asked)
	}
	if !c.kinds.converts(kinds[0].Kind.GroupKind()) || c.kinds.converts(kinds[1].Kind.GroupKind()) {
		t.Error("what the versions of a kind differ in is wrong")
	}
}
