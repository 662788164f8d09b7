package lint

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

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
