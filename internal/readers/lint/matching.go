package lint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

var ruleNeverMatches = &Rule{
	ID: "rule-never-matches", Level: Warning,
	Reads: []Part{Kinds},
	check: func(p *pass) {
		if !p.sees(Kinds) {
			return
		}
		m := matcher{p, p.targets(), map[string]bool{}}
		p.entries(func(e *snapshot.Entry) {
			for i := range e.Rules {
				r := &e.Rules[i]
				matches, group := m.matches(e, r), ""
				if names := notNames(r); matches && len(names) > 0 {
					p.finds(at(e.Entry, append(rulesPath(e.Entry, i), "resourceNames")...), "no object has the name %s in resourceNames of rule %d of %s, which are compared as they are, without patterns", few(names), i+1, e)
				}
				if !matches {
					group = p.undefined(r)
				}
				switch names, plurals := p.unserved(r); {
				case len(names) > 0 && (matches || group != ""):
					p.finds(at(e.Entry, append(rulesPath(e.Entry, i), "resources")...), "no request matches %s in rule %d of %s: the API serves no such resource in %s%s", few(names), i+1, e, groupsText(r.APIGroups), instead(plurals))
				case matches:
				case group != "":
					p.misses("no file has %s of group %s: %s", few(r.Resources), group, p.rule.ID)
				default:
					p.finds(at(e.Entry, rulesPath(e.Entry, i)...), "no request matches rule %d of %s: %s", i+1, e, p.mismatch(e.Source, r))
				}
			}
		})
	},
}

// unserved returns the resources in a rule that no version of its groups has. If the rule names a group whose kinds are
// not all known, these are the names that no resource can have, and the singular names of resources. plurals are the
// resources whose kinds it names.
func (p *pass) unserved(r *registration.Rule) (list, plurals []string) {
	known := func(group string) bool {
		return group != "*" && (!p.Partial || slices.ContainsFunc(p.Resources, func(k Resource) bool { return k.Group == group && !k.Custom }))
	}
	all := !slices.ContainsFunc(r.APIGroups, func(group string) bool { return !known(group) })
	for _, named := range r.Resources {
		resource, sub, _ := strings.Cut(named, "/")
		served, plural := false, ""
		for _, k := range p.Resources {
			if !slices.Contains(r.APIGroups, k.Group) {
				continue
			}
			served = served || k.Resource == resource && (!all || sub == "*" || !k.kindOf(sub).Empty())
			if strings.EqualFold(k.Kind.Kind, resource) {
				plural = k.Resource
			}
		}
		if resource != "*" && !served && (all || plural != "" || strings.Trim(resource, letters) == "" && resource != strings.ToLower(resource)) {
			list = append(list, named)
			if plural != "" {
				plurals = append(plurals, plural)
			}
		}
	}
	return list, plurals
}

// instead names the resources that a rule should name.
func instead(plurals []string) string {
	if len(plurals) == 0 {
		return ""
	}
	return "; write " + few(plurals)
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// groupsText names API groups.
func groupsText(groups []string) string {
	var names []string
	for _, g := range groups {
		names = append(names, cmp.Or(g, "the core group"))
	}
	return few(names)
}

// notNames returns the names in a rule that no object can have: with a character that no name may contain.
func notNames(r *registration.Rule) (list []string) {
	for _, name := range r.ResourceNames {
		if strings.ContainsAny(name, "*?/% ^$") {
			list = append(list, name)
		}
	}
	return list
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

func (m *matcher) matches(e *snapshot.Entry, r *registration.Rule) bool {
	key := fmt.Sprintf("%d %t %q", e.Source, e.Static(), *r)
	found, ok := m.known[key]
	if !ok {
		found = slices.ContainsFunc(m.targets, func(q plan.Request) bool {
			// The names of later objects are unknown, so any name of the rule represents them.
			if len(r.ResourceNames) > 0 {
				q.Name = r.ResourceNames[0]
			}
			return plan.RuleMatches(r, &q) && reachesEntry(plan.ReachOf(e.Source, q.Kind, q.Resource.GroupResource(), q.Reviews), e)
		})
		m.known[key] = found
	}
	return found
}

// reachesEntry reports whether an entry may apply within a reach. Entries of manifest files apply to objects that entries of
// the API do not.
func reachesEntry(reach plan.Reach, e *snapshot.Entry) bool {
	return reach == plan.Everything || reach == plan.Manifests && e.Static()
}

// targets returns all requests to the API that rules can distinguish.
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

// undefined returns a group of a rule that needs a CRD and has none in the files; empty if there is
// none.
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
		// Kubernetes has groups that end in .k8s.io, and so have many projects with CRDs. The files
		// may have only some of these CRDs.
		if !builtIn && !defined {
			return group
		}
	}
	return ""
}

