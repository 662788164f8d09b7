package lint

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
