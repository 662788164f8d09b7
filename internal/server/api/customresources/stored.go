package customresources

import (
	"io"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// storedCodec stores and reads definitions as if they were stored in JSON, as upstream stores them.
// A client that sends protobuf can send values of schemas that JSON cannot express, such as
// additionalProperties with a schema and allows set to false, Go's zero value. JSON drops allows
// there. Decode changes these values, too, because earlier releases stored them.
type storedCodec struct{ runtime.Codec }

// Encode implements runtime.Encoder. It does not change the object.
func (c storedCodec) Encode(obj runtime.Object, w io.Writer) error {
	if crd, ok := obj.(*apiextensions.CustomResourceDefinition); ok && asJSON(crd, false) {
		crd = crd.DeepCopy()
		asJSON(crd, true)
		obj = crd
	}
	return c.Codec.Encode(obj, w)
}

// Decode implements runtime.Decoder.
func (c storedCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := c.Codec.Decode(data, defaults, into)
	if crd, ok := obj.(*apiextensions.CustomResourceDefinition); ok && err == nil {
		asJSON(crd, true)
	}
	return obj, kind, err
}

// asJSON reports whether the schemas of a definition have values that JSON cannot express. If change is
// set, asJSON makes them what they are after a way through JSON.
func asJSON(crd *apiextensions.CustomResourceDefinition, change bool) (found bool) {
	validations := []*apiextensions.CustomResourceValidation{crd.Spec.Validation}
	for i := range crd.Spec.Versions {
		validations = append(validations, crd.Spec.Versions[i].Schema)
	}
	w := jsonWalk{change: change}
	for _, v := range validations {
		if v != nil {
			w.schema(v.OpenAPIV3Schema)
		}
	}
	return w.found
}

// jsonWalk walks through schemas. found reports whether a value was there that JSON
// cannot express.
type jsonWalk struct{ change, found bool }

// when notes such a value if it is there, and reports whether it is to be changed.
func (w *jsonWalk) when(there bool) bool {
	w.found = w.found || there
	return there && w.change
}

func (w *jsonWalk) schema(s *apiextensions.JSONSchemaProps) {
	if s == nil {
		return
	}
	for _, value := range []**apiextensions.JSON{&s.Default, &s.Example} {
		if w.when(*value != nil && **value == nil) {
			*value = nil
		}
	}
	w.items(s)
	for _, either := range []*apiextensions.JSONSchemaPropsOrBool{s.AdditionalProperties, s.AdditionalItems} {
		if either == nil {
			continue
		}
		if w.when(either.Schema != nil && !either.Allows) {
			either.Allows = true
		}
		w.schema(either.Schema)
	}
	for name, either := range s.Dependencies {
		if w.when(len(either.Property) > 0 && either.Schema != nil) {
			either.Schema = nil
			s.Dependencies[name] = either
		}
		w.schema(either.Schema)
	}
	w.schema(s.Not)
	for _, list := range [][]apiextensions.JSONSchemaProps{s.AllOf, s.OneOf, s.AnyOf} {
		for i := range list {
			w.schema(&list[i])
		}
	}
	for _, members := range []map[string]apiextensions.JSONSchemaProps{s.Properties, s.PatternProperties, s.Definitions} {
		for name, member := range members {
			w.schema(&member)
			if w.change {
				members[name] = member
			}
		}
	}
}

// items is schema for the items of a list, which are one schema or several.
func (w *jsonWalk) items(s *apiextensions.JSONSchemaProps) {
	if s.Items == nil {
		return
	}
	if w.when(len(s.Items.JSONSchemas) > 0 && s.Items.Schema != nil) {
		s.Items.Schema = nil
	}
	if w.when(len(s.Items.JSONSchemas) == 0 && s.Items.Schema == nil) {
		s.Items = nil
		return
	}
	w.schema(s.Items.Schema)
	for i := range s.Items.JSONSchemas {
		w.schema(&s.Items.JSONSchemas[i])
	}
}
