package lint

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

var registrationWritable = &Rule{
	ID: "registration-writable", Level: Error, Advice: "limit-edit-access",
	Reads: []Part{Access},
	Title: "Everybody may change registrations, or what runs a webhook",
	Why: "A mutating webhook sees and changes the writes of all users, and needs no rights for it. A user who may register one, or replace the server of one, can do " +
		"everything in the cluster.",
	Fix: "Give the verbs create, update, patch, delete and deletecollection on admissionregistration.k8s.io, and on everything in the namespace of a webhook's " +
		"server, to administrators only.",
	Fails:  hook(mutating, anyPod+outside+"failurePolicy: Ignore\n") + grant("system:authenticated"),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\n") + grant("cluster-operators"),
	check: func(p *pass) {
		servers := map[string]string{}
		for _, source := range hooks {
			for _, e := range p.Snapshot.Entries(source) {
				if name, inside := p.serviceOf(&e.ClientConfig); inside && servers[name.Namespace] == "" {
					servers[name.Namespace] = e.String()
				}
			}
		}
		for i := range p.Grants {
			g := &p.Grants[i]
			if !slices.Contains(everybody, g.Group) {
				continue
			}
			where := place{g.Binding, []any{"subjects"}}
			if g.Binding.Namespace == "" {
				if resource := writableRegistration(g.Rules); resource != "" {
					p.finds(where, "the group %s may change %s, by %s and the role %s", g.Group, resource, g.Binding, g.Role)
				}
				continue
			}
			if hook := servers[g.Binding.Namespace]; hook != "" && writesPods(g.Rules) {
				p.finds(where, "the group %s may change what runs in namespace %s, where the server of the webhook %s is, by %s and the role %s",
					g.Group, g.Binding.Namespace, hook, g.Binding, g.Role)
			}
		}
	},
}

// everybody are the users and groups that stand for many users, such as all authenticated ones.
var everybody = []string{"system:authenticated", "system:unauthenticated", "system:anonymous", "system:serviceaccounts"}

var writes = []string{"*", "create", "update", "patch", "delete", "deletecollection"}

func writesAny(r *rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(r.Verbs, func(v string) bool { return slices.Contains(writes, v) })
}

// writableRegistration returns a kind of registration that a user with the rules may write.
func writableRegistration(rules []rbacv1.PolicyRule) string {
	for i := range rules {
		r := &rules[i]
		if !writesAny(r) || !slices.Contains(r.APIGroups, "*") && !slices.Contains(r.APIGroups, registration.GroupName) {
			continue
		}
		for _, d := range registration.Sources() {
			if slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, d.Resource) {
				return d.Resource
			}
		}
	}
	return ""
}

// writesPods reports whether a user with the rules may write pods or workloads.
func writesPods(rules []rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return writesAny(&r) && slices.ContainsFunc(r.Resources, func(resource string) bool {
			return slices.Contains([]string{"*", "pods", "deployments", "daemonsets", "statefulsets", "replicasets"}, resource)
		})
	})
}

func grant(group string) string {
	return `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: webhooks}
rules: [{apiGroups: [admissionregistration.k8s.io], resources: [mutatingwebhookconfigurations], verbs: [create, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: webhooks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: webhooks}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "` + group + `"}]
`
}
