package lint

import (
	"fmt"
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

// findsImpossible adds a finding for comparisons with texts that a field never has.
func (p *pass) findsImpossible(f *fact) {
	if text := p.impossible(f); text != "" {
		p.findsAs(Warning, f.at(), "an expression of %s compares %s", f.entry, text)
	}
}

// impossible describes the comparisons of an expression with texts that a field never has; empty if there are none.
func (p *pass) impossible(f *fact) string {
	if f.trials == nil || f.broken != nil {
		return ""
	}
	var texts []string
	list, others := p.subjects(f.entry)
	for _, c := range f.trials.Comparisons() {
		if values := p.valuesOf(c.Paths, list, others); len(values) > 0 && !slices.Contains(values, c.Text) {
			texts = append(texts, fmt.Sprintf("%s with %q at %d:%d, and its values are %s", strings.Join(c.Paths[0], "."), c.Text, c.At.Line, c.At.Column, few(values)))
		}
	}
	return strings.Join(texts, "; ")
}

// valuesOf returns the values that fields with the same meaning may have; empty if they may have others.
func (p *pass) valuesOf(paths [][]string, list []subject, others bool) (values []string) {
	for _, path := range paths {
		switch {
		case slices.Equal(path, []string{"request", "operation"}):
			values = append(values, "CREATE", "UPDATE", "DELETE", "CONNECT")
			continue
		case path[0] != "object" && path[0] != "oldObject" || others:
			return nil
		}
		for _, s := range list {
			field := fieldOf(p.schemaOf(s.kind), path[1:])
			if field == nil || len(field.Enum) == 0 {
				return nil
			}
			for _, one := range field.Enum {
				if text, ok := one.(string); ok && !slices.Contains(values, text) {
					values = append(values, text)
				}
			}
		}
	}
	return values
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
