package lint

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/report"
)

var controlPlaneNotExempt = &Rule{
	ID: "control-plane-not-exempt", Level: Error, Advice: "webhook-limit-scope", OnWrite: true,
	Reads: []Part{Namespaces},
	Title: "A webhook intercepts pods of kube-system",
	Why: "The pods of kube-system make the cluster work: the network, DNS, the proxy of services. A webhook that runs in the cluster " +
		"needs them. When it fails closed and cannot be reached, they cannot be replaced, and nothing makes it reachable again.",
	Fix:    "Exclude kube-system with a namespaceSelector: kubernetes.io/metadata.name NotIn [kube-system].",
	Fails:  hook(validating, anyPod+"failurePolicy: Fail\n"),
	Passes: hook(validating, anyPod+"failurePolicy: Fail\n"+outside),
	check: func(p *pass) {
		q := pod("kube-system", "network", "DaemonSet", &corev1.PodTemplateSpec{})
		for _, h := range p.hits(q, p.isWanted) {
			// Rules wildcard-everything and mutates-mirror-pods say so of webhooks that fail open.
			if !failsClosed(h.Entry) && (hasWildcard(h.Entry) || mutates(h.Entry)) {
				continue
			}
			p.findsAs(p.levelOf(h), at(h.Entry.Entry), "the webhook %s intercepts the %s, %s%s", h.Name, q.what, p.consequence(h.Entry), unless(h.unsure))
		}
	},
}

// levelOf returns the level of the finding that a webhook intercepts a request that the cluster
// needs. Only a webhook that runs in the cluster and fails closed stops itself for good.
func (p *pass) levelOf(h hit) report.Level {
	_, inside := p.serviceOf(&h.ClientConfig)
	switch {
	case !failsClosed(h.Entry):
		return Note
	case !inside || h.unsure != "":
		return Warning
	}
	return Error
}

// consequence says what happens to an intercepted request when the webhook is down.
func (p *pass) consequence(e *snapshot.Entry) string {
	_, inside := p.serviceOf(&e.ClientConfig)
	switch {
	case e.FailurePolicy != registration.Fail:
		return fmt.Sprintf("and delays it by up to %s when it cannot be reached", e.Timeout)
	case inside:
		return "fails closed and runs in the cluster: while it cannot be reached, these pods cannot be replaced"
	}
	return "and fails closed: while it cannot be reached, these pods cannot be replaced"
}
