package lint

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var ruleNeverMatches = &Rule{
	ID: "rule-never-matches", Level: Warning,
	Reads: []Part{Kinds},
	Title: "A rule matches no request",
	Why: "The API serves no such resource or version, the resource has another scope, or admission is never asked about it. The rule " +
		"looks as if it enforced something, and it enforces nothing.",
	Fix: "Name the resource by its plural in lower case, in a group and version that gatehouse kubectl api-resources shows.",
	Fails: hook(validating, `rules:
- {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [deployments]}
failurePolicy: Ignore
`),
	Passes: hook(validating, `rules:
- {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}
failurePolicy: Ignore
`),
	check: func(p *pass) {
		if !p.sees(Kinds) {
			return
		}
		m := matcher{p, p.targets(), map[string]bool{}}
		p.entries(func(e *snapshot.Entry) {
			for i := range e.Rules {
				r := &e.Rules[i]
				if m.matches(e.Source, r) {
					continue
				}
				if group := p.undefined(r); group != "" {
					p.misses("kinds of group %s are in no file: %s", group, p.rule.ID)
					continue
				}
				p.finds(at(e.Entry, rulesPath(e.Entry, i)...), "no request matches rule %d of %s: %s", i+1, e, p.mismatch(e.Source, r))
			}
		})
	},
}

// rulesPath returns the path of a rule, below the entry.
func rulesPath(e *registration.Entry, i int) []any {
	switch {
	case e.Policy != nil:
		return []any{"matchConstraints", "resourceRules", i}
	case e.Binding != nil:
		return []any{"matchResources", "resourceRules", i}
	}
	return []any{"rules", i}
}

// matcher decides whether a rule matches any request at all.
type matcher struct {
	*pass
	targets []plan.Request
	known   map[string]bool
}

func (m *matcher) matches(source registration.Source, r *registration.Rule) bool {
	key := fmt.Sprintf("%d %q", source, *r)
	found, ok := m.known[key]
	if !ok {
		found = slices.ContainsFunc(m.targets, func(q plan.Request) bool {
			// The names of later objects are not known, so one that the rule names stands for
			// them.
			if len(r.ResourceNames) > 0 {
				q.Name = r.ResourceNames[0]
			}
			return plan.RuleMatches(r, &q) && plan.ReachOf(source, q.Kind, q.Resource.GroupResource(), q.Reviews) == plan.Everything
		})
		m.known[key] = found
	}
	return found
}

// targets returns all requests to the API, as far as rules can tell them apart.
func (p *pass) targets() []plan.Request {
	var list []plan.Request
	for i := range p.Resources {
		r := &p.Resources[i]
		add := func(sub string, kind schema.GroupVersionKind, operations ...admission.Operation) {
			for _, o := range operations {
				list = append(list, plan.Request{Operation: o, Resource: r.GroupVersionResource, Subresource: sub, Kind: kind, Namespace: p.someNamespace(r), Name: "one"})
			}
		}
		add("", r.Kind, admission.Create, admission.Update, admission.Delete)
		for _, s := range r.Subresources {
			add(s.Name, s.Kind, admission.Create, admission.Update, admission.Connect)
		}
	}
	return list
}

// undefined returns a group of a rule whose kinds must be defined in a file and are not; empty
// when there is none.
func (p *pass) undefined(r *registration.Rule) string {
	if !p.Partial {
		return ""
	}
	for _, group := range r.APIGroups {
		if group == "*" {
			return "*"
		}
		builtIn, defined := !strings.Contains(group, "."), false
		for i := range p.Resources {
			if k := &p.Resources[i]; k.Group == group {
				builtIn = builtIn || !k.Custom
				defined = defined || slices.Contains(r.Resources, k.Resource)
			}
		}
		// Kubernetes has groups that end in .k8s.io, and so do many projects that define kinds by
		// custom resources. The files may have some of these kinds, and others not.
		if !builtIn && !defined {
			return group
		}
	}
	return ""
}

// mismatch says why a rule matches no request.
func (p *pass) mismatch(source registration.Source, r *registration.Rule) string {
	// named are those of the rule's resources that are served in some version.
	var served, named []string
	sameGroup, exempt := false, false
	for i := range p.Resources {
		k := &p.Resources[i]
		name := func(resource string) bool { return slices.Contains(r.Resources, resource) }
		if !name(k.Resource) && !slices.ContainsFunc(k.Subresources, func(s Subresource) bool { return name(k.Resource + "/" + s.Name) }) {
			continue
		}
		served = append(served, k.GroupVersion().String())
		for _, resource := range r.Resources {
			if main, _, _ := strings.Cut(resource, "/"); main == k.Resource && !slices.Contains(named, resource) {
				named = append(named, resource)
			}
		}
		if slices.Contains(r.APIGroups, k.Group) || slices.Contains(r.APIGroups, "*") {
			sameGroup = true
			exempt = exempt || plan.ReachOf(source, k.Kind, k.GroupResource(), p.Reviews) != plan.Everything
		}
	}
	what := few(r.Resources)
	switch {
	case exempt:
		return fmt.Sprintf("%s never judges %s", source.Descriptor().Plugin, what)
	case len(served) == 0:
		return fmt.Sprintf("the API serves no resource %s", what)
	case !sameGroup:
		return fmt.Sprintf("%s are served in %s, and the rule names the group %q", few(named), few(served), strings.Join(r.APIGroups, ", "))
	case !slices.Contains(r.APIVersions, "*") && !slices.ContainsFunc(served, func(gv string) bool {
		return slices.ContainsFunc(r.APIVersions, func(v string) bool { return gv == v || strings.HasSuffix(gv, "/"+v) })
	}):
		return fmt.Sprintf("%s are served in %s, and the rule names the version %s", few(named), few(served), few(r.APIVersions))
	case r.Scope != "*":
		return fmt.Sprintf("%s has another scope than %s", what, r.Scope)
	}
	return fmt.Sprintf("there is no %s of %s", few(r.Operations), what)
}
