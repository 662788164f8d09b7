package customresources

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// Rules are the schemas, defaults and validation rules of a CRD, without a server.
type Rules struct {
	crd     *apiextensionsv1.CustomResourceDefinition
	schemas *schemas
}

// NewRules returns the rules of a CRD. The server need not have accepted its names.
func NewRules(crd *apiextensionsv1.CustomResourceDefinition) *Rules {
	accepted := *crd
	accepted.Status.AcceptedNames = crd.Spec.Names
	whole := func() (*apiextensionsv1.CustomResourceDefinition, error) { return &accepted, nil }
	return &Rules{&accepted, newSchemas(&accepted, &keeper{over: true}, whole)}
}

// Decode changes an object as the server does when it reads a request: it drops fields that the schema
// does not have, returns their paths, and sets defaults.
func (r *Rules) Decode(u *unstructured.Unstructured) (unknown []string, err error) {
	if unknown, err = r.schemas.coerce(u, coercion{unknown: true}); err != nil {
		return nil, err
	}
	structural, err := r.schemas.of(u.GroupVersionKind().Version)
	if err == nil && structural != nil {
		defaulting.Default(u.Object, structural)
	}
	return unknown, err
}

// Strategies returns the strategies of the registry for the objects of a version, or for their status: by the
// schema, the subresources and the rules of the version.
func (r *Rules) Strategies(version, subresource string) (catalog.Strategies, error) {
	for i := range r.crd.Spec.Versions {
		if r.crd.Spec.Versions[i].Name != version {
			continue
		}
		structural, err := r.schemas.of(version)
		if err != nil {
			return catalog.Strategies{}, err
		}
		made, err := newStrategies(r.crd, i, structural)
		if subresource == "status" {
			return catalog.Strategies{Update: made.status}, err
		}
		return catalog.Strategies{Create: made.main, Update: made.main}, err
	}
	return catalog.Strategies{}, fmt.Errorf("the definition %s has no version %s", r.crd.Name, version)
}

// newStrategies compiles the schema of a version.
func newStrategies(crd *apiextensionsv1.CustomResourceDefinition, index int, structural *structuralschema.Structural) (s strategies, err error) {
	v := &crd.Spec.Versions[index]
	internal, err := validationOf(v)
	if err != nil {
		return s, err
	}
	var props, statusProps *apiextensions.JSONSchemaProps
	if internal != nil {
		props = internal.OpenAPIV3Schema
	}
	if props != nil {
		if p, ok := props.Properties["status"]; ok {
			statusProps = &p
		}
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return s, err
	}
	statusSpec, scaleSpec := subresources(v)
	var statusValidator validation.SchemaValidator
	if statusSpec != nil && statusProps != nil {
		if statusValidator, _, err = validation.NewSchemaValidator(statusProps); err != nil {
			return s, err
		}
	}
	kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Status.AcceptedNames.Kind}
	main := customresource.NewStrategy(typer(scheme), crd.Spec.Scope == apiextensionsv1.NamespaceScoped, kind,
		validator, statusValidator, structural, statusSpec, scaleSpec, v.SelectableFields)
	s.main = main
	if statusSpec != nil {
		s.status = customresource.NewStatusStrategy(main)
	}
	return s, nil
}
