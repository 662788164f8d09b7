package lint

import (
	"k8s.io/apiserver/pkg/admission"
)

var failOnNodes = &Rule{
	ID: "fail-on-nodes", Level: Error, Advice: "webhook-limit-scope", OnWrite: true,
	Title: "A webhook that fails closed intercepts what nodes need to join and to stay",
	Why: "Nodes register themselves, report their status, and ask for certificates. When all nodes start at the same time, no webhook in the cluster " +
		"runs yet. If it fails closed, no node joins, and it never runs. Nodes and certificate signing requests are in no namespace: a " +
		"namespaceSelector does not spare them.",
	Fix: "Leave nodes and certificatesigningrequests out of the rules, or spare them with a match condition: " +
		"!(request.resource.resource in ['nodes', 'certificatesigningrequests']).",
	Fails: hook(validating, `rules:
- {apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: ["*"]}
failurePolicy: Fail
`+outside),
	Passes: hook(validating, `rules:
- {apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: ["*"]}
failurePolicy: Fail
matchConditions:
- {name: not-nodes, expression: "!(request.resource.resource in ['nodes', 'certificatesigningrequests', 'leases'])"}
`+outside),
	check: func(p *pass) {
		of := func(sub string) target {
			return target{version: "v1", kind: "Node", resource: "nodes", sub: sub, name: "node-1"}
		}
		csr := func(sub string) target {
			return target{group: "certificates.k8s.io", version: "v1", kind: "CertificateSigningRequest", resource: "certificatesigningrequests", sub: sub, name: "node-csr-1"}
		}
		content := map[string]any{"metadata": map[string]any{"labels": map[string]any{"kubernetes.io/hostname": "node-1"}}}
		probes := []*probe{
			request(admission.Create, of(""), node, content),
			request(admission.Update, of(""), node, content),
			request(admission.Update, of("status"), node, content),
			request(admission.Create, csr(""), bootstrapping, nil),
			request(admission.Update, csr("approval"), controller("certificate-controller"), nil),
			request(admission.Update, csr("status"), controller("certificate-controller"), nil),
		}
		for _, i := range p.interceptors(probes, failsClosed) {
			level := Warning
			if _, inside := p.serviceOf(&i.ClientConfig); inside {
				level = Error
			}
			p.findsAs(closed(i.hit, level), at(i.Entry.Entry), "the webhook %s fails closed and intercepts the %s: while it cannot be reached, nodes cannot do this%s",
				i.Name, few(i.probes), unless(i.unsure))
		}
	},
}
