package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var expressionTypes = &Rule{
	ID: "expression-types", Level: Error,
	Title: "An expression is wrong about types",
	Why: "The expression names a field that the kind does not have, compares what cannot be compared, or sets a field that the kind does not have. It fails for each " +
		"object of that kind, and the failure policy decides: with Fail, the request is rejected. An API server takes the webhook or the policy all the same. It only " +
		"says something in the status of a ValidatingAdmissionPolicy, and only about validations.",
	Fix:   "Correct the name of the field, or its type. If only some kinds of the rules have the field, write a policy for these.",
	Reads: []Part{Kinds, Definitions},
	Fails: policy(`validations:
- {expression: "object.spec.container.all(c, c.image.startsWith('registry.example.com/'))"}
`),
	Passes: policy(`validations:
- {expression: "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))"}
`),
	check: func(p *pass) {
		if p.Schemas == nil {
			p.misses("the schemas of kinds: %s", p.rule.ID)
			return
		}
		for _, f := range p.analyses() {
			if f.broken == nil {
				p.findsMistakes(f)
			}
		}
		p.entries(func(e *snapshot.Entry) {
			if e.Policy == nil {
				return
			}
			for i, v := range e.Entry.Policy.Variables {
				p.findsMistakes(&fact{entry: e, use: other, text: v.Expression, path: []any{"variables", i, "expression"}})
			}
		})
	},
}

// findsMistakes adds a finding for what an expression gets wrong about types.
func (p *pass) findsMistakes(f *fact) {
	found := p.mistakes(f)
	if len(found) == 0 {
		return
	}
	var texts, kinds []string
	for i, m := range found {
		text := fmt.Sprintf("%s at %d:%d of the expression", m.Text, m.At.Line, m.At.Column)
		if i == 0 || found[i-1].Kind != m.Kind {
			text = kindText(m.Kind) + ": " + text
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
		if m.Always && !slices.Contains(kinds, m.Kind.Kind) {
			kinds = append(kinds, m.Kind.Kind)
		}
	}
	level, follows := Warning, ""
	if len(kinds) > 0 && f.use != other && p.rejects(f.entry) {
		level, follows = Error, "; each request about a "+few(kinds)+" is rejected"
	}
	p.findsAs(level, f.at(), "the expression does not fit the types: %s%s", strings.Join(texts, "; "), follows)
}
