package lint

import (
	"regexp"
)

var conditionAlwaysTrue = &Rule{
	ID: "condition-always-true", Level: Note,
	check: eachFact(func(p *pass, f *fact) {
		if f.use != condition {
			return
		}
		if value, same := f.always(p.spared(f.entry)); same && value {
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
			level, follows = Warning, "none is judged"
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
			level, follows := Error, "each one is rejected"
			if !p.rejects(f.entry) {
				level, follows = Warning, "the expression does nothing"
			}
			p.findsAs(level, f.at(), "the expression %q of %s fails for every %s, so that %s: %s", f.text, f.entry, and(operations), follows, oneLine(err.Error()))
			return
		}
		value, same := f.always(spared)
		switch {
		case !same || f.use == mutation:
		case value:
			p.findsAs(Warning, f.at(), "the validation %q of %s is true for every request: it enforces nothing", f.text, f.entry)
		case f.text != "false":
			p.findsAs(Warning, f.at(), "the validation %q of %s is false for every request", f.text, f.entry)
		}
	}),
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
