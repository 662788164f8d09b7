package lint

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

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
