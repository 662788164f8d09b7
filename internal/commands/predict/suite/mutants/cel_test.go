package mutants

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	celparser "github.com/google/cel-go/parser"
	"github.com/google/go-cmp/cmp"
)

var validation = role{decides: true, yes: "is allowed", no: "is rejected", strict: true}

// Each decision of an expression is changed once, with a description of a request that kills the mutant (S24.30).
func TestExpressionsAreChanged(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		role       role
		want       []string
	}{
		{"a whole validation", "object.a == 'b'", validation, []string{
			"0 clause true: a request that is rejected",
			"0 clause false: a request that is allowed",
		}},
		{"each operand, and none that the root has already", "a && (b || c)", validation, []string{
			"0 clause false: a request that is allowed",
			"0 clause b || c: a request for which `a` is false while `b || c` is true",
			"6 clause a: a request for which `b || c` is false while `a` is true",
			"6 clause a && c: a request for which `b` is true while `c` is false",
			"11 clause a && b: a request for which `c` is true while `b` is false",
		}},
		{"a guard is left out where its error rejects, too", "has(a.b) && a.b", validation, []string{
			"0 clause false: a request that is allowed",
			"12 clause has(a.b): a request for which `a.b` is false while `has(a.b)` is true",
		}},
		{"a guard elsewhere is not", "!(has(a.b) && a.b)", role{}, []string{
			"0 operator has(a.b) && a.b: a request whose verdict depends on `!(has(a.b) && a.b)`",
			"2 clause !a.b: a request for which `has(a.b)` is false while `a.b` is true",
			"14 clause !has(a.b): a request for which `a.b` is false while `has(a.b)` is true",
		}},
		{"both sides of a boundary", "size(a) <= 5", role{}, []string{
			"0 boundary size(a) < 5: a request for which `size(a)` is 5",
			"0 boundary size(a) <= 6: a request for which `size(a)` is 6",
		}},
		{"a boundary written the other way round", "5 > a", role{}, []string{
			"0 boundary 5 >= a: a request for which `a` is 5",
			"0 boundary 4 > a: a request for which `a` is 4",
		}},
		{"nothing has a size below zero", "size(a) < 0 || size(b) >= 0", role{}, []string{
			"0 clause size(b) >= 0: a request for which `size(a) < 0` is true while `size(b) >= 0` is false",
			"15 clause size(a) < 0: a request for which `size(b) >= 0` is true while `size(a) < 0` is false",
			"0 boundary size(a) <= 0 || size(b) >= 0: a request for which `size(a)` is 0",
			"15 boundary size(a) < 0 || size(b) > 0: a request for which `size(b)` is 0",
		}},
		{"quantities", "quantity(a).isGreaterThan(quantity(b))", role{}, []string{
			"0 boundary !quantity(a).isLessThan(quantity(b)): a request for which `quantity(a)` equals `quantity(b)`",
		}},
		{"quantifiers", "a.all(c, c.b == 1)", role{}, []string{
			"0 quantifier a.exists(c, c.b == 1): a request in which `a` has an element for which `c.b == 1` is true and one for which it is false, or no element",
		}},
		{"filters", "a.filter(c, c.b)", role{}, []string{
			"12 clause a.filter(c, true): a request in which `a` has an element for which `c.b` is false",
			"12 clause a.filter(c, false): a request in which `a` has an element for which `c.b` is true",
		}},
		{"a choice", "a ? b : c", role{}, []string{
			"0 clause b: a request for which `a` is false",
			"0 clause c: a request for which `a` is true",
		}},
		{"values that are no verdict", "[a == b, c in d]", role{}, []string{
			"1 operator [a != b, c in d]: a request whose verdict depends on `a == b`",
			"9 operator [a == b, !(c in d)]: a request whose verdict depends on `c in d`",
		}},
		{"texts", "a.startsWith('b')", role{}, []string{
			"0 operator a.contains(\"b\"): a request for which `a` has `\"b\"`, and not where startsWith wants it",
		}},
		{"a character is no byte", "'ä' == a && b", validation, []string{
			"0 clause false: a request that is allowed",
			"0 clause b: a request for which `\"ä\" == a` is false while `b` is true",
			"12 clause \"ä\" == a: a request for which `b` is false while `\"ä\" == a` is true",
		}},
		{"what is no expression", "a &&", validation, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, e := range editsOf(tc.text, tc.role) {
				got = append(got, fmt.Sprintf("%d %s %s: %s", e.offset, e.kind, e.text, e.notice))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Every mutant of any expression is another expression, and the original is not changed.
func FuzzEdits(f *testing.F) {
	for _, text := range []string{
		"a && b", "!has(a.?b) || a.b.c > -1", "a.all(i, c, c[?'x'].orValue(1) >= 2u)", `a.matches("\\d\u00e4") ? b'x' : r'\n'`, "-(-1) < 1.5e3", "a.`b-c` in {'x': [1, ?b]}",
		"Object{spec: Object.spec{?a: b}}", "a // of nothing\n == b", "x.exists_one(y, y != null)", "((((a))))", "a < 9223372036854775807",
	} {
		f.Add(text)
	}
	parser, err := celparser.NewParser(celparser.EnableOptionalSyntax(true), celparser.EnableIdentEscapeSyntax(true))
	if err != nil {
		f.Fatal(err)
	}
	written := func(text string) (string, bool) {
		parsed, issues := parser.Parse(common.NewTextSource(text))
		if len(issues.GetErrors()) > 0 {
			return "", false
		}
		out, err := celparser.Unparse(parsed.Expr(), ast.NewSourceInfo(nil))
		return out, err == nil
	}
	f.Fuzz(func(t *testing.T, text string) {
		before, _ := written(text)
		for _, e := range editsOf(text, validation) {
			after, ok := written(e.text)
			if !ok || after == before {
				t.Errorf("%q becomes %q", text, e.text)
			}
			if e.offset < 0 || e.offset > len([]rune(text)) || strings.TrimSpace(e.notice) == "" || !slices.Contains(Kinds, e.kind) {
				t.Errorf("%q: %+v", text, e)
			}
		}
	})
}
