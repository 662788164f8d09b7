package customresources

import (
	"errors"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// schemas are the structural schemas of a CRD.
type schemas struct {
	kind schema.GroupKind
	// byVersion has no entry for a version without a schema.
	byVersion *late[map[string]*structuralschema.Structural]
	// preserve is set for CRDs from before structural schemas: nothing is pruned.
	preserve bool
}

// newSchemas returns the schemas of a CRD; whole returns the CRD with its schemas.
func newSchemas(crd *apiextensionsv1.CustomResourceDefinition, k *keeper, whole func() (*apiextensionsv1.CustomResourceDefinition, error)) *schemas {
	return &schemas{
		kind:     schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Status.AcceptedNames.Kind},
		preserve: crd.Spec.PreserveUnknownFields,
		byVersion: newLate(k, minPatience, func() (map[string]*structuralschema.Structural, error) {
			crd, err := whole()
			if err != nil {
				return nil, err
			}
			return structuralOf(crd)
		}),
	}
}

// of returns the schema of a version, nil if it has none.
func (s *schemas) of(version string) (*structuralschema.Structural, error) {
	all, err := s.byVersion.get()
	return all[version], err
}

func structuralOf(crd *apiextensionsv1.CustomResourceDefinition) (map[string]*structuralschema.Structural, error) {
	byVersion := map[string]*structuralschema.Structural{}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		validation, err := validationOf(v)
		if err != nil {
			return nil, fmt.Errorf("schema of version %s: %w", v.Name, err)
		}
		if validation == nil {
			continue
		}
		structural, err := structuralschema.NewStructural(validation.OpenAPIV3Schema)
		if err != nil && !crd.Spec.PreserveUnknownFields {
			return nil, fmt.Errorf("schema of version %s: %w", v.Name, err)
		}
		if !crd.Spec.PreserveUnknownFields {
			// Defaults are shared with the CRD, which belongs to the informer.
			structural = structural.DeepCopy()
			if err := defaulting.PruneDefaults(structural); err != nil {
				return nil, fmt.Errorf("defaults of version %s: %w", v.Name, err)
			}
		}
		byVersion[v.Name] = structural
	}
	return byVersion, nil
}

// validationOf returns the schema of a version in the form validation uses, nil
// if the version has none.
func validationOf(v *apiextensionsv1.CustomResourceDefinitionVersion) (*apiextensions.CustomResourceValidation, error) {
	if v.Schema == nil {
		return nil, nil
	}
	out := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(v.Schema, out, nil); err != nil {
		return nil, err
	}
	return out, nil
}

// coercion configures how lenient coerce is, and whether it reports unknown fields.
type coercion struct {
	// fromStorage drops content that old objects may have in storage and that would be refused
	// today, and gives these objects a generation.
	fromStorage bool
	// unknown asks for the paths of fields that were dropped.
	unknown bool
}

// coerce makes an object look as if it had been decoded into a Go type made from
// the schema: metadata is checked field by field, unknown fields are dropped, and
// so are nulls that the schema does not allow. Objects of other kinds, such as
// the options of a request, only have their metadata checked.
func (s *schemas) coerce(u *unstructured.Unstructured, c coercion) (unknown []string, err error) {
	kind, _, err := unstructured.NestedString(u.Object, "kind")
	if err != nil {
		return nil, err
	}
	apiVersion, _, err := unstructured.NestedString(u.Object, "apiVersion")
	if err != nil {
		return nil, err
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	metadata, found, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{
		DropMalformedFields:     c.fromStorage,
		ReturnUnknownFieldPaths: c.unknown,
	})
	if err != nil {
		return nil, err
	}
	if gv.Group == s.kind.Group && kind == s.kind.Kind {
		structural, unknowable := s.of(gv.Version)
		if unknowable != nil {
			return nil, unknowable
		}
		if !s.preserve {
			unknown = append(unknown, pruning.PruneWithOptions(u.Object, structural, true,
				structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: c.unknown})...)
			defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, structural)
		}
		err, paths := objectmeta.CoerceWithOptions(nil, u.Object, structural, false, objectmeta.CoerceOptions{
			DropInvalidFields:       c.fromStorage,
			ReturnUnknownFieldPaths: c.unknown,
		})
		if err != nil {
			return nil, err
		}
		unknown = append(unknown, paths...)
		if c.fromStorage && metadata.Generation == 0 {
			metadata.Generation = 1
		}
	}
	if found {
		if err := objectmeta.SetObjectMeta(u.Object, metadata); err != nil {
			return nil, err
		}
	}
	return unknown, nil
}

// defaulter applies the defaults of the schemas to custom objects, and the defaults of next to all
// other objects.
type defaulter struct {
	*schemas
	next runtime.ObjectDefaulter
}

func (d defaulter) Default(obj runtime.Object) {
	u, ok := obj.(runtime.Unstructured)
	if !ok {
		d.next.Default(obj)
		return
	}
	if gvk := u.GetObjectKind().GroupVersionKind(); gvk.GroupKind() == d.kind {
		structural, err := d.of(gvk.Version)
		if err != nil {
			// Decoding the object needed the schema, too, and has failed.
			utilruntime.HandleError(fmt.Errorf("defaults of %s: %w", gvk, err))
			return
		}
		defaulting.Default(u.UnstructuredContent(), structural)
	}
}

// errList refuses objects that k8s.io/apiserver would treat as lists, and fail to send.
var errList = errors.New(`a custom object cannot have an array named "items" at its top level: that is a list`)

// coercingDecoder coerces decoded objects. If it is strict, it returns an error for unknown fields
// together with the object.
type coercingDecoder struct {
	runtime.Decoder
	schemas *schemas
	how     coercion
}

func (d coercingDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var strict []error
	if into == nil && d.how.fromStorage {
		// Without this, the decoder treats every object with a field "items" as a list.
		into = &unstructured.Unstructured{}
	}
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err != nil {
		errs, ok := runtime.AsStrictDecodingError(err)
		if !ok || obj == nil {
			return nil, gvk, err
		}
		strict = errs.Errors()
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if u.IsList() && !d.how.fromStorage {
			return nil, gvk, errList
		}
		unknown, err := d.schemas.coerce(u, d.how)
		if err != nil {
			return nil, gvk, err
		}
		for _, path := range unknown {
			strict = append(strict, fmt.Errorf("unknown field %q", path))
		}
	}
	if d.how.unknown && len(strict) > 0 {
		return obj, gvk, runtime.NewStrictDecodingError(strict)
	}
	return obj, gvk, nil
}

// coercingConvertor coerces converted objects.
type coercingConvertor struct {
	runtime.ObjectConvertor
	schemas *schemas
}

func (c coercingConvertor) Convert(in, out, context any) error {
	if err := c.ObjectConvertor.Convert(in, out, context); err != nil {
		return err
	}
	if u, ok := out.(*unstructured.Unstructured); ok {
		_, err := c.schemas.coerce(u, coercion{})
		return err
	}
	return nil
}

func (c coercingConvertor) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	out, err := c.ObjectConvertor.ConvertToVersion(in, target)
	if err != nil {
		return nil, err
	}
	if u, ok := out.(*unstructured.Unstructured); ok {
		if _, err := c.schemas.coerce(u, coercion{}); err != nil {
			return nil, err
		}
	}
	return out, nil
}
