package lint

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// Rules are complete and consistent. TestExamplesOfRules checks that their examples fail and pass.
func TestRulesAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules() {
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(r.ID) || seen[r.ID] {
			t.Errorf("the name %q is not one, or stands there twice", r.ID)
		}
		seen[r.ID] = true
		if !slices.Contains(report.Levels, r.Level) {
			t.Errorf("%s: level %q", r.ID, r.Level)
		}
		if r.Title == "" || strings.HasSuffix(r.Title, ".") {
			t.Errorf("%s: title %q", r.ID, r.Title)
		}
		for _, text := range []string{r.Why, r.Fix} {
			if !strings.HasSuffix(text, ".") {
				t.Errorf("%s: %q is no sentence", r.ID, text)
			}
		}
		if r.Fails == "" || r.Passes == "" || r.Fails == r.Passes {
			t.Errorf("%s: needs an example that fails and one that passes", r.ID)
		}
		if r.OnWrite && r.Level != Error {
			t.Errorf("%s: servers tell errors only", r.ID)
		}
		if Find(r.ID) != r {
			t.Errorf("%s is not found", r.ID)
		}
	}
	files, err := texts.ReadDir("rules")
	if err != nil || len(files) != len(seen) {
		t.Errorf("%d files have texts for %d rules: %v", len(files), len(seen), err)
	}
}

func TestSelectorsThatContradictThemselves(t *testing.T) {
	in := func(key string, o metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: o, Values: values}
	}
	const (
		isIn    = metav1.LabelSelectorOpIn
		notIn   = metav1.LabelSelectorOpNotIn
		exists  = metav1.LabelSelectorOpExists
		missing = metav1.LabelSelectorOpDoesNotExist
	)
	for _, tc := range []struct {
		name string
		list []metav1.LabelSelectorRequirement
		want bool
	}{
		{"nothing asked", nil, false},
		{"one value", []metav1.LabelSelectorRequirement{in("a", isIn, "x")}, false},
		{"a value, and not that value", []metav1.LabelSelectorRequirement{in("a", isIn, "x"), in("a", notIn, "x")}, true},
		{"two values, and not one of them", []metav1.LabelSelectorRequirement{in("a", isIn, "x", "y"), in("a", notIn, "x")}, false},
		{"two keys", []metav1.LabelSelectorRequirement{in("a", isIn, "x"), in("b", notIn, "x")}, false},
		{"there and missing", []metav1.LabelSelectorRequirement{in("a", exists), in("a", missing)}, true},
		{"there, with another value", []metav1.LabelSelectorRequirement{in("a", exists), in("a", notIn, "x")}, false},
		{"missing, and without a value", []metav1.LabelSelectorRequirement{in("a", missing), in("a", notIn, "x")}, false},
		{"disjoint values", []metav1.LabelSelectorRequirement{in("a", isIn, "x"), in("a", isIn, "y")}, true},
	} {
		s, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: tc.list})
		if err != nil {
			t.Fatal(err)
		}
		if got := contradicts(s); got != tc.want {
			t.Errorf("%s: %s contradicts itself: %v", tc.name, s, got)
		}
	}
}

// Backends that depend on each other are one knot, however many cycles there are.
func TestKnots(t *testing.T) {
	// Each letter depends on the letters after the colon.
	for text, want := range map[string][]int{
		"":                    nil,
		"a:b b:":              nil,
		"a:a":                 nil,
		"a:b b:a":             {2},
		"a:b b:c c:a":         {3},
		"a:bc b:ac c:ab":      {3},
		"a:b b:a c:d d:c":     {2, 2},
		"a:b b:c c:b":         {2},
		"a:bc b:a c:d d:c e:": {2, 2},
	} {
		g := &graph{}
		byName := map[string]*backend{}
		for _, one := range strings.Fields(text) {
			b := &backend{}
			byName[one[:1]] = b
			g.backends = append(g.backends, b)
		}
		for _, one := range strings.Fields(text) {
			for _, to := range one[2:] {
				byName[one[:1]].needs = append(byName[one[:1]].needs, need{to: byName[string(to)]})
			}
		}
		var sizes []int
		for _, k := range g.knots() {
			sizes = append(sizes, k.size)
			if first, last := k.cycle[0], k.cycle[len(k.cycle)-1]; len(k.cycle) < 2 || len(k.cycle) > k.size || first.to == last.to {
				t.Errorf("%q: a cycle of %d in a knot of %d", text, len(k.cycle), k.size)
			}
		}
		if !slices.Equal(sizes, want) {
			t.Errorf("%q: knots of %v, want %v", text, sizes, want)
		}
	}
}
