package lint

import (
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var apiServerStart = &Rule{
	ID: "api-server-start", Level: Warning,
	Reads: []Part{Namespaces},
	Title: "A webhook that fails closed intercepts what the API server writes when it starts",
	Why: "An API server makes the namespaces of the system, roles, priorities and the config map with its certificate authorities when it starts, and goes " +
		"through admission like everybody else. While the webhook cannot be reached, a server that has to make one of them does not become ready, or ends.",
	Fix: "Spare the API server with a match condition: request.userInfo.username != 'system:apiserver'; or exclude the namespaces of the " +
		"system with a namespaceSelector, which compares a Namespace by its own labels.",
	Fails: hook(validating, `rules:
- {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}
failurePolicy: Fail
`),
	Passes: hook(validating, `rules:
- {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}
failurePolicy: Fail
namespaceSelector:
  matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [default, kube-system, kube-public, kube-node-lease, policies]}
`),
	check: func(p *pass) {
		var namespaces, probes []*probe
		for _, name := range []string{"kube-system", "kube-public", "kube-node-lease", "default"} {
			labels := map[string]any{}
			for key, value := range p.labelsOf(name) {
				labels[key] = value
			}
			namespaces = append(namespaces, request(admission.Create, target{version: "v1", kind: "Namespace", resource: "namespaces", name: name}, apiServer,
				map[string]any{"metadata": map[string]any{"labels": labels}}))
		}
		const rbac = "rbac.authorization.k8s.io"
		const flow = "flowcontrol.apiserver.k8s.io"
		for _, t := range []target{
			{"", "v1", "ConfigMap", "configmaps", "", "kube-system", "extension-apiserver-authentication"},
			{rbac, "v1", "ClusterRole", "clusterroles", "", "", "cluster-admin"},
			{rbac, "v1", "ClusterRoleBinding", "clusterrolebindings", "", "", "cluster-admin"},
			{rbac, "v1", "Role", "roles", "", "kube-system", "extension-apiserver-authentication-reader"},
			{rbac, "v1", "RoleBinding", "rolebindings", "", "kube-system", "system:extension-apiserver-authentication-reader"},
			{"scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "", "", "system-node-critical"},
			{flow, "v1", "FlowSchema", "flowschemas", "", "", "system-nodes"},
			{flow, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", "", "", "node-high"},
			{"", "v1", "Service", "services", "", "default", "kubernetes"},
			{"discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "", "default", "kubernetes"},
		} {
			probes = append(probes, request(admission.Create, t, apiServer, nil), request(admission.Update, t, apiServer, nil))
		}
		said := map[*snapshot.Entry]bool{}
		for _, i := range p.interceptors(namespaces, failsClosed) {
			said[i.Entry] = true
			p.finds(at(i.Entry.Entry), "the webhook %s fails closed and intercepts the %s by the API server itself: while it cannot be reached, an API server that has to make them does not become ready%s",
				i.Name, few(i.probes), unless(i.unsure))
		}
		// These objects exist already when a server starts for the second time.
		for _, i := range p.interceptors(probes, failsClosed) {
			if !said[i.Entry] {
				p.finds(at(i.Entry.Entry), "the webhook %s fails closed and intercepts the %s by the API server itself: while it cannot be reached, a new API server, or one of a new release, does not become ready%s",
					i.Name, few(i.probes), unless(i.unsure))
			}
		}
	},
}
