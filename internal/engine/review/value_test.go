package review

import (
	"testing"

	kjson "sigs.k8s.io/json"
)

func TestHas(t *testing.T) {
	for _, c := range []struct {
		claim, found, want string
		has                bool
	}{
		{"objects may have more members", `{"a":{"b":1,"c":2},"d":3}`, `{"a":{"b":1}}`, true},
		{"a member may be missing", `{"a":{"c":2}}`, `{"a":{"b":1}}`, false},
		{"a list has as many elements", `{"a":[{"b":1,"c":2},3]}`, `{"a":[{"b":1},3]}`, true},
		{"a list may be longer", `[1,2]`, `[1]`, false},
		{"an object is no list", `[]`, `{}`, false},
		{"numbers are compared by value", `[1,2.0,3]`, `[1.0,2,3]`, true},
		{"numbers differ", `1`, `1.5`, false},
		{"integers differ", `2`, `3`, false},
		{"large numbers differ", `9007199254740993`, `9007199254740992.0`, false},
		{"null is null", `{"a":null}`, `{"a":null}`, true},
		{"a text is a text", `"1"`, `1`, false},
	} {
		var found, want any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(c.found), &found); err != nil {
			t.Fatal(err)
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if has := Has(found, want); has != c.has {
			t.Errorf("%s: %s has %s: %t", c.claim, c.found, c.want, has)
		}
	}
}
