package registration

import (
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

// validateAlpha checks an object of v1alpha1. old is the stored object; nil on create.
func validateAlpha(obj, old runtime.Object) field.ErrorList {
	stored := map[string]bool{}
	switch c := obj.(type) {
	case *v1alpha1.InitializerConfiguration:
		if old != nil {
			o, ok := old.(*v1alpha1.InitializerConfiguration)
			if !ok {
				return field.ErrorList{field.InternalError(nil, unknown(old))}
			}
			for i := range o.Initializers {
				stored[o.Initializers[i].Name] = true
			}
		}
		return append(validateMeta(&c.ObjectMeta), validateInitializers(c.Initializers, stored)...)
	case *v1alpha1.ExternalAdmissionHookConfiguration:
		var before metav1.Object
		if old != nil {
			o, ok := old.(*v1alpha1.ExternalAdmissionHookConfiguration)
			if !ok {
				return field.ErrorList{field.InternalError(nil, unknown(old))}
			}
			for i := range o.ExternalAdmissionHooks {
				stored[o.ExternalAdmissionHooks[i].Name] = true
			}
			before = o
		}
		names := make([]string, len(c.ExternalAdmissionHooks))
		errs := validateMeta(&c.ObjectMeta)
		for i := range c.ExternalAdmissionHooks {
			h := &c.ExternalAdmissionHooks[i]
			names[i] = h.Name
			errs = append(errs, validateExternal(h, stored[h.Name], field.NewPath("externalAdmissionHooks").Index(i))...)
		}
		return append(errs, ValidateEnforcement(c, before, names)...)
	}
	return field.ErrorList{field.InternalError(nil, unknown(obj))}
}

func validateMeta(meta *metav1.ObjectMeta) field.ErrorList {
	return apivalidation.ValidateObjectMeta(meta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

// validateInitializers checks the list of an InitializerConfiguration (S1.26 to S1.29). stored
// has the names of the initializers in the stored object.
func validateInitializers(list []v1alpha1.Initializer, stored map[string]bool) field.ErrorList {
	var errs field.ErrorList
	names, finalizers := make(map[string]bool, len(list)), map[string]bool{}
	for i := range list {
		in, path := &list[i], field.NewPath("initializers").Index(i)
		errs = append(errs, validation.IsFullyQualifiedName(path.Child("name"), in.Name)...)
		if in.Name != "" {
			if names[in.Name] {
				errs = append(errs, field.Duplicate(path.Child("name"), in.Name))
			}
			names[in.Name] = true
		}
		for j := range in.Rules {
			r, path := &in.Rules[j], path.Child("rules").Index(j)
			errs = append(errs, validateGroupVersions(path, r.APIGroups, r.APIVersions)...)
			errs = append(errs, validateMainResources(path.Child("resources"), r.Resources)...)
		}
		errs = append(errs, validateNewPolicy(in.FailurePolicy, stored[in.Name], path.Child("failurePolicy"))...)
		errs = append(errs, validateNeighbours(in.After, in.Name, path.Child("after"))...)
		errs = append(errs, validateNeighbours(in.Before, in.Name, path.Child("before"))...)
		errs = append(errs, validateFinalizer(in.Finalizer, finalizers, path.Child("finalizer"))...)
	}
	return errs
}

// validateFinalizer checks the finalizer of an initializer (S1.39), and adds it to seen, the
// finalizers of earlier initializers.
func validateFinalizer(name string, seen map[string]bool, path *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	errs := apivalidation.ValidateFinalizerName(name, path)
	domain, _, qualified := strings.Cut(name, "/")
	switch {
	case len(errs) > 0:
	case !qualified:
		errs = append(errs, field.Invalid(path, name, "must have a domain before a slash, such as example.com/address"))
	case domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io"):
		errs = append(errs, field.Invalid(path, name, "must not be in the domain of Kubernetes, whose controllers remove such finalizers"))
	case seen[name]:
		errs = append(errs, field.Duplicate(path, name))
	}
	seen[name] = true
	return errs
}

// validateNeighbours checks the names of other initializers.
func validateNeighbours(names []string, own string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range names {
		errs = append(errs, validation.IsFullyQualifiedName(path.Index(i), name)...)
		if name == own && name != "" {
			errs = append(errs, field.Invalid(path.Index(i), name, "must not be the initializer itself"))
		}
	}
	return errs
}

// validateNewPolicy allows Fail only for stored hooks, so that a user cannot block a cluster with a
// hook that never worked (S1.27, S1.28, S1.34).
func validateNewPolicy(policy *v1alpha1.FailurePolicyType, stored bool, path *field.Path) field.ErrorList {
	if stored {
		return oneOf(path, policy, failurePolicies)
	}
	return oneOf(path, policy, []string{"Ignore"})
}

// validateExternal checks a hook of v1alpha1 (S1.31, S1.33, S1.34).
func validateExternal(h *v1alpha1.ExternalAdmissionHook, stored bool, path *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(path.Child("name"), h.Name)
	for j := range h.Rules {
		r := &h.Rules[j]
		path := path.Child("rules").Index(j)
		if len(r.Verbs) > 0 {
			errs = append(errs, field.Invalid(path.Child("verbs"), r.Verbs, "is another name of operations; only one of them may be present"))
		}
		errs = append(errs, validateRule(path, r.Operations, r.APIGroups, r.APIVersions, r.Resources, nil)...)
	}
	errs = append(errs, validateNewPolicy(h.FailurePolicy, stored, path.Child("failurePolicy"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(h.NamespaceSelector, metav1validation.LabelSelectorValidationOptions{}, path.Child("namespaceSelector"))...)
	client := path.Child("clientConfig")
	errs = append(errs, validateService(h.ClientConfig.Service.Namespace, h.ClientConfig.Service.Name, client.Child("service"))...)
	errs = append(errs, validatePath(h.ClientConfig.URLPath, client.Child("urlPath"))...)
	if len(h.ClientConfig.CABundle) == 0 {
		errs = append(errs, field.Required(client.Child("caBundle"), ""))
	}
	return errs
}
