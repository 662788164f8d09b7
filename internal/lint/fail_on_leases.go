package lint

import (
	"time"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// patience is how long the controller manager and the scheduler wait for the renewal of
// their leases.
const patience = 5 * time.Second

var failOnLeases = &Rule{
	ID: "fail-on-leases", Level: Error, Advice: "webhook-limit-scope", OnWrite: true,
	Reads: []Part{Namespaces},
	Title: "A webhook intercepts leases of nodes or of the control plane",
	Why: "A node whose lease is not renewed counts as lost after 40 seconds, and its pods are evicted. The controller manager and the scheduler " +
		"stop without theirs, and then nothing replaces the pods of the webhook. A renewal that takes longer than five seconds has failed, too.",
	Fix: "Leave leases of coordination.k8s.io out of the rules, or exclude kube-system and kube-node-lease with a namespaceSelector.",
	Fails: hook(validating, `rules:
- {apiGroups: [coordination.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [leases]}
failurePolicy: Fail
`),
	Passes: hook(validating, `rules:
- {apiGroups: [coordination.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [leases]}
failurePolicy: Fail
namespaceSelector:
  matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-node-lease, policies]}
`),
	check: func(p *pass) {
		lease := func(o admission.Operation, namespace, name string, by user.Info) *probe {
			return request(o, target{"coordination.k8s.io", "v1", "Lease", "leases", "", namespace, name}, by, nil)
		}
		probes := []*probe{
			lease(admission.Create, "kube-node-lease", "node-1", node),
			lease(admission.Update, "kube-node-lease", "node-1", node),
			lease(admission.Update, "kube-system", "kube-controller-manager", manager),
			lease(admission.Update, "kube-system", "kube-scheduler", scheduler),
			lease(admission.Update, "kube-system", "apiserver-1", apiServer),
		}
		for _, i := range p.interceptors(probes, func(e *snapshot.Entry) bool { return true }) {
			level, consequence := Error, "fails closed: while it cannot be reached, nodes are lost and the control plane stops"
			switch {
			case failsClosed(i.Entry):
			case i.Timeout >= patience:
				level, consequence = Warning, "and may take "+i.Timeout.String()+", which is longer than a renewal may take"
			case mutates(i.Entry):
				level, consequence = Warning, "and may change it; leases of nodes must not be changed"
			case hasWildcard(i.Entry):
				// Rule wildcard-everything says so of all resources.
				continue
			default:
				level, consequence = Note, "and delays it when it cannot be reached"
			}
			p.findsAs(closed(i.hit, level), at(i.Entry.Entry), "the webhook %s intercepts the %s, %s%s", i.Name, few(i.probes), consequence, unless(i.unsure))
		}
	},
}
