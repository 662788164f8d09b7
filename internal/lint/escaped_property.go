package lint

import "regexp"

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
