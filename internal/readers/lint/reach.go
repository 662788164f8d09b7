package lint

import (
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var webhookOnEvents = &Rule{
	ID: "webhook-on-events", Level: Warning, Advice: "prevent-webhook-self-trigger",
	Reads: []Part{Namespaces},
	check: func(p *pass) {
		event := func(group, namespace string) *probe {
			return request(admission.Create, target{group, "v1", "Event", "events", "", namespace, "web.1"}, controller("replicaset-controller"), nil)
		}
		probes := []*probe{event("", "default"), event("", "kube-system"), event("events.k8s.io", "default"), event("events.k8s.io", "kube-system")}
		for _, i := range p.interceptors(probes, func(*snapshot.Entry) bool { return true }) {
			// Rule wildcard-everything reports this for all resources.
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
	check: eachWebhook(func(p *pass, e *snapshot.Entry) {
		if failsClosed(e) || mutates(e) || p.isAbout(e.Rules) {
			return
		}
		// No rule of a definition can reject a deletion.
		if slices.ContainsFunc(e.Rules, func(r registration.Rule) bool { return slices.Contains(r.Operations, "DELETE") }) {
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
			p.findsCause(Note, at(e.Entry), e.Configuration, "the webhook "+e.Name, "the webhook %s may be skipped, and beside it nothing validates the spec of %s: their definitions have neither fields nor x-kubernetes-validations there", e.Name, few(names))
		}
	}),
}

var ruleOnReviews = &Rule{
	ID: "rule-on-reviews", Level: Warning, Advice: "webhook-limit-scope",
	check: func(p *pass) {
		p.webhooks(func(e *snapshot.Entry) {
			for i := range e.Rules {
				r := &e.Rules[i]
				if slices.Contains(r.APIGroups, "*") {
					// Another rule reports this.
					continue
				}
				var names []string
				for _, resource := range registration.VirtualResources() {
					// Clients use this version of the reviews. Gatehouse's own group has one version.
					version := "v1"
					if resource.Group == registration.OwnGroup {
						version = "v1alpha1"
					}
					if plan.RuleMatches(r, &plan.Request{Operation: admission.Create, Resource: resource.WithVersion(version)}) {
						names = append(names, resource.Resource)
					}
				}
				if len(names) > 0 {
					p.finds(at(e.Entry, rulesPath(e.Entry, i)...), "rule %d of %s names %s, which webhooks must not intercept", i+1, e, few(names))
				}
			}
		})
	},
}

// brief is the longest timeout of a webhook that no request notices.
const brief = 2 * time.Second

var wildcardEverything = &Rule{
	ID: "wildcard-everything", Level: Warning, Advice: "webhook-limit-scope",
	check: eachWebhook(func(p *pass, e *snapshot.Entry) {
		if !failsClosed(e) && e.Timeout <= brief {
			return
		}
		for i := range e.Rules {
			if isWildcard(e, i) {
				p.finds(at(e.Entry, rulesPath(e.Entry, i)...), "rule %d of %s matches %s of every resource in every group", i+1, e, few(e.Rules[i].Operations))
			}
		}
	}),
}

// isWildcard reports whether a rule of a webhook matches everything, without match conditions and without a label that
// objects must have.
func isWildcard(e *snapshot.Entry, rule int) bool {
	return matchesEverything(&e.Rules[rule]) && len(e.MatchConditions) == 0 && !optsIn(e.ObjectSelector)
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
	check: eachWebhook(func(p *pass, e *snapshot.Entry) {
		if !failsClosed(e) || looksAt(e.NamespaceSelector) || looksAt(e.ObjectSelector) || len(e.MatchConditions) > 0 || !aboutNamespaces(e.Rules) {
			return
		}
		if names := p.namespacedIn(e); len(names) > 0 && !slices.Equal(names, []string{"persistentvolumeclaims"}) && p.aboutSystem(e) {
			p.findsCause(p.rule.Level, at(e.Entry), e.Configuration, "the webhook "+e.Name, "the webhook %s is called for %s in every namespace", e.Name, few(names))
		}
	}),
}

// aboutSystem reports whether a webhook is about objects that the system has, too. A webhook for custom resources concerns
// the objects of one program, and the system has no ingresses and claims of volumes of its own.
func (p *pass) aboutSystem(e *snapshot.Entry) bool {
	claims := func(r registration.Rule) bool {
		return !slices.ContainsFunc(r.Resources, func(name string) bool { return name != "persistentvolumeclaims" && name != "ingresses" })
	}
	return p.isAbout(slices.DeleteFunc(slices.Clone(e.Rules), claims), networkingv1.GroupName)
}

// namespacedIn returns the resources in the rules of an entry, without the resources that are in no namespace.
func (p *pass) namespacedIn(e *snapshot.Entry) (names []string) {
	for i := range e.Rules {
		for _, named := range e.Rules[i].Resources {
			resource, _, _ := strings.Cut(named, "/")
			if wrong, _ := p.unserved(&e.Rules[i]); slices.Contains(wrong, resource) || slices.Contains(wrong, named) {
				continue
			}
			cluster := slices.ContainsFunc(p.Resources, func(r Resource) bool {
				return r.Resource == resource && !r.Namespaced && slices.Contains(e.Rules[i].APIGroups, r.Group)
			})
			if !cluster && !slices.Contains(names, named) {
				names = append(names, named)
			}
		}
	}
	return names
}

// isAbout reports whether one of the rules names a group with kinds that are not defined by a CRD, other than the groups
// in besides, or names all groups.
func (p *pass) isAbout(rules []registration.Rule, besides ...string) bool {
	if p.builtin == nil {
		p.builtin = map[string]bool{}
		for i := range p.Resources {
			if !p.Resources[i].Custom {
				p.builtin[p.Resources[i].Group] = true
			}
		}
	}
	return slices.ContainsFunc(rules, func(r registration.Rule) bool {
		return slices.ContainsFunc(r.APIGroups, func(g string) bool { return g == "*" || p.builtin[g] && !slices.Contains(besides, g) })
	})
}

var mutatesStatus = &Rule{
	ID: "mutates-status", Level: Warning, Advice: "ha-deployment",
	Reads: []Part{Namespaces},
	check: func(p *pass) {
		probes := []*probe{
			request(admission.Update, target{"", "v1", "Pod", "pods", "status", "default", "web-0"}, controller("node-controller"), nil),
			request(admission.Update, target{"", "v1", "Node", "nodes", "status", "", "node-1"}, node, nil),
		}
		// A webhook that fails open and names a status is meant for it.
		wildcard := func(r registration.Rule) bool {
			return slices.ContainsFunc(r.Resources, func(name string) bool { return strings.Contains(name, "/*") || strings.Contains(name, "*/") })
		}
		wanted := func(e *snapshot.Entry) bool {
			return mutates(e) && (failsClosed(e) || slices.ContainsFunc(e.Rules, wildcard))
		}
		for _, i := range p.interceptors(probes, wanted) {
			p.finds(at(i.Entry.Entry), "the mutating webhook %s intercepts the %s", i.Name, few(i.probes))
		}
	},
}
