package lint

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var resourceNamesOnDelete = &Rule{
	ID: "resource-names-on-delete", Level: Warning,
	Title: "A rule names objects, and is about their deletion",
	Why: "The request that deletes a collection has no name, neither for the collection nor for each of its objects. The rule does not match it: who may delete " +
		"the collection deletes the named objects, too.",
	Fix: "Compare names in a match condition or a validation: oldObject.metadata.name.",
	Fails: deletions(policy(`validations:
- {expression: "false"}
`, "resourceNames: [reserved], ")),
	Passes: deletions(policy(`validations:
- {expression: "oldObject.metadata.name != 'reserved'"}
`)),
	check: func(p *pass) {
		p.entries(func(e *snapshot.Entry) {
			for i := range e.Rules {
				r := &e.Rules[i]
				if len(r.ResourceNames) > 0 && (slices.Contains(r.Operations, "DELETE") || slices.Contains(r.Operations, "*")) {
					p.finds(at(e.Entry, rulesPath(e.Entry, i)...), "rule %d of %s does not match the deletion of a collection, which has no name: it names %s", i+1, e, few(r.ResourceNames))
				}
			}
		})
	},
}

// deletions makes a policy about deletions.
func deletions(example string) string {
	return strings.Replace(example, "[CREATE, UPDATE]", "[DELETE]", 1)
}
