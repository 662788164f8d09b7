package lint

import "strings"

var expressionInvalid = &Rule{
	ID: "expression-invalid", Level: Error,
	Title: "An expression does not compile",
	Why: "It was stored by another release of Kubernetes, or is refused when it is written. A stored one fails for every request, and the failure policy " +
		"decides: with Fail, all requests that it is about are rejected.",
	Fix:    "Correct the expression. The message says where it is wrong.",
	Fails:  policy("validations:\n- {expression: \"object.spec.containers.all(c, c.image.startsWith('registry.example.com/'\"}\n"),
	Passes: policy("validations:\n- {expression: \"object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))\"}\n"),
	check: func(p *pass) {
		for _, f := range p.analyses() {
			if f.broken != nil {
				p.finds(f.at(), "the expression of %s does not compile: %s", f.entry, oneLine(f.broken.Error()))
			}
		}
		for o, w := range p.Written {
			for _, i := range w.Invalid {
				if strings.Contains(i.Field, "xpression") {
					p.finds(place{o, parsePath(i.Field)}, "the expression does not compile: %s", oneLine(i.Message))
				}
			}
		}
	},
}
