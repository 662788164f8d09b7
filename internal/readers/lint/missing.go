package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

var missingKey = &Rule{
	ID: "missing-key", Level: Warning,
	Reads: []Part{Kinds, Definitions},
	check: eachFact(func(p *pass, f *fact) {
		if f.trials == nil || !strings.Contains(f.text, "object") && !strings.Contains(f.text, "oldObject") && !strings.Contains(f.text, "variables") {
			return
		}
		for _, s := range p.settings(f) {
			trial, ok := p.fails(f, &s.Setting)
			if !ok || f.use == mutation && p.addedBefore(f, s.Missing) {
				continue
			}
			if p.Schemas != nil && len(p.mistakes(f)) > 0 {
				// Rule expression-types reports the field.
				return
			}
			follows := "each of these requests is rejected"
			if !p.rejects(f.entry) {
				follows = "the expression has no effect on these requests"
			}
			p.finds(f.at(), "an expression of %s fails for %s%s: %s; %s", f.entry, s.what, conditional(trial.If), oneLine(trial.Err.Error()), follows)
			return
		}
	}),
}

// addedBefore reports whether an earlier mutation of the policy may add a field at a path, or above or below it.
func (p *pass) addedBefore(f *fact, path []string) bool {
	field := strings.Join(path, ".")
	for _, earlier := range p.factsOf(f.entry) {
		if earlier == f {
			return false
		}
		reach, ok := expression.NewReach(earlier.text)
		if earlier.use != mutation || !ok {
			continue
		}
		for _, made := range reach.MadeFor(p.ctx, schema.GroupVersionKind{}) {
			if slices.ContainsFunc(changes(&made), func(set string) bool {
				return strings.HasPrefix(set+".", field) || strings.HasPrefix(field+".", set+".")
			}) {
				return true
			}
		}
	}
	return false
}

// conditional returns the text of the conditions of a trial.
func conditional(list []string) string {
	if len(list) == 0 {
		return ""
	}
	slices.Reverse(list)
	return " if " + and(list)
}

// setting is a set of requests, with a description such as "the CREATE of pods without metadata.labels".
type setting struct {
	expression.Setting
	what string
}

// mostSettings bounds the settings of an expression.
const mostSettings = 64

// settings returns the requests whose object has no value for one of the fields that an expression reads, and which an
// API server accepts.
func (p *pass) settings(f *fact) (list []setting) {
	subjects, others := p.subjects(f.entry)
	if others {
		subjects = nil
	}
	// A field that is missing from an object of one kind, in one operation, represents the others, unless the
	// expression asks.
	asks, seen := strings.Contains(f.text, ".kind") || strings.Contains(f.text, "request.") || strings.Contains(f.text, "variables"), map[string]bool{}
	for i := range subjects {
		s := &subjects[i]
		if i == mostTyped {
			break
		}
		minimal := p.smallest(s)
		for _, operation := range p.operationsOn(f.entry, s) {
			missing := false
			for _, root := range []string{"object", "oldObject"} {
				if root == "object" && operation == "DELETE" || root == "oldObject" && operation == "CREATE" {
					continue
				}
				for _, path := range f.trials.Paths(root) {
					for n := 1; n <= len(path); n++ {
						if root == "object" && operation == "CREATE" && slices.Equal(path[:n], []string{"metadata", "name"}) && p.mayBeUnnamed(f.entry, s) && !seen["unnamed"] {
							seen["unnamed"] = true
							unnamed := ""
							list = append(list, setting{expression.Setting{
								Known: expression.Known{Operation: operation, Namespace: f.use != condition}, Missing: path[:n],
								Object: expression.Without(path[:n]...), RequestName: &unnamed,
							}, fmt.Sprintf("the CREATE of %s with metadata.generateName, whose metadata.name is set after the mutating pass", s.Resource.Resource)})
							continue
						}
						if !p.lacks(s, minimal, path[:n]) {
							continue
						}
						missing = true
						key := root + " " + strings.Join(path[:n], ".")
						if asks {
							key += " " + operation
						}
						if seen[key] {
							continue
						}
						seen[key] = true
						one := expression.Setting{Known: expression.Known{Operation: operation, Namespace: f.use != condition}, Missing: path[:n], OfOld: root == "oldObject"}
						of := "without "
						if one.OfOld {
							one.Old, of = expression.Without(path[:n]...), "whose stored object has no "
						} else {
							one.Object = expression.Without(path[:n]...)
						}
						list = append(list, setting{one, fmt.Sprintf("the %s of %s %s%s", operation, s.Resource.Resource, of, strings.Join(path[:n], "."))})
						if len(list) == mostSettings {
							return list
						}
					}
				}
			}
			if minimal == nil || operation == "DELETE" || !missing {
				continue
			}
			one := expression.Setting{Known: expression.Known{Operation: operation, Namespace: f.use != condition}, Object: minimal, Missing: []string{}}
			list = append(list, setting{one, fmt.Sprintf("the %s of %s with the required fields alone", operation, s.Resource.Resource)})
		}
	}
	return list
}

