package lint

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var selectorNeverMatches = &Rule{
	ID: "selector-never-matches", Level: Warning,
	Reads:  []Part{Namespaces},
	Title:  "A selector selects nothing",
	Why:    "Its requirements contradict each other, or no namespace has these labels. The webhook or policy never applies.",
	Fix:    "Correct the selector, or label the namespaces that are meant.",
	Fails:  hook(mutating, anyPod+"failurePolicy: Ignore\nobjectSelector:\n  matchLabels: {inject: \"true\"}\n  matchExpressions:\n  - {key: inject, operator: NotIn, values: [\"true\"]}\n"),
	Passes: hook(mutating, anyPod+"failurePolicy: Ignore\nobjectSelector:\n  matchLabels: {inject: \"true\"}\n"),
	check: func(p *pass) {
		p.entries(func(e *snapshot.Entry) {
			for name, s := range map[string]labels.Selector{"namespaceSelector": e.NamespaceSelector, "objectSelector": e.ObjectSelector} {
				where := at(e.Entry, name)
				switch {
				case e.Entry.Policy != nil:
					where = at(e.Entry, "matchConstraints", name)
				case e.Binding != nil:
					where = at(e.Entry, "matchResources", name)
				}
				switch {
				case s == nil:
				case contradicts(s):
					p.finds(where, "the %s of %s selects nothing: its requirements contradict each other", name, e)
				case name == "namespaceSelector" && !p.Partial && p.sees(Namespaces) && !p.selectsNamespace(s) && aboutNamespaces(e.Rules):
					p.findsAs(Note, where, "the namespaceSelector of %s selects none of the %d namespaces that there are", e, len(p.Namespaces))
				}
			}
		})
	},
}

// aboutNamespaces reports whether rules can be about objects in namespaces.
func aboutNamespaces(rules []registration.Rule) bool {
	return slices.ContainsFunc(rules, func(r registration.Rule) bool { return r.Scope != "Cluster" })
}

func (p *pass) selectsNamespace(s labels.Selector) bool {
	for _, l := range p.Namespaces {
		if s.Matches(labels.Set(l)) {
			return true
		}
	}
	return false
}

// contradicts reports whether no labels can satisfy a selector. Requirements on different keys
// cannot contradict each other.
func contradicts(s labels.Selector) bool {
	requirements, selectable := s.Requirements()
	if !selectable {
		return true
	}
	byKey := map[string][]labels.Requirement{}
	for _, r := range requirements {
		byKey[r.Key()] = append(byKey[r.Key()], r)
	}
	for key, list := range byKey {
		// Try each value that a requirement names, another value, and no value.
		values := map[string]bool{"something-else": true}
		for _, r := range list {
			for v := range r.Values() {
				values[v] = true
			}
		}
		possible := func(l labels.Set) bool {
			return !slices.ContainsFunc(list, func(r labels.Requirement) bool { return !r.Matches(l) })
		}
		if possible(labels.Set{}) {
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(values)), func(v string) bool { return possible(labels.Set{key: v}) }) {
			return true
		}
	}
	return false
}
