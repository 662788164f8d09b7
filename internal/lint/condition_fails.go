package lint

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