// mayBeUnnamed reports whether an entry sees new objects of a kind before they have a name: the mutating pass is before
// the name of generateName is made, and rules with names match no object without one.
func (p *pass) mayBeUnnamed(e *snapshot.Entry, s *subject) bool {
	return e.Source.Descriptor().Pass == registration.MutatingPass && s.kind == s.Kind &&
		slices.ContainsFunc(e.Rules, func(r registration.Rule) bool { return len(r.ResourceNames) == 0 })
}

// smallest returns the smallest object of a kind; nil if it is not known, and for objects of subresources.
func (p *pass) smallest(s *subject) *expression.Partial {
	if p.Minimal == nil || s.kind != s.Kind {
		return nil
	}
	known, ok := p.minimal[s.Kind]
	if !ok {
		known = p.Minimal(s.Kind)
		p.minimal[s.Kind] = known
	}
	return known
}

// lacks reports whether objects may have no field at a path, and have its parent. smallest is the smallest object.
func (p *pass) lacks(s *subject, smallest *expression.Partial, path []string) bool {
	if smallest == nil {
		return slices.Equal(path, []string{"metadata", "labels"}) || len(path) > 1 && path[0] == "metadata" && path[1] == "annotations"
	}
	for i, name := range path {
		value, known := smallest.Fields[name]
		switch {
		case !known && !smallest.Closed, known && value == expression.Unknown:
			return false
		case !known, value == expression.Absent:
			// An object that has a map may lack any key of it.
			return i == len(path)-1 || i == len(path)-2 && p.isMap(s, path[:i+1])
		}
		below, ok := value.(*expression.Partial)
		if !ok {
			return lacksIn(value, path[i+1:])
		}
		smallest = below
	}
	return false
}

// lacksIn is lacks for a value of JSON, whose lists have the elements that objects have in any case.
func lacksIn(value any, path []string) bool {
	for i, step := range path {
		known := false
		switch of := value.(type) {
		case map[string]any:
			value, known = of[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil {
				return false
			}
			if known = n < len(of); known {
				value = of[n]
			}
		default:
			return false
		}
		if !known {
			return i == len(path)-1
		}
	}
	return false
}

// isMap reports whether a field of a kind is a map with any keys.
func (p *pass) isMap(s *subject, path []string) bool {
	if p.Schemas == nil {
		return false
	}
	t := p.shape(s.kind, "")
	for _, name := range path {
		if t == nil || !t.IsObject() || t.Fields[name] == nil {
			return false
		}
		t = t.Fields[name].Type
	}
	return t.IsMap()
}

// operationsOn returns the operations on a kind that an entry matches.
func (p *pass) operationsOn(e *snapshot.Entry, s *subject) (list []string) {
	for _, o := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
		q := plan.Request{Operation: o, Resource: s.GroupVersionResource, Kind: s.Kind, Namespace: p.someNamespace(s.Resource), Name: "one"}
		if matchesAny(e.Rules, &q) || len(e.Rules) == 1 && len(e.Rules[0].ResourceNames) > 0 && slices.Contains(operations(e.Rules), string(o)) {
			list = append(list, string(o))
		}
	}
	return list
}

// fails returns the trial of an expression that fails for the requests of a setting.
func (p *pass) fails(f *fact, s *expression.Setting) (expression.Trial, bool) {
	trial := f.trials.Of(p.ctx, s)
	if trial.Err == nil || !keyIsMissing(trial.Err) {
		return trial, false
	}
	for _, c := range p.factsOf(f.entry) {
		if c.use != condition || c.trials == nil {
			continue
		}
		switch result := c.trials.Of(p.ctx, s); {
		case result.Value == types.False:
			return trial, false
		case c == f || result.Value == types.True:
		case result.Err != nil && f.use != condition:
			// The finding is about the condition.
			return trial, false
		case !c.trials.Independent(s):
			return trial, false
		}
	}
	return trial, true
}

// keyIsMissing reports whether an error is about the missing field, and not about a mistake that other rules report.
func keyIsMissing(err error) bool { return strings.Contains(err.Error(), "no such key") }
