package lint

import (
	"k8s.io/apiserver/pkg/admission"
)

var mutatesStatus = &Rule{
	ID: "mutates-status", Level: Warning, Advice: "ha-deployment",
	Reads: []Part{Namespaces},
	Title: "A mutating webhook intercepts status updates of pods or nodes",
	Why: "When a node or a zone is lost, many pods are marked as not ready at the same time, so that traffic goes elsewhere. A mutating webhook that is called for " +
		"each of these updates delays that, and is itself overloaded.",
	Fix: "Leave subresources such as pods/status out of the rules, and the resource */*.",
	Fails: hook(mutating, `rules:
- {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: ["pods/*"]}
failurePolicy: Ignore
`+outside),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\n"),
	check: func(p *pass) {
		probes := []*probe{
			request(admission.Update, target{"", "v1", "Pod", "pods", "status", "default", "web-0"}, controller("node-controller"), nil),
			request(admission.Update, target{"", "v1", "Node", "nodes", "status", "", "node-1"}, node, nil),
		}
		for _, i := range p.interceptors(probes, mutates) {
			p.finds(at(i.Entry.Entry), "the mutating webhook %s intercepts the %s", i.Name, few(i.probes))
		}
	},
}
