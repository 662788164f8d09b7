package main

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/gatehouse-dev/gatehouse/examples/aggregated/gallery"
)

// newPaintings opens the storage of paintings. All versions share one store.
func newPaintings(getter generic.RESTOptionsGetter) (*registry.Store, error) {
	resource := gallery.SchemeGroupVersion.WithResource("paintings").GroupResource()
	s := strategy{ObjectTyper: scheme, NameGenerator: names.SimpleNameGenerator}
	store := &registry.Store{
		NewFunc:                   func() runtime.Object { return &gallery.Painting{} },
		NewListFunc:               func() runtime.Object { return &gallery.PaintingList{} },
		DefaultQualifiedResource:  resource,
		SingularQualifiedResource: gallery.SchemeGroupVersion.WithResource("painting").GroupResource(),
		CreateStrategy:            s, UpdateStrategy: s, DeleteStrategy: s,
		TableConvertor: rest.NewDefaultTableConvertor(resource),
	}
	return store, store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter})
}

// strategy controls creates and updates of paintings. Its validation runs between the mutating and the
// validating webhooks.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

var (
	_ rest.RESTCreateStrategy = strategy{}
	_ rest.RESTUpdateStrategy = strategy{}
	_ rest.RESTDeleteStrategy = strategy{}
)

func (strategy) NamespaceScoped() bool                                            { return true }
func (strategy) AllowCreateOnUpdate(context.Context) bool                         { return false }
func (strategy) AllowUnconditionalUpdate(context.Context) bool                    { return true }
func (strategy) Canonicalize(runtime.Object)                                      {}
func (strategy) PrepareForCreate(context.Context, runtime.Object)                 {}
func (strategy) PrepareForUpdate(_ context.Context, _, _ runtime.Object)          {}
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string        { return nil }
func (strategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validate(obj.(*gallery.Painting))
}

func (strategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return validate(obj.(*gallery.Painting))
}

func validate(p *gallery.Painting) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if p.Spec.Title == "" {
		errs = append(errs, field.Required(spec.Child("title"), "a painting needs a title"))
	}
	if p.Spec.Year < 0 {
		errs = append(errs, field.Invalid(spec.Child("year"), p.Spec.Year, "must not be negative"))
	}
	return errs
}
