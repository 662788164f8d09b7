package lint

import (
	"regexp"
)

var conditionAlwaysTrue = &Rule{
	ID: "condition-always-true", Level: Note,
	Title: "A match condition is true for every request",
	Why:   "The condition spares nothing. Either it is not needed, or it does not say what was meant.",
	Fix:   "Remove the condition, or correct it.",
	Fails: hook(validating, anyPod+outside+`failurePolicy: Fail
matchConditions:
- {name: not-deletions, expression: "request.operation != 'DELETE'"}
`),
	Passes: hook(validating, anyPod+outside+`failurePolicy: Fail
matchConditions:
- {name: not-nodes, expression: "!('system:nodes' in request.userInfo.groups)"}
`),
	check: func(p *pass) {
		for _, f := range p.analyses() {
			if f.use != condition {
				continue
			}
			if value, same := f.always(p.spared(f.entry)); same && value {
				p.finds(f.at(), "the match condition %q of %s is true for every request", f.name, f.entry)
			}
		}
	},
}

var conditionNeverTrue = &Rule{
	ID: "condition-never-true", Level: Warning,
	Title: "A match condition is false for every request",
	Why:   "The webhook or policy never applies. The condition is false whatever the object is, for all operations and resources of the rules.",
	Fix:   "Correct the condition, or the rules that it contradicts.",
	Fails: hook(validating, anyPod+outside+`failurePolicy: Fail
matchConditions:
- {name: deletions, expression: "request.operation == 'DELETE'"}
`),
	Passes: hook(validating, anyPod+outside+`failurePolicy: Fail
matchConditions:
- {name: not-nodes, expression: "!('system:nodes' in request.userInfo.groups)"}
`),
	check: func(p *pass) {
		for _, f := range p.analyses() {
			if value, same := f.always(nil); f.use == condition && same && !value {
				p.finds(f.at(), "the match condition %q of %s is false for every request: %s never applies", f.name, f.entry, kindOf(f.entry))
			}
		}
	},
}

var conditionFails = &Rule{
	ID: "condition-fails", Level: Error, OnWrite: true,
	Title: "A match condition fails for every request of an operation",
	Why: "The condition looks at something that such requests do not have: there is no object in a DELETE, and no oldObject in a CREATE. When a condition fails " +
		"and none is false, the failure policy decides: with Fail, each such request is rejected; with Ignore, it is not judged.",
	Fix: "Ask for what may be missing: object == null || object.metadata.name != 'x'. Or leave the operation out of the rules.",
	Fails: hook(validating, `rules:
- {apiGroups: [""], apiVersions: [v1], operations: [CREATE, DELETE], resources: [pods]}
failurePolicy: Fail
matchConditions:
- {name: by-name, expression: "object.metadata.name.startsWith('web-')"}
`+outside),
	Passes: hook(validating, `rules:
- {apiGroups: [""], apiVersions: [v1], operations: [CREATE, DELETE], resources: [pods]}
failurePolicy: Fail
matchConditions:
- {name: by-name, expression: "object == null || object.metadata.name.startsWith('web-')"}
`+outside),
	check: func(p *pass) {
		for _, f := range p.analyses() {
			if f.use != condition {
				continue
			}
			operations, err := f.failures(p.spared(f.entry))
			if len(operations) == 0 {
				continue
			}
			level, follows := Error, "each one is rejected"
			if !failsClosed(f.entry) {
				level, follows = Warning, "none is judged"
			}
			p.findsAs(level, f.at(), "the match condition %q of %s fails for every %s, so that %s: %s", f.name, f.entry, and(operations), follows, oneLine(err.Error()))
		}
	},
}

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

// escapedName is a name of a property as the rules of custom resources escape it.
var escapedName = regexp.MustCompile(`\.[A-Za-z_]*__(dash|dot|slash|underscores)__`)

var escapedProperty = &Rule{
	ID: "escaped-property", Level: Warning,
	Title: "An expression escapes the name of a property",
	Why: "Names such as foo__dot__bar are for the validation rules of custom resources. In policies and match conditions objects are maps, and " +
		"there is no such key: the expression fails, or has() is false.",
	Fix: "Use an index: object.metadata.labels['app.kubernetes.io/name'].",
	Fails: policy(`validations:
- {expression: "object.metadata.labels.app__dot__kubernetes__dot__io__slash__name == 'web'"}
`),
	Passes: policy(`validations:
- {expression: "object.metadata.labels['app.kubernetes.io/name'] == 'web'"}
`),
	check: func(p *pass) {
		for _, f := range p.analyses() {
			if name := escapedName.FindString(f.text); name != "" {
				p.finds(f.at(), "an expression of %s has the escaped name %q, which no object has", f.entry, name[1:])
			}
		}
	},
}
