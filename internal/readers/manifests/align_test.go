package manifests_test

import (
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// An expression is found in its source in every YAML notation (S24.15).
func TestTextsAreFoundInTheirSource(t *testing.T) {
	for name, tc := range map[string]struct {
		source, text string
		column       int
		// found is the source with marks around the first and the last byte of the text.
		found string
	}{
		"plain":               {"expression: a && b\n", "a && b", 1, "expression: <a && b>\n"},
		"in a flow":           {"- {name: n, expression: \"a && b\", message: a}\n", "a && b", 13, "- {name: n, expression: \"<a && b>\", message: a}\n"},
		"single quotes":       {"expression: 'a == ''b'' '\n", "a == 'b' ", 1, "expression: '<a == ''b'' >'\n"},
		"double quotes":       {`expression: "a == \"b"` + "\n", `a == "b`, 1, `expression: "<a == \"b>"` + "\n"},
		"a broken line":       {`expression: "a &&\n b"` + "\n", "a &&\n b", 1, `expression: "<a &&\n b>"` + "\n"},
		"a block":             {"  expression: |\n    a &&\n    b\n", "a &&\nb\n", 3, "  expression: |\n    <a &&\n    b>\n"},
		"a folded block":      {"expression: >-\n  a &&\n  b\nmessage: b\n", "a && b", 1, "expression: >-\n  <a &&\n  b>\nmessage: b\n"},
		"a plain text folded": {"expression: a &&\n  b\n", "a && b", 1, "expression: <a &&\n  b>\n"},
		"on the next line":    {"expression:\n  a + b\n", "a + b", 1, "expression:\n  <a + b>\n"},
		"behind other signs":  {"{\"ä\": ü, expression: ä+b}\n", "ä+b", 9, "{\"ä\": ü, expression: <ä+b>}\n"},
		"something else":      {"expression: *anchor\n", "a && b", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			places := manifests.Align(tc.source, 1, tc.column, tc.text)
			if places == nil {
				if tc.found != "" {
					t.Error("not found")
				}
				return
			}
			last := 0
			for _, p := range places {
				last = max(last, p)
			}
			got := tc.source[:places[0]] + "<" + tc.source[places[0]:last+1] + ">" + tc.source[last+1:]
			if got != tc.found {
				t.Errorf("found %q, want %q", got, tc.found)
			}
		})
	}
}
