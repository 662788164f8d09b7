package builtins

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// Rules are the RBAC rules that offline.Connect and Enable need to explain the requests for pods and their workloads, in any
// namespace: to read objects, to ask about users' rights, and to ask a Gatehouse server.
func Rules() []rbacv1.PolicyRule {
	lists := map[string][]string{}
	list := func(group, resource string) { lists[group] = append(lists[group], resource) }
	for _, d := range registration.Sources() {
		list(registration.GroupName, d.Resource)
	}
	for _, p := range plugins.All() {
		for _, r := range p.Reads {
			// Pods are read when the labels of a namespace change.
			if p.Default && r.Resource != "namespaces" && r.Resource != "pods" {
				list(r.Group, r.Resource)
			}
		}
	}
	// Quotas of devices.
	list("resource.k8s.io", "deviceclasses")
	list("resource.k8s.io", "resourceclaims")
	return append(clustersnapshot.Listing(lists),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "pods", "persistentvolumeclaims", "replicationcontrollers"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"daemonsets", "deployments", "replicasets", "statefulsets"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{"batch"}, Resources: []string{"cronjobs", "jobs"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{apiextensions.GroupName}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"}},
		// The addresses that services may request.
		rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ipaddresses", "servicecidrs"}, Verbs: []string{"get", "list"}},
		// To check whether users grant more rights than they have.
		rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterrolebindings", "clusterroles", "rolebindings", "roles"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{authorizationv1.GroupName}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{registration.OwnGroup}, Resources: []string{offline.Explanations}, Verbs: []string{"create"}},
	)
}
