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
		builtin := map[string]bool{}
		for i := range p.Resources {
			if !p.Resources[i].Custom {
				builtin[p.Resources[i].Group] = true
			}
		}
		p.webhooks(func(e *snapshot.Entry) {
			if looksAt(e.NamespaceSelector) || looksAt(e.ObjectSelector) || len(e.MatchConditions) > 0 || !aboutNamespaces(e.Rules) {
				return
			}
			// A webhook about custom resources is about one program's objects.
			if !slices.ContainsFunc(e.Rules, func(r registration.Rule) bool {
				return slices.ContainsFunc(r.APIGroups, func(g string) bool { return g == "*" || builtin[g] })
			}) {
				return
			}
			p.finds(at(e.Entry), "the webhook %s is called for %s in every namespace", e.Name, few(e.Rules[0].Resources))
		})
	},
}
