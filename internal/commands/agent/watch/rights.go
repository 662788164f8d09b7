package watch

import (
	_ "embed"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// rights is the template around the rules.
//
//go:embed rights.yaml
var rights string

// RBAC returns the rights that a Watcher needs, as manifests, for a pod of a namespace with a service account; empty if
// it does nothing. audited are the resources whose objects are audited.
func RBAC(namespace, name string, lints bool, audited []string) (string, error) {
	var rules, others []rbacv1.PolicyRule
	if lints {
		rules = append(rules, offline.LintRules()...)
		// Derived traces need the namespace labels, for the selectors of webhooks and policies.
		others = append(others, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"watch"}})
	}
	if len(audited) > 0 {
		rules = append(rules, clustersnapshot.Rules()...)
	}
	for _, resource := range audited {
		r := schema.ParseGroupResource(resource)
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}})
	}
	if len(rules) == 0 {
		return "", nil
	}
	lists := map[string][]string{}
	others = append(others, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create"}})
	for _, r := range rules {
		if len(r.NonResourceURLs) > 0 {
			others = append(others, r)
			continue
		}
		lists[r.APIGroups[0]] = append(lists[r.APIGroups[0]], r.Resources...)
	}
	var all []rbacv1.PolicyRule
	for _, group := range slices.Sorted(maps.Keys(lists)) {
		slices.Sort(lists[group])
		one := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: slices.Compact(lists[group]), Verbs: []string{"list"}}
		if group == registration.GroupName || group == "apiextensions.k8s.io" {
			one.Verbs = append(one.Verbs, "watch")
		}
		all = append(all, one)
	}
	for _, kind := range []report.Reports{report.OpenReports, report.PolicyReports} {
		of := resourcesOf(kind)
		all = append(all, rbacv1.PolicyRule{APIGroups: []string{of[0].Group}, Resources: []string{of[1].Resource, of[0].Resource}, Verbs: []string{"list", "create", "patch", "delete"}})
	}
	data, err := yaml.Marshal(append(all, others...))
	if err != nil {
		return "", err
	}
	return strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "RULES", string(data), "LEASE", LeaseName).Replace(rights), nil
}
