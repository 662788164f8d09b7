package registration

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/admissionregistration/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// Validate returns the errors in an object that is to be created (S1.6, S1.10 to S1.35). The object
// must have its defaults. An object of another type is an internal error.
func Validate(obj runtime.Object) field.ErrorList {
	if c, ok := asWebhooks(obj); ok {
		return c.validate(strictness{sideEffects: !c.beta, versions: true, names: !c.beta, selectors: true})
	}
	return validateAlpha(obj, nil)
}

// ValidateUpdate returns the errors in an object that is to replace a stored object. A value of the
// stored object remains valid even if it is no longer accepted in new objects (S1.24). Both objects
// must have their defaults; their versions may differ. An object of another type is an internal
// error.
func ValidateUpdate(obj, old runtime.Object) field.ErrorList {
	if c, ok := asWebhooks(obj); ok {
		o, ok := asWebhooks(old)
		if !ok {
			return field.ErrorList{field.InternalError(nil, unknown(old))}
		}
		s := o.strictness()
		s.conditionsUnchanged = sameConditions(c.webhooks, o.webhooks)
		if c.beta {
			s.sideEffects, s.names = false, false
		}
		return c.validate(s)
	}
	return validateAlpha(obj, old)
}

// SpecChanged reports whether an update changes the spec of an object, so that metadata.generation
// grows by one (S1.5). The versions may differ. An empty list differs from a missing one.
func SpecChanged(obj, old runtime.Object) bool {
	if c, ok := asWebhooks(obj); ok {
		o, ok := asWebhooks(old)
		return !ok || !reflect.DeepEqual(c.webhooks, o.webhooks)
	}
	switch c := obj.(type) {
	case *v1alpha1.ExternalAdmissionHookConfiguration:
		o, ok := old.(*v1alpha1.ExternalAdmissionHookConfiguration)
		return !ok || !reflect.DeepEqual(c.ExternalAdmissionHooks, o.ExternalAdmissionHooks)
	case *v1alpha1.InitializerConfiguration:
		o, ok := old.(*v1alpha1.InitializerConfiguration)
		return !ok || !reflect.DeepEqual(c.Initializers, o.Initializers)
	}
	return true
}

// webhookList is a webhook configuration of either kind and version.
type webhookList struct {
	meta     *metav1.ObjectMeta
	webhooks []v1.MutatingWebhook
	beta     bool
	mutating bool
}

func asWebhooks(obj runtime.Object) (*webhookList, bool) {
	switch c := obj.(type) {
	case *v1.MutatingWebhookConfiguration:
		return &webhookList{&c.ObjectMeta, c.Webhooks, false, true}, true
	case *v1.ValidatingWebhookConfiguration:
		return &webhookList{&c.ObjectMeta, each(c.Webhooks, validatingAsMutating), false, false}, true
	case *v1beta1.MutatingWebhookConfiguration:
		return &webhookList{&c.ObjectMeta, recast[[]v1.MutatingWebhook](c.Webhooks), true, true}, true
	case *v1beta1.ValidatingWebhookConfiguration:
		return &webhookList{&c.ObjectMeta, recast[[]v1.MutatingWebhook](c.Webhooks), true, false}, true
	}
	return nil, false
}

// strictness selects the checks that do not apply to all stored objects.
type strictness struct {
	// sideEffects forbids Some and Unknown.
	sideEffects bool
	// versions requires a supported review version.
	versions bool
	// names requires unique names of webhooks.
	names bool
	// selectors requires valid label values in selectors.
	selectors bool
	// conditionsUnchanged turns off the check of the match conditions.
	conditionsUnchanged bool
	// before is the metadata of the stored object; nil for a new object.
	before metav1.Object
	// stored are the expressions in the stored object.
	stored map[string]bool
}

// strictness returns the checks that a stored configuration passes. They apply to its replacement
// (S1.24).
func (c *webhookList) strictness() strictness {
	s := strictness{before: c.meta, sideEffects: true, versions: true, names: true, selectors: true, stored: map[string]bool{}}
	names := make(map[string]bool, len(c.webhooks))
	for i := range c.webhooks {
		w := &c.webhooks[i]
		if w.SideEffects == nil || !slices.Contains(noSideEffects, string(*w.SideEffects)) {
			s.sideEffects = false
		}
		if len(w.AdmissionReviewVersions) > 0 && !slices.ContainsFunc(w.AdmissionReviewVersions, knownVersion) {
			s.versions = false
		}
		if names[w.Name] {
			s.names = false
		}
		names[w.Name] = true
		for _, selector := range []*metav1.LabelSelector{w.NamespaceSelector, w.ObjectSelector} {
			if len(metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, nil)) > 0 {
				s.selectors = false
			}
		}
		for _, m := range w.MatchConditions {
			s.stored[m.Expression] = true
		}
	}
	return s
}

func sameConditions(a, b []v1.MutatingWebhook) bool {
	return slices.EqualFunc(a, b, func(x, y v1.MutatingWebhook) bool {
		return slices.Equal(x.MatchConditions, y.MatchConditions)
	})
}

