package clustersnapshot

import (
	"errors"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
)

// OfDefinitions returns a snapshot with the CRDs of folders, files and archives only, without descriptions.
func OfDefinitions(paths []string) (*Cluster, error) {
	l, err := crdschema.Open(paths, "")
	if err != nil {
		return nil, err
	}
	s := &Cluster{APIVersion: APIVersion, Kind: Kind, Items: []map[string]any{}}
	for _, u := range l.Definitions() {
		versions, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "versions")
		list, _ := versions.([]any)
		for _, v := range list {
			if version, ok := v.(map[string]any); ok {
				undescribed(version["schema"])
			}
		}
		approved, needed := u.GetAnnotations()[apiextensionsv1.KubeAPIApprovedAnnotation]
		u.SetAnnotations(nil)
		if u.SetLabels(nil); needed {
			u.SetAnnotations(map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: approved})
		}
		s.Items = append(s.Items, u.Object)
	}
	if len(s.Items) == 0 {
		return nil, errors.New("there is no CustomResourceDefinition")
	}
	s.tidy()
	return s, nil
}

// undescribed removes the descriptions of a schema. A property may have that name.
func undescribed(value any) {
	switch v := value.(type) {
	case map[string]any:
		if _, text := v["description"].(string); text {
			delete(v, "description")
		}
		for key, inner := range v {
			if key != "default" && key != "enum" && key != "example" {
				undescribed(inner)
			}
		}
	case []any:
		for _, inner := range v {
			undescribed(inner)
		}
	}
}
