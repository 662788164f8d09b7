package lint

import (
	"strconv"
	"strings"
)

var invalid = &Rule{
	ID: "invalid", Level: Error,
	Title:  "An API server would refuse a registration",
	Why:    "It breaks the rules of its kind, so nothing of it would be in force. The rule looks at files: a server stores nothing invalid.",
	Fix:    "Correct the field that the message names.",
	Fails:  hook(validating, anyPod+outside+"failurePolicy: Fial\n"),
	Passes: hook(validating, anyPod+outside+"failurePolicy: Fail\n"),
	check: func(p *pass) {
		for o, w := range p.Written {
			for _, i := range w.Invalid {
				if !strings.Contains(i.Field, "xpression") {
					p.finds(place{o, parsePath(i.Field)}, "an API server would refuse %s: %s", o, oneLine(i.Message))
				}
			}
		}
	},
}

// oneLine joins the lines of a text to one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// parsePath parses the path of a field in an error: webhooks[0].rules[1].
func parsePath(text string) []any {
	var path []any
	for _, step := range strings.FieldsFunc(text, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if n, err := strconv.Atoi(step); err == nil {
			path = append(path, n)
		} else {
			path = append(path, step)
		}
	}
	return path
}
