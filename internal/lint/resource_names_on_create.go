package lint

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var resourceNamesOnCreate = &Rule{
	ID: "resource-names-on-create", Level: Warning,
	Title: "A rule names objects, and is about their creation",
	Why: "The name of a new object may be made by the server, from generateName, after admission has compared the rule with the request. Such a request has " +
		"no name, and the rule does not match it. A DELETE of a collection has none either.",
	Fix: "Compare names in a match condition or a validation, or leave CREATE out of the rule.",
	Fails: policy(`validations:
- {expression: "object.metadata.name != 'reserved'"}
`, "resourceNames: [reserved], "),
	Passes: policy(`validations:
- {expression: "object.metadata.name != 'reserved'"}
`),
	check: func(p *pass) {
		p.entries(func(e *snapshot.Entry) {
			for i := range e.Rules {
				r := &e.Rules[i]
				if len(r.ResourceNames) > 0 && (slices.Contains(r.Operations, "CREATE") || slices.Contains(r.Operations, "*")) {
					p.finds(at(e.Entry, rulesPath(e.Entry, i)...), "rule %d of %s does not match a new object whose name the server makes: it names %s", i+1, e, few(r.ResourceNames))
				}
			}
		})
	},
}
