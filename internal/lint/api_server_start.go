package lint

import (
	"k8s.io/apiserver/pkg/admission"
)

var apiServerStart = &Rule{
	ID: "api-server-start", Level: Warning,
	Reads: []Part{Namespaces},
	Title: "A webhook that fails closed intercepts what the API server writes when it starts",
	Why: "An API server makes the roles, priorities and flow schemas of the system when it starts, and goes through admission like everybody else. While the " +
		"webhook cannot be reached, a server that has to make or change one of them, such as one of a new release, does not become ready, or ends. It also makes " +
		"namespaces, a config map, and the service and endpoints of its own, and becomes ready without these.",
	Fix: "Spare the API server with a match condition: request.userInfo.username != 'system:apiserver'.",
	Fails: hook(validating, `rules:
- {apiGroups: [rbac.authorization.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [clusterroles]}
failurePolicy: Fail
`),
	Passes: hook(validating, `rules:
- {apiGroups: [rbac.authorization.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [clusterroles]}
failurePolicy: Fail
matchConditions:
- {name: not-the-server, expression: "request.userInfo.username != 'system:apiserver'"}
`),
	check: func(p *pass) {
		var probes []*probe
		const rbac = "rbac.authorization.k8s.io"
		const flow = "flowcontrol.apiserver.k8s.io"
		for _, t := range []target{
			{rbac, "v1", "ClusterRole", "clusterroles", "", "", "cluster-admin"},
			{rbac, "v1", "ClusterRoleBinding", "clusterrolebindings", "", "", "cluster-admin"},
			{rbac, "v1", "Role", "roles", "", "kube-system", "extension-apiserver-authentication-reader"},
			{rbac, "v1", "RoleBinding", "rolebindings", "", "kube-system", "system:extension-apiserver-authentication-reader"},
			{"scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "", "", "system-node-critical"},
			{flow, "v1", "FlowSchema", "flowschemas", "", "", "system-nodes"},
			{flow, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", "", "", "node-high"},
		} {
			probes = append(probes, request(admission.Create, t, apiServer, nil), request(admission.Update, t, apiServer, nil))
		}
		for _, i := range p.interceptors(probes, failsClosed) {
			p.finds(at(i.Entry.Entry), "the webhook %s fails closed and intercepts the %s by the API server itself: while it cannot be reached, an API server that has to do so, such as one of a new release, does not become ready%s",
				i.Name, few(i.probes), unless(i.unsure))
		}
	},
}
