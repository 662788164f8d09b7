package customresources

import (
	"encoding/json"
	"io"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// storedCodec stores and reads CRDs as if they were stored in JSON, as upstream stores them. A
// client that sends protobuf can send values of schemas that JSON cannot express, such as
// additionalProperties with a schema and allows set to false, Go's zero value. JSON drops allows
// there. Decode changes these values, too, because earlier releases stored them.
type storedCodec struct{ runtime.Codec }

// Encode implements runtime.Encoder. It does not change the object.
func (c storedCodec) Encode(obj runtime.Object, w io.Writer) error {
	if crd, ok := obj.(*apiextensions.CustomResourceDefinition); ok && slices.ContainsFunc(validationsOf(crd), beyondJSON) {
		crd = crd.DeepCopy()
		if err := throughJSON(crd); err != nil {
			return err
		}
		obj = crd
	}
	return c.Codec.Encode(obj, w)
}

// Decode implements runtime.Decoder.
func (c storedCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := c.Codec.Decode(data, defaults, into)
	if crd, ok := obj.(*apiextensions.CustomResourceDefinition); ok && err == nil {
		err = throughJSON(crd)
	}
	return obj, kind, err
}

// validationsOf returns the schemas of a CRD.
func validationsOf(crd *apiextensions.CustomResourceDefinition) []*apiextensions.CustomResourceValidation {
	all := []*apiextensions.CustomResourceValidation{crd.Spec.Validation}
	for i := range crd.Spec.Versions {
		all = append(all, crd.Spec.Versions[i].Schema)
	}
	return all
}

// throughJSON encodes to JSON, and decodes again, the schemas of a CRD that have values which JSON
// cannot express.
func throughJSON(crd *apiextensions.CustomResourceDefinition) error {
	for _, v := range validationsOf(crd) {
		if !beyondJSON(v) {
			continue
		}
		var sent, read apiextensionsv1.CustomResourceValidation
		if err := apiextensionsv1.Convert_apiextensions_CustomResourceValidation_To_v1_CustomResourceValidation(v, &sent, nil); err != nil {
			return err
		}
		text, err := json.Marshal(&sent)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, &read); err != nil {
			return err
		}
		*v = apiextensions.CustomResourceValidation{}
		if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(&read, v, nil); err != nil {
			return err
		}
	}
	return nil
}

// beyondJSON reports whether a schema has values that JSON cannot express.
func beyondJSON(v *apiextensions.CustomResourceValidation) bool {
	return v != nil && validation.SchemaHas(v.OpenAPIV3Schema, func(s *apiextensions.JSONSchemaProps) bool {
		for _, value := range []*apiextensions.JSON{s.Default, s.Example} {
			if value != nil && *value == nil {
				return true
			}
		}
		for _, either := range []*apiextensions.JSONSchemaPropsOrBool{s.AdditionalProperties, s.AdditionalItems} {
			if either != nil && either.Schema != nil && !either.Allows {
				return true
			}
		}
		for _, either := range s.Dependencies {
			if len(either.Property) > 0 && either.Schema != nil {
				return true
			}
		}
		// Items are either one schema or a list.
		return s.Items != nil && (len(s.Items.JSONSchemas) > 0) == (s.Items.Schema != nil)
	})
}
