package lint

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

var orderCycle = &Rule{
	ID: "order-cycle", Level: Warning,
	Title: "Webhooks or mutating policies contradict each other about their order",
	Why: "The annotations " + registration.AfterAnnotation + " and " + registration.BeforeAnnotation + " ask for an order that cannot be. One of the wishes is not granted. " +
		"A kube-apiserver ignores all of them.",
	Fix:    "Remove one of the wishes of the cycle.",
	Fails:  ordered("policies", "sidecars") + "---\n" + ordered("sidecars", "policies"),
	Passes: ordered("policies", "sidecars") + "---\n" + ordered("sidecars", ""),
	check: func(p *pass) {
		p.cycles(registration.Mutating, "mutating webhook configurations", annotated)
		p.cycles(registration.MutatingPolicies, "mutating policies", annotated)
	},
}

// annotated is the place of an annotation that asks for an order.
func annotated(c *registration.Constraint) place {
	annotation := registration.BeforeAnnotation
	if c.By.Configuration == c.Later {
		annotation = registration.AfterAnnotation
	}
	return place{object: objectOf(c.By), path: []any{"metadata", "annotations", annotation}}
}

// ordered returns an example of a configuration that asks to come after another one.
func ordered(name, after string) string {
	example := hook(mutating, anyPod+outside+"failurePolicy: Ignore\nreinvocationPolicy: Never\n")
	metadata := "metadata: {name: " + name + "}"
	if after != "" {
		metadata = "metadata:\n  name: " + name + "\n  annotations: {" + registration.AfterAnnotation + ": " + after + "}"
	}
	return strings.NewReplacer("metadata: {name: policies}", metadata, "check.policies", "check."+name).Replace(example)
}
