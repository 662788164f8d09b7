package lint

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var policyWithoutBinding = &Rule{
	ID: "policy-without-binding", Level: Warning,
	Title: "A policy has no binding",
	Why:   "A policy is in force only where a binding says so. Without one it does nothing.",
	Fix: "Create a binding with this policyName, or delete the policy. Among files, the rule is a note, and is silent if most of the policies have no binding, as those of " +
		"a library.",
	Fails: strings.ReplaceAll(before(policy("validations:\n- {expression: \"object.spec.hostNetwork != true\"}\n")), "name: images", "name: networks") + "---\n" +
		policy("validations:\n- {expression: \"!has(object.spec.hostNetwork) || !object.spec.hostNetwork\"}\n"),
	Passes: policy("validations:\n- {expression: \"!has(object.spec.hostNetwork) || !object.spec.hostNetwork\"}\n"),
	check: func(p *pass) {
		p.entries(func(e *snapshot.Entry) {
			if e.Policy == nil || e.Bindings != nil {
				return
			}
			if why := p.Hidden[e.Source.Descriptor().Bindings]; why != "" {
				return
			}
			level := Warning
			if p.Partial {
				if level = Note; p.isLibrary(e.Source) {
					p.misses("bindings of policies are in no file: %s", p.rule.ID)
					return
				}
			}
			p.findsAs(level, place{objectOf(e.Entry), []any{"metadata", "name"}}, "the policy %s has no binding: it does nothing", e)
		})
	},
}

// isLibrary reports whether most of the policies of a source have no binding.
func (p *pass) isLibrary(source registration.Source) bool {
	bound, others := 0, 0
	for _, e := range p.Snapshot.Entries(source) {
		if e.Bindings != nil {
			bound++
		} else {
			others++
		}
	}
	return others > bound
}

// before returns the first document of an example.
func before(example string) string {
	first, _, _ := strings.Cut(example, "---\n")
	return first
}
