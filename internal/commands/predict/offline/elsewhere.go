package offline

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/crdschema"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
)

// Elsewhere adds the kinds of CRDs that are in no file, and the schemas of the params of policies, for lint rules. The
// resource of a kind with a JSON schema only is not known. The notes are sentences about the locations.
func (w *World) Elsewhere(ctx context.Context, l *crdschema.Locations) (notes []string, err error) {
	known := map[schema.GroupKind]bool{}
	for _, k := range w.Kinds.list {
		known[k.Kind.GroupKind()] = true
	}
	for _, u := range l.Definitions() {
		if w.Kinds.definition(kindDefinedBy(u)) == nil && !known[kindDefinedBy(u)] {
			if err := w.Kinds.Define(u); err != nil {
				return nil, err
			}
			w.elsewhere = append(w.elsewhere, u)
		}
	}
	var params []schema.GroupVersionKind
	for _, obj := range w.Registrations.Objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			continue
		}
		version, _, _ := unstructured.NestedString(content, "spec", "paramKind", "apiVersion")
		name, _, _ := unstructured.NestedString(content, "spec", "paramKind", "kind")
		if kind := schema.FromAPIVersionAndKind(version, name); name != "" && w.Kinds.Of(kind).Guessed {
			params = append(params, kind)
		}
	}
	found, err := l.Find(ctx, params)
	if err != nil {
		return nil, err
	}
	w.elsewhere = append(w.elsewhere, found.Definitions...)
	return found.Notes, nil
}

// Accepts returns the error with which a server rejects a new CRD.
func Accepts(ctx context.Context, u *unstructured.Unstructured) error {
	return customresources.Accepts(ctx, u, nil)
}

// kindDefinedBy returns the kind of a CRD.
func kindDefinedBy(u *unstructured.Unstructured) schema.GroupKind {
	group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
	return schema.GroupKind{Group: group, Kind: kind}
}
