package lint

import "github.com/gatehouse-dev/gatehouse/admission/registration"

var expressionTypes = &Rule{
	ID: "expression-types", Level: Warning,
	Title: "An expression is wrong about types",
	Why: "The expression names a field that the kind does not have, or compares what cannot be compared. It fails for each object of that kind, and the failure " +
		"policy decides. The API server takes the policy all the same, and says so in status.typeChecking only.",
	Fix:   "Correct the name of the field, or its type. If only some kinds of the policy have the field, write a policy for these.",
	Reads: []Part{Types, Definitions},
	Fails: policy(`validations:
- {expression: "object.spec.container.all(c, c.image.startsWith('registry.example.com/'))"}
`),
	Passes: policy(`validations:
- {expression: "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))"}
`),
	check: func(p *pass) {
		for _, t := range p.Types {
			p.finds(place{Object{Kind: registration.ValidatingPolicyKind, Name: t.Policy}, t.Path}, "the expression does not fit the types: %s", t.Message)
		}
	},
}
