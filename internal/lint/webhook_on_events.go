package lint

import (
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var webhookOnEvents = &Rule{
	ID: "webhook-on-events", Level: Warning, Advice: "prevent-webhook-self-trigger",
	Reads: []Part{Namespaces},
	Title: "A webhook intercepts events",
	Why: "A cluster in trouble writes many events, and each one calls the webhook. If the webhook fails closed, the events that say what is wrong " +
		"are lost while it is down. If it writes events itself, it calls itself.",
	Fix: "Leave events out of the rules, or spare them with a match condition: request.resource.resource != 'events'.",
	Fails: hook(validating, `rules:
- {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [events]}
failurePolicy: Fail
`),
	Passes: hook(validating, anyPod+"failurePolicy: Fail\n"+outside),
	check: func(p *pass) {
		event := func(group, namespace string) *probe {
			return request(admission.Create, target{group, "v1", "Event", "events", "", namespace, "web.1"}, controller("replicaset-controller"), nil)
		}
		probes := []*probe{event("", "default"), event("", "kube-system"), event("events.k8s.io", "default"), event("events.k8s.io", "kube-system")}
		for _, i := range p.interceptors(probes, func(*snapshot.Entry) bool { return true }) {
			// Rule wildcard-everything says so of all resources.
			if !failsClosed(i.Entry) && hasWildcard(i.Entry) {
				continue
			}
			level, consequence := Note, "and is called for each one"
			if failsClosed(i.Entry) {
				level, consequence = Warning, "and fails closed: while it cannot be reached, events are lost"
			}
			p.findsAs(level, at(i.Entry.Entry), "the webhook %s intercepts the %s, %s%s", i.Name, few(i.probes), consequence, unless(i.unsure))
		}
	},
}
