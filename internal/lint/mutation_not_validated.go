package lint

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var mutationNotValidated = &Rule{
	ID: "mutation-not-validated", Level: Note, Advice: "validate-mutations",
	Reads: []Part{Kinds},
	Title: "Nothing validates what a mutating webhook sets",
	Why: "The webhook has failurePolicy Ignore and may be skipped, a later webhook may undo the change, and users may update the object where the webhook does not look. " +
		"Nobody notices unless the validating pass looks at the result.",
	Fix:   "The rule looks at clusters: files do not say what else validates in one. If it matters that the change is there, add a ValidatingAdmissionPolicy or a validating webhook for the same resources.",
	Fails: hook(mutating, anyPod+outside+"failurePolicy: Ignore\n") + "---\n" + strings.ReplaceAll(hook(validating, anyPod+outside+"failurePolicy: Ignore\n"), "[pods]", "[services]"),
	Passes: hook(mutating, anyPod+outside+"failurePolicy: Ignore\n") + "---\n" +
		policy("validations:\n- {expression: \"object.spec.containers.exists(c, c.name == 'sidecar')\"}\n"),
	check: func(p *pass) {
		if p.Partial || p.Hidden[registration.Validating] != "" || p.Hidden[registration.ValidatingPolicies] != "" {
			return
		}
		known := map[schema.GroupVersionResource]bool{}
		validated := func(r *Resource) bool {
			answer, ok := known[r.GroupVersionResource]
			if !ok {
				answer = p.validated(r)
				known[r.GroupVersionResource] = answer
			}
			return answer
		}
		p.webhooks(func(e *snapshot.Entry) {
			if !mutates(e) || failsClosed(e) {
				return
			}
			mutatedAny := false
			for i := range p.Resources {
				r := &p.Resources[i]
				q := plan.Request{Operation: admission.Create, Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: p.someNamespace(r), Name: "one"}
				if !matchesAny(e.Rules, &q) {
					continue
				}
				mutatedAny = true
				if validated(r) {
					return
				}
			}
			if mutatedAny {
				p.findsCause(Note, at(e.Entry), "any", "the webhook "+e.Name, "no validating webhook or policy in force judges what the mutating webhook %s changes", e.Name)
			}
		})
	},
}

// validated reports whether any entry judges writes of a resource in the validating pass.
func (p *pass) validated(r *Resource) bool {
	for _, o := range []admission.Operation{admission.Create, admission.Update} {
		q := plan.Request{Operation: o, Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: p.someNamespace(r), Name: "one"}
		for _, source := range []registration.Source{registration.Validating, registration.External, registration.ValidatingPolicies} {
			if len(plan.Candidates(p.Snapshot, source, &q, p.Equivalents)) > 0 {
				return true
			}
		}
	}
	return false
}
