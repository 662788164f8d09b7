package crdschema

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Matching returns the names of the webhook configurations and policies, among the objects, with a rule for a group that
// depends on the resource or the scope.
func Matching(objects []*unstructured.Unstructured, group string) (names []string) {
	for _, u := range objects {
		if u.GroupVersionKind().Group != registration.GroupName {
			continue
		}
		name := u.GetName()
		if policy, _, _ := unstructured.NestedString(u.Object, "spec", "policyName"); policy != "" {
			name = policy
		}
		var rules []any
		for _, path := range [][]string{{"spec", "matchConstraints"}, {"spec", "matchResources"}} {
			list, _, _ := unstructured.NestedSlice(u.Object, append(path, "resourceRules")...)
			excluded, _, _ := unstructured.NestedSlice(u.Object, append(path, "excludeResourceRules")...)
			rules = slices.Concat(rules, list, excluded)
		}
		webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		for _, w := range webhooks {
			webhook, _ := w.(map[string]any)
			list, _ := webhook["rules"].([]any)
			rules = append(rules, list...)
		}
		if slices.ContainsFunc(rules, func(rule any) bool { return byResource(rule, group) }) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// byResource reports whether a rule is for a group and depends on the resource or the scope.
func byResource(rule any, group string) bool {
	r, _ := rule.(map[string]any)
	groups, _ := r["apiGroups"].([]any)
	if !slices.Contains(groups, any(group)) && !slices.Contains(groups, any("*")) {
		return false
	}
	scope, _ := r["scope"].(string)
	resources, _ := r["resources"].([]any)
	return scope != "" && scope != "*" || !slices.Contains(resources, any("*")) && !slices.Contains(resources, any("*/*"))
}
