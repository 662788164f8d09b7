package lint

import (
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

var messageIsExpression = &Rule{
	ID: "message-is-expression", Level: Warning,
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		if e.Policy == nil {
			return
		}
		for i := range e.Policy.Validations {
			text := e.Entry.Policy.Validations[i].Message
			if text != "" && expression.Analyze(e.Policy.Validations[i].Holds).Message(text) {
				p.finds(at(e.Entry, "validations", i, "message"), "the message %q of %s is an expression, and users see its text: messageExpression has its value", text, e)
			}
		}
	}),
}

var quantityAsNumber = &Rule{
	ID: "quantity-as-number", Level: Warning,
	Reads: []Part{Kinds, Definitions},
	check: eachFact(func(p *pass, f *fact) {
		if p.Schemas == nil || f.use == other || f.trials == nil || !strings.Contains(f.text, "int(") && !strings.Contains(f.text, "double(") {
			return
		}
		// The expression may test the form of the value first.
		if slices.ContainsFunc([]string{".matches(", ".endsWith(", ".contains(", "isQuantity("}, func(test string) bool { return strings.Contains(f.text, test) }) {
			return
		}
		list, _ := p.subjects(f.entry)
		for _, function := range []string{"int", "double"} {
			for _, path := range f.trials.Arguments(function) {
				if len(path) < 2 || path[0] != "object" && path[0] != "oldObject" {
					continue
				}
				for _, s := range list {
					if field := fieldOf(p.schemaOf(s.kind), path[1:]); isQuantity(field) {
						p.finds(f.at(), "an expression of %s converts %s, a quantity, with %s(), which fails for values such as 250m and 1Gi: use quantity()", f.entry, strings.Join(path[1:], "."), function)
						return
					}
				}
			}
		}
	}),
}

// fieldOf returns the schema of a field; nil if it is not known.
func fieldOf(s *spec.Schema, path []string) *spec.Schema {
	for _, step := range path {
		switch {
		case s == nil:
			return nil
		case s.Items != nil && s.Items.Schema != nil:
			if s = s.Items.Schema; step != expression.Element && strings.Trim(step, "0123456789-") != "" {
				// The path leaves the step to the element out.
				s = fieldOf(s, []string{step})
			}
		case len(s.Properties) > 0:
			property, ok := s.Properties[step]
			if !ok {
				return nil
			}
			s = &property
		case s.AdditionalProperties != nil:
			s = s.AdditionalProperties.Schema
		default:
			return nil
		}
	}
	return s
}

// isQuantity reports whether a field is a quantity, such as 250m.
func isQuantity(s *spec.Schema) bool {
	if s == nil {
		return false
	}
	return strings.HasPrefix(s.Description, "Quantity is a fixed-point representation") || strings.HasPrefix(s.Pattern, `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))`)
}
