package customresources

import (
	"context"
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
)

// convertor converts between the versions of one definition. It changes its
// input; safe is the variant that does not.
type convertor struct {
	// selectable has the selectable fields of every version.
	selectable map[schema.GroupVersion]sets.Set[string]
	namespaced bool
	// webhook converts when it is not nil. Otherwise versions differ in name
	// only (strategy None).
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
	c := &convertor{
		selectable: map[schema.GroupVersion]sets.Set[string]{},
		namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		ctx:        context.Background(),
	}
	for _, v := range crd.Spec.Versions {
		paths := sets.New[string]()
		for _, f := range v.SelectableFields {
			paths.Insert(strings.TrimPrefix(f.JSONPath, "."))
		}
		c.selectable[schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}] = paths
	}
	if conversion := crd.Spec.Conversion; conversion != nil && conversion.Strategy == apiextensionsv1.WebhookConverter {
		var err error
		if c.webhook, err = newConversionWebhook(crd, o); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// bind returns a function that makes the scope of one request out of a scope: conversions for
// the request end with the context of the request.
func (c *convertor) bind(scope handlers.RequestScope) func(context.Context) *handlers.RequestScope {
	return func(ctx context.Context) *handlers.RequestScope {
		bound, convertor := scope, c.with(ctx)
		bound.Convertor, bound.UnsafeConvertor = safe{convertor}, convertor
		return &bound
	}
}

// ConvertFieldLabel returns an error for a field selector that does not exist.
func (c *convertor) ConvertFieldLabel(gvk schema.GroupVersionKind, label, value string) (string, string, error) {
	if label == "metadata.name" || (label == "metadata.namespace" && c.namespaced) || c.selectable[gvk.GroupVersion()].Has(label) {
		return label, value, nil
	}
	return "", "", fmt.Errorf("field label not supported: %s", label)
}

// Convert converts in to the version that out names, and puts the result into out.
func (c *convertor) Convert(in, out, context any) error {
	_, fromScale := in.(*autoscalingv1.Scale)
	_, toScale := out.(*autoscalingv1.Scale)
	if fromScale || toScale {
		return kubernetesscheme.Scheme.Convert(in, out, context)
	}
	from, ok := in.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("a %T is not a custom object and cannot be converted to %T", in, out)
	}
	to, ok := out.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("a custom object cannot be converted to %T", out)
	}
	converted, err := c.ConvertToVersion(from, to.GroupVersionKind().GroupVersion())
	if err != nil {
		return err
	}
	to.SetUnstructuredContent(converted.(*unstructured.Unstructured).Object)
	return nil
}

// ConvertToVersion converts an object, or a list and everything in it.
func (c *convertor) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	if _, ok := in.(*autoscalingv1.Scale); ok {
		return kubernetesscheme.Scheme.ConvertToVersion(in, target)
	}
	from := in.GetObjectKind().GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from})
	if !ok {
		return nil, fmt.Errorf("%v is unstructured and is not suitable for converting to %q", from, target)
	}
	if _, ok := c.selectable[to.GroupVersion()]; !ok {
		return nil, fmt.Errorf("request to convert CR to an invalid group/version: %s", to.GroupVersion())
	}
	if _, ok := c.selectable[from.GroupVersion()]; !ok {
		return nil, fmt.Errorf("request to convert CR from an invalid group/version: %s", from.GroupVersion())
	}
	var objects []*unstructured.Unstructured
	switch t := in.(type) {
	case *unstructured.Unstructured:
		objects = []*unstructured.Unstructured{t}
	case *unstructured.UnstructuredList:
		for i := range t.Items {
			gv := t.Items[i].GroupVersionKind().GroupVersion()
			if _, ok := c.selectable[gv]; !ok {
				return nil, fmt.Errorf("request to convert CR list failed, list index %d has invalid group/version: %s", i, gv)
			}
			objects = append(objects, &t.Items[i])
		}
	default:
		return nil, fmt.Errorf("a %T is not a custom object", in)
	}
	if err := c.convert(in, objects, to.GroupVersion()); err != nil {
		return nil, err
	}
	in.GetObjectKind().SetGroupVersionKind(to)
	return in, nil
}

// convert converts the objects that do not have a version yet to that version. The objects are
// in itself, or the items of the list that in is.
func (c *convertor) convert(in runtime.Object, objects []*unstructured.Unstructured, to schema.GroupVersion) error {
	apiVersion := to.String()
	var strangers []*unstructured.Unstructured
	for _, u := range objects {
		switch {
		case u.GetAPIVersion() == apiVersion:
		case c.webhook == nil || u.Object["metadata"] == nil:
			// Objects without metadata are those that the machinery makes to
			// find out whether a codec works.
			u.SetAPIVersion(apiVersion)
		default:
			strangers = append(strangers, u)
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
