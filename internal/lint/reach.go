package lint

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
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

var webhookOnCustomResource = &Rule{
	ID: "webhook-on-custom-resource", Level: Note, Advice: "no-crd-validation-defaulting",
	Reads: []Part{Kinds},
	Title: "A webhook that may be skipped is all that validates a custom resource",
	Why: "The webhook has failurePolicy Ignore, and the CustomResourceDefinition has no validation rules of its own. The API server applies such rules without a call, and " +
		"they hold while the webhook is down.",
	Fix:    "Move what can be said there into x-kubernetes-validations of the definition's schema.",
	Fails:  hook(validating, widgetRule+"failurePolicy: Ignore\n") + widgets,
	Passes: hook(validating, widgetRule+"failurePolicy: Ignore\n") + strings.Replace(widgets, "type: object,", "type: object, x-kubernetes-validations: [{rule: \"has(self.spec)\"}],", 1),
	check: func(p *pass) {
		builtin := p.builtin()
		p.webhooks(func(e *snapshot.Entry) {
			if failsClosed(e) || mutates(e) || isAbout(e, builtin) {
				return
			}
			var names []string
			for i := range p.Resources {
				r := &p.Resources[i]
				if !r.Custom || r.Ruled || slices.Contains(names, r.Resource) {
					continue
				}
				q := plan.Request{Operation: admission.Create, Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: p.someNamespace(r), Name: "one"}
				if matchesAny(e.Rules, &q) {
					names = append(names, r.Resource)
				}
			}
			if len(names) > 0 {
				p.findsCause(Note, at(e.Entry), e.Configuration, "the webhook "+e.Name, "the webhook %s may be skipped, and is all that validates %s: no definition of them has rules", e.Name, few(names))
			}
		})
	},
}

const widgetRule = "rules:\n- {apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}\n"

const widgets = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

var ruleOnReviews = &Rule{
	ID: "rule-on-reviews", Level: Warning, Advice: "webhook-limit-scope",
	Title: "A rule names token or access reviews",
	Why: "These reviews ask who a caller is and what a caller may do. From Kubernetes 1.37 on, webhooks are never asked about them. Older API servers ask, " +
		"and when the webhook cannot be reached, nobody can log in to components that ask the API server.",
	Fix: "Remove the rule.",
	Fails: hook(validating, `rules:
- {apiGroups: [authentication.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [tokenreviews]}
failurePolicy: Fail
`),
	Passes: hook(validating, anyPod+outside+"failurePolicy: Fail\n"),
	check: func(p *pass) {
		reviews := map[string][]string{
			"authentication.k8s.io": {"tokenreviews", "selfsubjectreviews"},
			"authorization.k8s.io":  {"subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"},
		}
		p.webhooks(func(e *snapshot.Entry) {
			for i := range e.Rules {
				r := &e.Rules[i]
				if slices.Contains(r.APIGroups, "*") {
					// Another rule reports this.
					continue
				}
				var names []string
				for _, group := range []string{"authentication.k8s.io", "authorization.k8s.io"} {
					for _, resource := range reviews[group] {
						gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}
						if registration.IsVirtual(gvr.GroupResource()) && plan.RuleMatches(r, &plan.Request{Operation: admission.Create, Resource: gvr}) {
							names = append(names, resource)
						}
					}
				}
				if len(names) > 0 {
					p.finds(at(e.Entry, rulesPath(e.Entry, i)...), "rule %d of %s names %s, which webhooks must not intercept", i+1, e, few(names))
				}
			}
		})
	},
}

var wildcardEverything = &Rule{
	ID: "wildcard-everything", Level: Warning, Advice: "webhook-limit-scope",
	Title: "A rule matches every resource of every group",
	Why: "The webhook is called for all writes of the cluster: leases, events, status updates, and kinds that come later. Rules cannot exclude " +
		"resources, and a namespaceSelector does not spare what is in no namespace.",
	Fix: "Name the resources that the webhook judges, or spare others with match conditions, such as !(request.resource.group in ['coordination.k8s.io']).",
	Fails: hook(validating, `rules:
- {apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}
failurePolicy: Ignore
`),
	Passes: hook(validating, `rules:
- {apiGroups: [apps], apiVersions: ["*"], operations: ["*"], resources: ["*"]}
failurePolicy: Ignore
`),
	check: func(p *pass) {
		p.webhooks(func(e *snapshot.Entry) {
			for i := range e.Rules {
				if isWildcard(e, i) {
					p.finds(at(e.Entry, rulesPath(e.Entry, i)...), "rule %d of %s matches %s of every resource in every group", i+1, e, few(e.Rules[i].Operations))
				}
			}
		})
	},
}

// isWildcard reports whether a webhook is called for all that a rule of it matches, and that
// is everything.
func isWildcard(e *snapshot.Entry, rule int) bool {
	return matchesEverything(&e.Rules[rule]) && len(e.MatchConditions) == 0
}

// hasWildcard reports whether a webhook has a finding of wildcard-everything.
func hasWildcard(e *snapshot.Entry) bool {
	for i := range e.Rules {
		if isWildcard(e, i) {
			return true
		}
	}
	return false
}

func matchesEverything(r *registration.Rule) bool {
	return slices.Contains(r.APIGroups, "*") && slices.Contains(r.APIVersions, "*") &&
		(slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, "*/*")) && r.Scope != "Namespaced"
}

var unscoped = &Rule{
	ID: "unscoped", Level: Note, Advice: "filter-match-conditions",
	Title: "A webhook is called for objects in every namespace",
	Why: "Each call adds to the time of a request, and each request depends on the webhook. Without a namespaceSelector, an objectSelector or match conditions, the " +
		"webhook is called for the system's own objects, too.",
	Fix:    "Select the namespaces that are meant, or spare requests that need no answer with match conditions.",
	Fails:  hook(mutating, anyPod+"failurePolicy: Ignore\n"),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\n"),
	check: func(p *pass) {
		builtin := p.builtin()
		p.webhooks(func(e *snapshot.Entry) {
			if looksAt(e.NamespaceSelector) || looksAt(e.ObjectSelector) || len(e.MatchConditions) > 0 || !aboutNamespaces(e.Rules) {
				return
			}
			// A webhook about custom resources is about one program's objects.
			if !isAbout(e, builtin) {
				return
			}
			p.findsCause(p.rule.Level, at(e.Entry), e.Configuration, "the webhook "+e.Name, "the webhook %s is called for %s in every namespace", e.Name, few(e.Rules[0].Resources))
		})
	},
}

// builtin returns the groups with kinds that no CustomResourceDefinition defines.
func (p *pass) builtin() map[string]bool {
	groups := map[string]bool{}
	for i := range p.Resources {
		if !p.Resources[i].Custom {
			groups[p.Resources[i].Group] = true
		}
	}
	return groups
}

// isAbout reports whether a rule of an entry names one of the groups, or all.
func isAbout(e *snapshot.Entry, groups map[string]bool) bool {
	return slices.ContainsFunc(e.Rules, func(r registration.Rule) bool {
		return slices.ContainsFunc(r.APIGroups, func(g string) bool { return g == "*" || groups[g] })
	})
}

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
