package customresources

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers"
)

// convertor converts between the versions of one CRD. It changes its input; safe is the variant
// that does not.
type convertor struct {
	// ObjectConvertor is upstream's for versions that differ in name only (strategy None). It refuses
	// versions that the CRD does not have.
	runtime.ObjectConvertor
	versions map[schema.GroupVersion]bool
	// webhook converts first when it is not nil.
	webhook *conversionWebhook
	// ctx ends calls of the webhook. A convertor that with returns has the context of a request.
	ctx context.Context
}

// with returns a convertor for one request, whose context ends calls of the webhook.
func (c *convertor) with(ctx context.Context) *convertor {
	bound := *c
	bound.ctx = ctx
	return &bound
}

func newConvertor(crd *apiextensionsv1.CustomResourceDefinition, o *Options) (*convertor, error) {
	renaming := *crd
	renaming.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	_, rename, err := new(conversion.CRConverterFactory).NewConverter(&renaming)
	if err != nil {
		return nil, err
	}
	c := &convertor{ObjectConvertor: rename, versions: map[schema.GroupVersion]bool{}, ctx: context.Background()}
	for _, v := range crd.Spec.Versions {
		c.versions[schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}] = true
	}
	if conversion := crd.Spec.Conversion; conversion != nil && conversion.Strategy == apiextensionsv1.WebhookConverter {
		if c.webhook, err = newConversionWebhook(crd, o); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// bind returns a function that derives the scope of one request from a scope: conversions for the
// request end with the context of the request.
func (c *convertor) bind(scope handlers.RequestScope) func(context.Context) *handlers.RequestScope {
	return func(ctx context.Context) *handlers.RequestScope {
		bound, convertor := scope, c.with(ctx)
		bound.Convertor, bound.UnsafeConvertor = safe{convertor}, convertor
		return &bound
	}
}

// Convert converts in to the version that out names, and puts the result into out.
func (c *convertor) Convert(in, out, context any) error {
	from, custom := in.(*unstructured.Unstructured)
	if to, ok := out.(*unstructured.Unstructured); ok && custom {
		if err := c.call(from, to.GroupVersionKind().GroupVersion()); err != nil {
			return err
		}
	}
	return c.ObjectConvertor.Convert(in, out, context)
}

// ConvertToVersion converts an object, or a list and everything in it.
func (c *convertor) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	if to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{in.GetObjectKind().GroupVersionKind()}); ok {
		if err := c.call(in, to.GroupVersion()); err != nil {
			return nil, err
		}
	}
	return c.ObjectConvertor.ConvertToVersion(in, target)
}

// call makes the webhook convert objects to a version that they do not have yet: in itself, or the
// items of the list in. It leaves versions that the CRD does not have to the ObjectConvertor.
func (c *convertor) call(in runtime.Object, to schema.GroupVersion) error {
	if c.webhook == nil || !c.versions[to] || !c.versions[in.GetObjectKind().GroupVersionKind().GroupVersion()] {
		return nil
	}
	var strangers []*unstructured.Unstructured
	add := func(u *unstructured.Unstructured) {
		// Objects without metadata come from the machinery, which tests with them whether a codec works.
		if u.GetAPIVersion() != to.String() && u.Object["metadata"] != nil {
			strangers = append(strangers, u)
		}
	}
	switch t := in.(type) {
	case *unstructured.Unstructured:
		add(t)
	case *unstructured.UnstructuredList:
		for i := range t.Items {
			if !c.versions[t.Items[i].GroupVersionKind().GroupVersion()] {
				return nil
			}
			add(&t.Items[i])
		}
	}
	if len(strangers) == 0 {
		return nil
	}
	return c.webhook.convert(c.ctx, in, strangers, to)
}

// safe converts copies.
type safe struct{ *convertor }

func (s safe) Convert(in, out, context any) error {
	obj, ok := in.(runtime.Object)
	if !ok {
		return fmt.Errorf("a %T is not an object", in)
	}
	return s.convertor.Convert(obj.DeepCopyObject(), out, context)
}

func (s safe) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	return s.convertor.ConvertToVersion(in.DeepCopyObject(), target)
}
