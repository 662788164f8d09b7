package review_test

import (
	"fmt"

	"github.com/gatehouse-dev/gatehouse/admission/review"
)

func ExampleApplyPatchToMap() {
	pod := map[string]any{"kind": "Pod", "metadata": map[string]any{"name": "web"}}
	patched, changed, err := review.ApplyPatchToMap(pod, []byte(`[{"op":"add","path":"/metadata/labels","value":{"team":"red"}}]`))
	fmt.Println(patched, changed, err)
	fmt.Println(pod)
	_, _, err = review.ApplyPatchToMap(pod, []byte(`[{"op":"remove","path":"/metadata/annotations/a"}]`))
	fmt.Println(err)
	// Output:
	// map[kind:Pod metadata:map[labels:map[team:red] name:web]] true <nil>
	// map[kind:Pod metadata:map[name:web]]
	// operation 1, remove /metadata/annotations/a: there is no /metadata/annotations
}
