package main

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/initializer"
)

// annotation of a deployment controls the sidecar: "false" disables it, and "never" rejects the deployment, as
// an example of a failure.
const annotation = "sidecar.gatehouse.dev/inject"

// inject returns the function that adds a container with the given name and image.
func inject(container, image string) initializer.Func {
	return func(_ context.Context, deployment *unstructured.Unstructured) error {
		switch deployment.GetAnnotations()[annotation] {
		case "false":
			return nil
		case "never":
			return initializer.Fail(403, "Forbidden", "deployment %q forbids a sidecar", deployment.GetName())
		}
		path := []string{"spec", "template", "spec", "containers"}
		containers, _, err := unstructured.NestedSlice(deployment.Object, path...)
		if err != nil {
			return fmt.Errorf("containers of deployment %q: %w", deployment.GetName(), err)
		}
		// The function may be called again for an object.
		if slices.ContainsFunc(containers, func(c any) bool {
			m, _ := c.(map[string]any)
			return m["name"] == container
		}) {
			return nil
		}
		containers = append(containers, map[string]any{"name": container, "image": image})
		return unstructured.SetNestedSlice(deployment.Object, containers, path...)
	}
}
