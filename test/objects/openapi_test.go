package objects

import (
	"errors"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// A client that generates types from the document would get each of these types twice.
func TestCustomResourcesAddNoSecondDefinitionOfAType(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", toJSON(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: documents.openapi.example.com}
spec:
  group: openapi.example.com
  scope: Namespaced
  names: {plural: documents, singular: document, kind: Document}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {replicas: {type: integer, default: 1}}}
          status: {type: object, properties: {replicas: {type: integer}}}
`))
	const kind = "com.example.openapi.v1.Document"
	var definitions map[string]any
	harness.Eventually(t, "the kind is documented", func() error {
		definitions, _ = h.Get("/openapi/v2").At("definitions").(map[string]any)
		if definitions[kind] == nil {
			return errors.New("it is not")
		}
		return nil
	})
	again := regexp.MustCompile(`_v\d+$`)
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		if again.MatchString(name) {
			t.Errorf("there is a %s besides %s", name, strings.TrimSuffix(name, again.FindString(name)))
		}
	}
	const metadata = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	want(t, "metadata", harness.At(definitions, kind, "properties", "metadata", "$ref"), any("#/definitions/"+metadata))
	if harness.At(definitions, metadata, "properties", "initializers") == nil {
		t.Error("metadata.initializers is missing")
	}
	if def := harness.At(definitions, kind, "properties", "spec", "properties", "replicas", "default"); def != nil {
		t.Errorf("a default %v: the documents of this version have none", def)
	}
}
