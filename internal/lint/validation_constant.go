package lint

var validationConstant = &Rule{
	ID: "validation-constant", Level: Error,
	Title: "A validation gives the same for every request, or a mutation fails for every one",
	Why: "One that is always true enforces nothing. One that is always false, or always fails, rejects everything that the policy is about, or does so for an " +
		"operation.",
	Fix: "Correct the expression. To reject an operation on purpose, leave the expression false and name only that operation in the rules.",
	Fails: policy(`validations:
- {expression: "oldObject.spec.nodeName == object.spec.nodeName"}
`),
	Passes: policy(`validations:
- {expression: "oldObject == null || oldObject.spec.nodeName == object.spec.nodeName"}
`),
	check: func(p *pass) {
		for _, f := range p.analyses() {
			if f.use != validation && f.use != mutation {
				continue
			}
			spared := p.spared(f.entry)
			if operations, err := f.failures(spared); len(operations) > 0 {
				level, follows := Error, "each one is rejected"
				if !p.rejects(f.entry) {
					level, follows = Warning, "the expression does nothing"
				}
				p.findsAs(level, f.at(), "the expression %q of %s fails for every %s, so that %s: %s", f.text, f.entry, and(operations), follows, oneLine(err.Error()))
				continue
			}
			value, same := f.always(spared)
			switch {
			case !same || f.use == mutation:
			case value:
				p.findsAs(Warning, f.at(), "the validation %q of %s is true for every request: it enforces nothing", f.text, f.entry)
			case f.text != "false":
				p.findsAs(Warning, f.at(), "the validation %q of %s is false for every request", f.text, f.entry)
			}
		}
	},
}