var (
	failurePolicies      = []string{"Fail", "Ignore"}
	matchPolicies        = []string{"Equivalent", "Exact"}
	reinvocationPolicies = []string{"IfNeeded", "Never"}
	anySideEffects       = []string{"None", "NoneOnDryRun", "Some", "Unknown"}
	noSideEffects        = []string{"None", "NoneOnDryRun"}
	reviewVersions       = []string{"v1", "v1beta1"}
)

func knownVersion(v string) bool { return slices.Contains(reviewVersions, v) }

func (c *webhookList) validate(s strictness) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(c.meta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if c.mutating {
		errs = append(errs, ValidateOrder(c.meta, s.before)...)
	}
	list := make([]string, len(c.webhooks))
	for i := range c.webhooks {
		list[i] = c.webhooks[i].Name
	}
	errs = append(errs, ValidateEnforcement(c.meta, s.before, list)...)
	names := make(map[string]bool, len(c.webhooks))
	for i := range c.webhooks {
		w, path := &c.webhooks[i], field.NewPath("webhooks").Index(i)
		errs = append(errs, s.webhook(w, path)...)
		errs = append(errs, s.reviewVersions(w.AdmissionReviewVersions, path.Child("admissionReviewVersions"))...)
		if s.names && w.Name != "" {
			if names[w.Name] {
				errs = append(errs, field.Duplicate(path.Child("name"), w.Name))
			}
			names[w.Name] = true
		}
	}
	return errs
}

func (s *strictness) webhook(w *v1.MutatingWebhook, path *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(path.Child("name"), w.Name)
	for i := range w.Rules {
		r := &w.Rules[i]
		errs = append(errs, validateRule(path.Child("rules").Index(i), r.Operations, r.APIGroups, r.APIVersions, r.Resources, r.Scope)...)
	}
	errs = append(errs, oneOf(path.Child("failurePolicy"), w.FailurePolicy, failurePolicies)...)
	errs = append(errs, oneOf(path.Child("matchPolicy"), w.MatchPolicy, matchPolicies)...)
	effects := anySideEffects
	if s.sideEffects {
		effects = noSideEffects
	}
	if w.SideEffects == nil {
		errs = append(errs, field.Required(path.Child("sideEffects"), "must specify one of "+strings.Join(effects, ", ")))
	}
	errs = append(errs, oneOf(path.Child("sideEffects"), w.SideEffects, effects)...)
	if t := w.TimeoutSeconds; t != nil && (*t < 1 || *t > 30) {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	options := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: !s.selectors}
	errs = append(errs, metav1validation.ValidateLabelSelector(w.NamespaceSelector, options, path.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(w.ObjectSelector, options, path.Child("objectSelector"))...)
	errs = append(errs, oneOf(path.Child("reinvocationPolicy"), w.ReinvocationPolicy, reinvocationPolicies)...)
	errs = append(errs, validateClientConfig(&w.ClientConfig, path.Child("clientConfig"))...)
	if !s.conditionsUnchanged {
		errs = append(errs, s.conditions(w.MatchConditions, path.Child("matchConditions"))...)
	}
	return errs
}

// oneOf returns an error for a value that is present and unsupported (S1.20).
func oneOf[T ~string](path *field.Path, value *T, supported []string) field.ErrorList {
	if value == nil || slices.Contains(supported, string(*value)) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *value, supported)}
}

// reviewVersions checks admissionReviewVersions (S1.21).
func (s *strictness) reviewVersions(versions []string, path *field.Path) field.ErrorList {
	known := strings.Join(reviewVersions, ", ")
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+known)}
	}
	var errs field.ErrorList
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(path.Index(i), v, "duplicate version"))
			continue
		}
		for _, e := range validation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(path.Index(i), v, e))
		}
	}
	if s.versions && !slices.ContainsFunc(versions, knownVersion) {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of "+known))
	}
	return errs
}

// conditions checks matchConditions (S1.23).
func (s *strictness) conditions(conditions []v1.MatchCondition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(conditions) > 64 {
		errs = append(errs, field.TooMany(path, len(conditions), 64))
	}
	names := make(map[string]bool, len(conditions))
	for i, c := range conditions {
		path := path.Index(i)
		if text := strings.TrimSpace(c.Expression); text == "" {
			errs = append(errs, field.Required(path.Child("expression"), ""))
		} else if err := expression.Check(text, s.stored[text]); err != nil {
			errs = append(errs, conditionError(path.Child("expression"), text, err))
		}
		if c.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
			continue
		}
		for _, e := range validation.IsQualifiedName(c.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), c.Name, e))
		}
		if names[c.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), c.Name))
		}
		names[c.Name] = true
	}
	return errs
}

func conditionError(path *field.Path, text string, err error) *field.Error {
	var c *expression.CompileError
	if errors.As(err, &c) && !c.Internal {
		return field.Invalid(path, text, c.Detail)
	}
	return field.InternalError(path, fmt.Errorf("compiling %q: %w", text, err))
}
