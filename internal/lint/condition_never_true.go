package lint

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
