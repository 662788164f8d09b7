package lint

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

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
