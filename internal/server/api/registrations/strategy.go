package registrations

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/names"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"

	admissionregistration "github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// strategy creates and updates all kinds here.
type strategy struct {
	runtime.ObjectTyper
}

func (strategy) GenerateName(base string) string { return names.SimpleNameGenerator.GenerateName(base) }
func (strategy) NamespaceScoped() bool           { return false }
func (strategy) Canonicalize(runtime.Object)     {}

// AllowCreateOnUpdate and AllowUnconditionalUpdate: no (S1.4).
func (strategy) AllowCreateOnUpdate(context.Context) bool      { return false }
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return false }

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) { setGeneration(obj, 1) }

// PrepareForUpdate adds 1 to the generation if the webhooks or initializers have changed
// (S1.5).
func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	m, err := meta.Accessor(old)
	if err != nil {
		return
	}
	generation := m.GetGeneration()
	if admissionregistration.SpecChanged(obj, old) {
		generation++
	}
	setGeneration(obj, generation)
}

func (strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	errs := admissionregistration.Validate(asWritten(ctx, obj))
	if utilfeature.DefaultFeatureGate.Enabled(features.ManifestBasedAdmissionControlConfig) {
		errs = append(errs, validation.ValidateStaticSuffix(webhooksName(obj), field.NewPath("metadata", "name"))...)
	}
	return errs
}

func (strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return admissionregistration.ValidateUpdate(asWritten(ctx, obj), asWritten(ctx, old))
}

func (strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	if utilfeature.DefaultFeatureGate.Enabled(features.ManifestBasedAdmissionControlConfig) {
		return aboutVirtual(obj)
	}
	return append(validation.WarningsForStaticSuffix(webhooksName(obj)), aboutVirtual(obj)...)
}

func (strategy) WarningsOnUpdate(_ context.Context, obj, _ runtime.Object) []string {
	return append(aboutVirtual(obj), validation.WarningsForStaticSuffix(webhooksName(obj))...)
}

// aboutVirtual returns warnings about rules for virtual resources, to which no webhook applies
// (S1.36). Before 1.37 webhooks apply to the reviews of Kubernetes (S26.4).
func aboutVirtual(obj runtime.Object) []string {
	return admissionregistration.Warnings(obj, emulation.JudgesReviews())
}

// webhooksName is the name of a webhook configuration, and empty for the other kinds: names with
// the suffix of static manifests are reserved for these (S13.13).
func webhooksName(obj runtime.Object) string {
	switch c := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return c.Name
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return c.Name
	}
	return ""
}

// asWritten returns obj in the version of the request, because v1beta1 allows some values that v1
// does not (S1.11, S1.19).
func asWritten(ctx context.Context, obj runtime.Object) runtime.Object {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok || info.APIVersion != "v1beta1" {
		return obj
	}
	if converted, err := admissionregistration.Convert(obj, info.APIVersion); err == nil {
		return converted
	}
	return obj
}

func setGeneration(obj runtime.Object, generation int64) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetGeneration(generation)
	}
}
