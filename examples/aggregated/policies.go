package main

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/dynamic"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"

	galleryv1 "github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery/v1"
	galleryv1beta1 "github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery/v1beta1"
)

// params reads the params of admission policies from the main server. Each request reads them again.
type params struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

// Scope implements admission.Params.
func (p params) Scope(_ context.Context, kind schema.GroupVersionKind) (namespaced, served bool, err error) {
	mapping, err := p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, true, nil
}

func (p params) resource(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	return p.client.Resource(mapping.Resource).Namespace(namespace), nil
}

// Get implements admission.Params.
func (p params) Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error) {
	resource, err := p.resource(kind, namespace)
	if err != nil {
		return nil, err
	}
	return resource.Get(ctx, name, metav1.GetOptions{})
}

// List implements admission.Params.
func (p params) List(ctx context.Context, kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]runtime.Object, error) {
	resource, err := p.resource(kind, namespace)
	if err != nil {
		return nil, err
	}
	list, err := resource.List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}

// schemas has the schemas of this server's kinds, for mutating policies.
type schemas struct{ converter managedfields.TypeConverter }

func newSchemas(config *common.OpenAPIV3Config) (schemas, error) {
	definitions, err := builder3.BuildOpenAPIDefinitionsForResources(config,
		util.GetCanonicalTypeName(&galleryv1.Painting{}), util.GetCanonicalTypeName(&galleryv1beta1.Painting{}))
	if err != nil {
		return schemas{}, err
	}
	converter, err := managedfields.NewTypeConverter(definitions, false)
	return schemas{converter}, err
}

// TypeConverter implements admission.Schemas.
func (s schemas) TypeConverter(schema.GroupVersionKind) managedfields.TypeConverter {
	return s.converter
}
