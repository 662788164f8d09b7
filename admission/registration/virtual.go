package registration

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

// IsVirtual reports whether a resource is a review, which the server answers and never stores.
// No hook is called for it (S2.41).
func IsVirtual(resource schema.GroupResource) bool {
	switch resource.Group {
	case "authentication.k8s.io":
		return resource.Resource == "selfsubjectreviews" || resource.Resource == "tokenreviews"
	case "authorization.k8s.io":
		switch resource.Resource {
		case "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews":
			return true
		}
	}
	return false
}

// Warnings returns warnings for the writer of a valid registration object: one for each virtual
// resource that a rule names (S1.36).
func Warnings(obj runtime.Object) []string {
	var warnings []string
	warn := func(path *field.Path, from string, groups, resources []string) {
		if slices.Contains(groups, "*") || slices.Contains(resources, "*") {
			return
		}
		var seen []schema.GroupResource
		for _, g := range groups {
			for _, r := range resources {
				gr := schema.GroupResource{Group: g, Resource: r}
				if IsVirtual(gr) && !slices.Contains(seen, gr) {
					seen = append(seen, gr)
					warnings = append(warnings, fmt.Sprintf("%s: %s is excluded from %s; this rule will have no effect", path, gr, from))
				}
			}
		}
	}
	if c, ok := asWebhooks(obj); ok {
		path := field.NewPath("webhooks")
		for i := range c.webhooks {
			eachRule(c.webhooks[i].Rules, func(j int, r *v1.RuleWithOperations) {
				warn(path.Index(i).Child("rules").Index(j), "admission webhooks", r.APIGroups, r.Resources)
			})
		}
	}
	if c, ok := obj.(*v1alpha1.ExternalAdmissionHookConfiguration); ok {
		path := field.NewPath("externalAdmissionHooks")
		for i := range c.ExternalAdmissionHooks {
			eachRule(c.ExternalAdmissionHooks[i].Rules, func(j int, r *v1alpha1.RuleWithOperations) {
				warn(path.Index(i).Child("rules").Index(j), "admission webhooks", r.APIGroups, r.Resources)
			})
		}
	}
	if c, ok := obj.(*v1alpha1.InitializerConfiguration); ok {
		path := field.NewPath("initializers")
		for i := range c.Initializers {
			eachRule(c.Initializers[i].Rules, func(j int, r *v1alpha1.Rule) {
				warn(path.Index(i).Child("rules").Index(j), "initializers", r.APIGroups, r.Resources)
			})
		}
	}
	return warnings
}

func eachRule[R any](rules []R, f func(int, *R)) {
	for i := range rules {
		f(i, &rules[i])
	}
}
