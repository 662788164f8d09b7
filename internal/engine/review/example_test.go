package review_test

import (
	"context"
	"fmt"

	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

func ExamplePatch_ApplyToMap() {
	pod := map[string]any{"kind": "Pod", "metadata": map[string]any{"name": "web"}}
	apply := func(text string) {
		patch, err := review.DecodePatch([]byte(text))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(patch.ApplyToMap(context.Background(), nil, pod))
	}
	apply(`[{"op":"add","path":"/metadata/labels","value":{"team":"red"}}]`)
	fmt.Println(pod)
	apply(`[{"op":"remove","path":"/metadata/annotations/a"}]`)
	// Output:
	// map[kind:Pod metadata:map[labels:map[team:red] name:web]] true <nil>
	// map[kind:Pod metadata:map[name:web]]
	// map[] false operation 1, remove /metadata/annotations/a: there is no /metadata/annotations
}