// mismatch returns the reason why a rule matches no request.
func (p *pass) mismatch(source registration.Source, r *registration.Rule) string {
	// named are the rule's resources that are served in some version.
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
		return fmt.Sprintf("%s never matches %s", source.Descriptor().Plugin, what)
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

var selectorNeverMatches = &Rule{
	ID: "selector-never-matches", Level: Warning,
	Reads: []Part{Namespaces},
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
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
	}),
}

// aboutNamespaces reports whether rules can match namespaced objects.
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

var exactMissesVersion = &Rule{
	ID: "exact-misses-version", Level: Warning, Advice: "match-all-versions",
	Reads: []Part{Kinds},
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		if !p.sees(Kinds) || p.Equivalents == nil {
			return
		}
		if e.Equivalent || e.Source == registration.Initializing || len(e.Rules) == 0 || p.byOldDefault(e.Entry, "matchPolicy") {
			return
		}
		var missed []string
		for i := range p.Resources {
			r := &p.Resources[i]
			if p.Several[r.GroupResource()] {
				continue
			}
			for _, o := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
				q := plan.Request{Operation: o, Resource: r.GroupVersionResource, Kind: r.Kind, Namespace: p.someNamespace(r)}
				if !matchesAny(e.Rules, &q) {
					continue
				}
				for _, other := range p.Equivalents.EquivalentResourcesFor(r.GroupVersionResource, "") {
					q.Resource = other
					name := other.Resource + " of " + other.GroupVersion().String()
					if !matchesAny(e.Rules, &q) && !slices.Contains(missed, name) && !p.inAnother(e, &q) {
						missed = append(missed, name)
					}
				}
			}
		}
		if len(missed) > 0 {
			p.finds(at(e.Entry), "the rules of %s leave out %s, which are the same objects: matchPolicy is Exact", e, few(missed))
		}
	}),
}

// inAnother reports whether another webhook of the same server receives a request.
func (p *pass) inAnother(e *snapshot.Entry, q *plan.Request) bool {
	return e.Webhook != nil && slices.ContainsFunc(p.Snapshot.Entries(e.Source), func(other *snapshot.Entry) bool {
		return addressOf(&other.ClientConfig) == addressOf(&e.ClientConfig) && matchesAny(other.Rules, q)
	})
}

func matchesAny(rules []registration.Rule, q *plan.Request) bool {
	return slices.ContainsFunc(rules, func(r registration.Rule) bool { return plan.RuleMatches(&r, q) })
}

var objectSelectorOptOut = &Rule{
	ID: "object-selector-opt-out", Level: Warning,
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		enforces := e.Source == registration.Validating || e.Source == registration.External || e.Source == registration.ValidatingPolicies
		s := e.ObjectSelector
		// Only a selector that matches objects without labels is reported: users can add a label to
		// exclude their objects from it.
		if !enforces || s == nil || s.Empty() || !s.Matches(labels.Set{}) {
			return
		}
		where := at(e.Entry, "objectSelector")
		if e.Entry.Policy != nil {
			where = at(e.Entry, "matchConstraints", "objectSelector")
		}
		level := p.rule.Level
		if !p.isAbout(e.Rules) {
			// The objects of one program, whose documentation may have the label.
			level = Note
			if hasOwnLabels(e) {
				return
			}
		}
		p.findsCause(level, where, s.String(), e.String(), "users can exclude their objects from %s by a label: objectSelector %s", e, s)
	}),
}

// hasOwnLabels reports whether the labels of an objectSelector have the groups of the rules in their names.
func hasOwnLabels(e *snapshot.Entry) bool {
	list, _ := e.ObjectSelector.Requirements()
	return !slices.ContainsFunc(list, func(label labels.Requirement) bool {
		domain, _, prefixed := strings.Cut(label.Key(), "/")
		return !prefixed || !slices.ContainsFunc(e.Rules, func(r registration.Rule) bool {
			return slices.ContainsFunc(r.APIGroups, func(group string) bool { return strings.HasSuffix("."+domain, "."+group) })
		})
	})
}

var resourceNamesOnDelete = &Rule{
	ID: "resource-names-on-delete", Level: Warning,
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		for i := range e.Rules {
			r := &e.Rules[i]
			if len(r.ResourceNames) > 0 && (slices.Contains(r.Operations, "DELETE") || slices.Contains(r.Operations, "*")) {
				p.finds(at(e.Entry, rulesPath(e.Entry, i)...), "rule %d of %s does not match the deletion of a collection, which has no name: it names %s", i+1, e, few(r.ResourceNames))
			}
		}
	}),
}
