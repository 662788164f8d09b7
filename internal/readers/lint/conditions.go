package lint

import (
	"regexp"
	"strings"

	"github.com/google/cel-go/common/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

var conditionAlwaysTrue = &Rule{
	ID: "condition-always-true", Level: Note,
	check: eachFact(func(p *pass, f *fact) {
		if f.use != condition {
			return
		}
		// The condition itself may exclude an operation.
		if value, same := p.constant(f, nil); same && value {
			p.finds(f.at(), "the match condition %q of %s is true for every request", f.name, f.entry)
		}
	}),
}

var conditionNeverTrue = &Rule{
	ID: "condition-never-true", Level: Warning,
	check: eachFact(func(p *pass, f *fact) {
		if value, same := f.always(nil); f.use == condition && same && !value {
			p.finds(f.at(), "the match condition %q of %s is false for every request: %s never applies", f.name, f.entry, kindOf(f.entry))
		}
	}),
}

var conditionFails = &Rule{
	ID: "condition-fails", Level: Error, OnWrite: true,
	check: eachFact(func(p *pass, f *fact) {
		if f.use != condition {
			return
		}
		operations, err := f.failures(p.spared(f.entry))
		if len(operations) == 0 {
			return
		}
		level, follows := Error, "each one is rejected"
		if !failsClosed(f.entry) {
			level, follows = Warning, "it decides none of them"
		}
		p.findsAs(level, f.at(), "the match condition %q of %s fails for every %s, so that %s: %s", f.name, f.entry, and(operations), follows, oneLine(err.Error()))
	}),
}

var validationConstant = &Rule{
	ID: "validation-constant", Level: Error,
	check: eachFact(func(p *pass, f *fact) {
		if f.use != validation && f.use != mutation {
			return
		}
		spared := p.spared(f.entry)
		if operations, err := f.failures(spared); len(operations) > 0 {
			level := Error
			if !p.rejects(f.entry) {
				level = Warning
			}
			p.findsAs(level, f.at(), "the expression %q of %s fails for every %s, so that %s: %s", f.text, f.entry, and(operations), p.failure(f.entry, "each one"), oneLine(err.Error()))
			return
		}
		value, same := p.constant(f, spared)
		switch {
		case !same || f.use == mutation || p.Schemas != nil && (p.impossible(f) != "" || len(p.mistakes(f)) > 0):
			// Rule expression-types says why the value is the same.
		case value:
			p.findsAs(Warning, f.at(), "the validation %q of %s is true for every request: it enforces nothing", f.text, f.entry)
		case f.text != "false":
			p.findsAs(Warning, f.at(), "the validation %q of %s is false for every request", f.text, f.entry)
		}
	}),
}

// constant is always for requests with the fields that an API server always sets.
func (p *pass) constant(f *fact, spared map[string]bool) (value, same bool) {
	if value, same = f.always(spared); same || f.trials == nil || !strings.Contains(f.text, "has(") || f.entry.Equivalent && f.entry.Policy == nil {
		return value, same
	}
	list, others := p.subjects(f.entry)
	if others || len(list) > mostTyped {
		return false, false
	}
	seen := false
	for i := range list {
		s := &list[i]
		if s.kind != s.Kind {
			return false, false
		}
		setting := expression.Setting{Kind: &s.Kind.Kind, Version: &s.Version, Present: p.present(f.entry, s)}
		setting.Group, setting.Resource, setting.Known.Namespace = &s.Group, &s.GroupVersionResource.Resource, f.use != condition
		for _, o := range p.operationsOn(f.entry, s) {
			if spared[o] {
				continue
			}
			one := setting
			one.Operation = o
			trial := f.trials.Of(p.ctx, &one)
			holds, ok := trial.Value.(types.Bool)
			if !ok || seen && bool(holds) != value {
				return false, false
			}
			value, seen = bool(holds), true
		}
	}
	return value, seen
}

// present returns the fields that an API server sets in every object of a kind before an entry sees it, or requires.
func (p *pass) present(e *snapshot.Entry, s *subject) map[string]bool {
	fields := map[string]bool{"metadata": true, "kind": true, "apiVersion": true}
	fields["metadata.namespace"] = s.Namespaced
	if e.Source.Descriptor().Pass != registration.ValidatingPass {
		return fields
	}
	fields["metadata.name"] = true
	if smallest := p.smallest(s); smallest != nil {
		addPresent(fields, smallest, "")
	}
	return fields
}

func addPresent(fields map[string]bool, p *expression.Partial, at string) {
	for name, value := range p.Fields {
		if !p.Closed || value == expression.Absent || value == expression.Unknown {
			continue
		}
		fields[at+name] = true
		if below, ok := value.(*expression.Partial); ok {
			addPresent(fields, below, at+name+".")
		}
	}
}

// escapedName matches a property name in the escaped form of CRD validation rules.
var escapedName = regexp.MustCompile(`\.[A-Za-z_]*__(dash|dot|slash|underscores)__`)

var escapedProperty = &Rule{
	ID: "escaped-property", Level: Warning,
	check: eachFact(func(p *pass, f *fact) {
		if name := escapedName.FindString(f.text); name != "" {
			p.finds(f.at(), "an expression of %s has the escaped name %q, which no object has", f.entry, name[1:])
		}
	}),
}
