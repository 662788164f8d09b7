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
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

var missingKey = &Rule{
	ID: "missing-key", Level: Warning,
	Reads: []Part{Kinds, Definitions},
	check: func(p *pass) {
		// said has the variables with a finding.
		type variable struct {
			entry *snapshot.Entry
			name  string
		}
		said := map[variable]bool{}
		for _, f := range p.analyses() {
			if f.trials == nil || !strings.Contains(f.text, "object") && !strings.Contains(f.text, "oldObject") && !strings.Contains(f.text, "variables") {
				continue
			}
			found := p.missingKeyOf(f)
			if found == nil {
				continue
			}
			where, what := f.at(), "an expression of "+f.entry.String()
			if name := f.trials.Variable(p.ctx, &found.Setting); name != "" {
				if v := (variable{f.entry, name}); said[v] {
					continue
				} else {
					said[v] = true
				}
				where, what = at(f.entry.Entry, "variables", variableIndex(f.entry, name), "expression"), fmt.Sprintf("the variable %q of %s", name, f.entry)
			}
			p.findsAs(found.level, where, "%s fails for %s%s: %s; %s", what, found.what, conditional(found.If), oneLine(found.Err.Error()), p.failure(f.entry, "each of these requests"+found.which))
		}
	},
}

// variableIndex returns the index of a variable of a policy.
func variableIndex(e *snapshot.Entry, name string) int {
	return slices.IndexFunc(e.Entry.Policy.Variables, func(v registration.Variable) bool { return v.Name == name })
}

// missing is a set of requests for which an expression fails.
type missing struct {
	setting
	expression.Trial
	level report.Level
	// which names the match conditions that the requests must meet, too.
	which string
}

// missingKeyOf returns the first requests for which an expression fails because a field is missing; nil for none. Requests
// of ordinary objects precede others.
func (p *pass) missingKeyOf(f *fact) (found *missing) {
	for _, s := range p.settings(f) {
		trial, open, ok := p.fails(f, &s.Setting)
		if !ok || f.use == mutation && p.addedBefore(f, s.Missing) || (f.use == validation || s.near != nil) && p.meant(f, &s) {
			continue
		}
		// An expression that fails for one program alone is about objects that the program makes.
		usual := s.Setting
		if usual.User = somebody; f.trials.Of(p.ctx, &usual).Value != nil {
			continue
		}
		if p.Schemas != nil && len(p.mistakes(f)) > 0 {
			// Rule expression-types reports the field.
			return nil
		}
		// The author of special objects knows their fields, and which objects have no name yet.
		if level, which, special := p.remaining(&s.Setting, s.smallest, open); !special && (level != Note || found == nil && s.RequestName == nil) {
			found = &missing{s, trial, level, which}
		}
		if found != nil && found.level != Note {
			break
		}
	}
	return found
}

// meant reports whether a policy is to reject the requests of a setting: another validation is false for them, or this
// one is false if the missing field has an empty value, and not true if it is null. A field of list elements is needed if
// the expression accepts none of the similar requests.
func (p *pass) meant(f *fact, s *setting) bool {
	if slices.ContainsFunc(p.factsOf(f.entry), func(other *fact) bool {
		return other.use == validation && other.trials != nil && other.trials.Of(p.ctx, &s.Setting).Value == types.False
	}) {
		return true
	}
	if s.near != nil {
		return !slices.ContainsFunc(s.near, func(one expression.Setting) bool {
			trial := f.trials.Of(p.ctx, &one)
			return trial.Err == nil && trial.Value != types.False
		})
	}
	valued := func(value func(path []string) any) any {
		one := s.Setting
		root, known := "object", &one.Object
		if one.Missing = nil; s.OfOld {
			root, known = "oldObject", &one.Old
		}
		var of *expression.Partial
		for _, path := range f.trials.Paths(root) {
			if starts(path, s.Missing) && (len(s.Missing) > 0 || p.lacks(s.subject, s.smallest, path)) {
				of = expression.Merge(of, expression.With(value(path), path...))
			}
		}
		*known = of
		return f.trials.Of(p.ctx, &one).Value
	}
	return valued(func(path []string) any { return p.empty(s.subject.kind, path) }) == types.False &&
		valued(func([]string) any { return nil }) != types.True
}

// empty returns the empty value of a field. It is null for a number, whose absence often means a default.
func (p *pass) empty(kind schema.GroupVersionKind, path []string) any {
	if field := fieldOf(p.schemaOf(kind), path); field != nil && len(field.Type) == 1 {
		return emptyOf[field.Type[0]]
	}
	return ""
}

var emptyOf = map[string]any{"string": "", "boolean": false, "array": []any{}, "object": &expression.Partial{Closed: true}}

// remaining describes the requests of a setting for which the match conditions in open are not false. level is a note if
// they may be false for ordinary requests, also about the smallest object of the kind, and special is set if one is.
func (p *pass) remaining(s *expression.Setting, smallest *expression.Partial, open []*fact) (level report.Level, which string, special bool) {
	if level = Warning; len(open) == 0 {
		return level, "", false
	}
	var names []string
	usual := ordinary(s)
	least := *usual
	if smallest != nil && s.Object != nil {
		least.Object = expression.Merge(usual.Object, smallest)
	}
	which = " that meets the match condition "
	if len(open) > 1 {
		which = " that meets the match conditions "
	}
	for _, c := range open {
		names = append(names, strconv.Quote(c.name))
		trial, ofLeast := c.trials.Of(p.ctx, usual), c.trials.Of(p.ctx, &least)
		switch {
		case aboutNamespace(c) || trial.Value == types.True || ofLeast.Value == types.True:
		case trial.Err != nil && len(trial.If) == 0, ofLeast.Err != nil && len(ofLeast.If) == 0:
			which = strings.Replace(which, "meets the", "meets, or fails in, the", 1)
		case trial.Value == types.False:
			level, special = Note, true
		default:
			level = Note
		}
	}
	return level, which + few(names), special
}

// aboutNamespace reports whether a match condition reads only the namespace: the objects there are ordinary.
func aboutNamespace(c *fact) bool {
	return !slices.ContainsFunc(c.trials.Reads(), func(path []string) bool {
		return path[0] != "namespaceObject" && !slices.Contains([]string{"request.namespace", "object.metadata.namespace"}, strings.Join(path, "."))
	})
}

// ordinary returns the requests of a setting by a person, for an object with a name, a namespace and labels that no
// program reserves.
func ordinary(s *expression.Setting) *expression.Setting {
	usual, name := *s, "example"
	usual.User, usual.RequestNamespace = somebody, &name
	if usual.RequestName == nil {
		usual.RequestName = &name
	}
	object := func(known *expression.Partial) *expression.Partial {
		return expression.Merge(known, &expression.Partial{Fields: map[string]any{"metadata": &expression.Partial{Fields: map[string]any{
			"name": name, "namespace": name, "annotations": expression.Absent,
			"labels": &expression.Partial{Closed: true, Fields: map[string]any{"app": name}},
		}}}})
	}
	usual.Object, usual.Old = object(s.Object), object(s.Old)
	return &usual
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
	// subject has the kind of the objects, and smallest is the smallest object; nil if it is not known.
	*subject
	smallest *expression.Partial
	// near are similar requests, for a field of list elements: a field above or below Missing is missing, or it is null
	// and may be empty.
	near []expression.Setting
}

// mostSettings bounds the settings of an expression.
const mostSettings = 64

// settings returns the requests whose object has no value for one of the fields that an expression reads, and which an
// API server accepts.
func (p *pass) settings(f *fact) (list []setting) {
	subjects, others := p.subjects(f.entry)
	if others {
		subjects = nil
	} else if len(subjects) == 0 && p.Partial {
		subjects = undefined(f.entry)
	}
	// A field that is missing from an object of one kind, in one operation, represents the others, unless the
	// expression asks.
	asks, seen := slices.ContainsFunc(p.factsOf(f.entry), func(other *fact) bool {
		return (other == f || other.use == condition) && (strings.Contains(other.text, ".kind") || strings.Contains(other.text, "request.") || strings.Contains(other.text, "variables"))
	}), map[string]bool{}
	for i := range subjects {
		s := &subjects[i]
		if i == mostTyped {
			break
		}
		minimal := p.smallest(s)
		add := func(one expression.Setting, what string, args ...any) {
			one.Free = len(one.Missing) > 1 && one.Missing[0] == "metadata" && one.Missing[1] != "name" && (s.Custom || s.kind.Empty())
			list = append(list, setting{one, fmt.Sprintf(what, args...), s, minimal, nil})
		}
		for _, operation := range p.operationsOn(f.entry, s) {
			base := settingFor(f, s, operation)
			missing := false
			for _, root := range []string{"object", "oldObject"} {
				if root == "object" && operation == "DELETE" || root == "oldObject" && operation == "CREATE" {
					continue
				}
				for _, path := range f.trials.Paths(root) {
					for n := 1; n <= len(path); n++ {
						if root == "object" && operation == "CREATE" && slices.Equal(path[:n], []string{"metadata", "name"}) && p.mayBeUnnamed(f.entry, s) && !seen["unnamed"] {
							seen["unnamed"] = true
							unnamed, one := "", base
							one.Missing, one.Object, one.RequestName = path[:n], expression.Without(path[:n]...), &unnamed
							add(one, "the CREATE of %s with metadata.generateName, whose metadata.name is set after the mutating pass", s.Resource.Resource)
							continue
						}
						if !p.lacks(s, minimal, path[:n]) {
							continue
						}
						missing = true
						key := root + " " + strings.Join(path[:n], ".")
						if asks {
							key += " " + operation + " " + s.kind.String()
						}
						if seen[key] {
							continue
						}
						seen[key] = true
						one, of := base, "without "
						one.Missing, one.OfOld = path[:n], root == "oldObject"
						if one.OfOld {
							one.Old, of = expression.Without(path[:n]...), "whose stored object has no "
						} else {
							one.Object = expression.Without(path[:n]...)
						}
						add(one, "the %s of %s %s%s", operation, s.Resource.Resource, of, strings.Join(path[:n], "."))
						if len(list) == mostSettings {
							return list
						}
					}
				}
			}
			if minimal == nil || operation == "DELETE" {
				continue
			}
			for _, one := range p.elements(f, s, base) {
				if key := strings.Join(one.Missing, "."); !seen[key] {
					seen[key] = true
					list = append(list, one)
				}
			}
			if !missing {
				continue
			}
			one := base
			one.Object, one.Missing = minimal, []string{}
			add(one, "the %s of %s with the required fields alone", operation, s.Resource.Resource)
		}
	}
	return list
}

// elements returns the requests whose object has a list with one element, which has no value for one of the fields that
// an expression reads. The object has no other list that the expression reads and that it need not have.
func (p *pass) elements(f *fact, s *subject, base expression.Setting) (list []setting) {
	smallest := p.smallest(s)
	var others *expression.Partial
	type field struct{ of, in []string }
	var fields []field
	for _, read := range f.trials.Reads() {
		n := slices.Index(read, expression.Element)
		if read[0] != "object" || n < 2 {
			continue
		}
		one := field{read[1:n], read[n+1:]}
		if end := slices.Index(one.in, expression.Element); end >= 0 {
			one.in = one.in[:end]
		}
		if p.lacks(s, smallest, one.of) {
			others = expression.Merge(others, expression.Without(one.of...))
			continue
		}
		fields = append(fields, one)
	}
	for _, one := range fields {
		has := func(element *expression.Partial) expression.Setting {
			found := base
			found.Object = expression.Merge(expression.With([]any{element}, one.of...), others)
			return found
		}
		without := func(n int) expression.Setting { return has(expression.Without(one.in[:n]...)) }
		for n := 1; n <= len(one.in); n++ {
			found := without(n)
			found.Missing = slices.Concat(one.of, []string{"0"}, one.in[:n])
			// A plugin mounts the token of the service account.
			if s.kind == podKind && one.in[0] == "volumeMounts" || f.trials.Of(p.ctx, &found).Err == nil {
				continue
			}
			if with := p.smallest(s, found.Missing[:len(found.Missing)-1]...); with == nil || !p.lacks(s, with, found.Missing) {
				continue
			}
			near := []expression.Setting{}
			if empty := has(expression.With("", one.in...)); f.trials.Of(p.ctx, &empty).Value != types.False {
				near = append(near, has(expression.With(nil, one.in...)))
			}
			if n > 1 {
				near = append(near, without(n-1))
			}
			if n < len(one.in) {
				near = append(near, without(n+1))
			}
			what := fmt.Sprintf("the %s of %s with an element of %s without %s", base.Operation, s.Resource.Resource, strings.Join(one.of, "."), strings.Join(one.in[:n], "."))
			if list = append(list, setting{found, what, s, smallest, near}); len(list) == mostElements {
				return list
			}
		}
	}
	return list
}

// mostElements bounds the settings about list elements of an expression, a kind and an operation.
const mostElements = 16

// undefined returns the resources that the rules of an entry name, as of kinds whose metadata alone is known.
func undefined(e *snapshot.Entry) (list []subject) {
	for i := range e.Rules {
		r := &e.Rules[i]
		for _, name := range r.Resources {
			if len(r.APIGroups) == 1 && len(r.APIVersions) > 0 && !strings.ContainsAny(name, "*/") {
				resource := schema.GroupVersionResource{Group: r.APIGroups[0], Version: r.APIVersions[0], Resource: name}
				list = append(list, subject{Resource: &Resource{GroupVersionResource: resource, Namespaced: r.Scope != "Cluster"}})
			}
		}
	}
	return list
}

// settingFor returns the requests of an operation on a kind, as an expression of an entry sees them.
func settingFor(f *fact, s *subject, operation string) expression.Setting {
	setting := expression.Setting{Known: expression.Known{Operation: operation, Namespace: f.use != condition}}
	if f.entry.Policy != nil && s.kind == s.Kind && !s.kind.Empty() {
		setting.Group, setting.Resource, setting.Kind = &s.Group, &s.GroupVersionResource.Resource, &s.Kind.Kind
	}
	return setting
}

// mayBeUnnamed reports whether an entry sees new objects of a kind before they have a name: the mutating pass is before
// the name of generateName is made, and rules with names match no object without one.
func (p *pass) mayBeUnnamed(e *snapshot.Entry, s *subject) bool {
	return e.Source.Descriptor().Pass == registration.MutatingPass && s.kind == s.Kind &&
		slices.ContainsFunc(e.Rules, func(r registration.Rule) bool { return len(r.ResourceNames) == 0 })
}

// smallest returns the smallest object of a kind with an object at a path; nil if it is not known, and for objects of
// subresources.
func (p *pass) smallest(s *subject, at ...string) *expression.Partial {
	if p.Minimal == nil || s.kind != s.Kind {
		return nil
	}
	key := fmt.Sprint(s.Kind, at)
	known, ok := p.minimal[key]
	if !ok {
		known = p.Minimal(s.Kind, at...)
		p.minimal[key] = known
	}
	return known
}

// nodeKind is the kind of nodes, and nodeLabels are the labels that every kubelet sets.
var nodeKind, nodeLabels = schema.GroupVersionKind{Version: "v1", Kind: "Node"}, []string{
	"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch",
}

// lacks reports whether objects may have no field at a path, and have its parent. smallest is the smallest object.
func (p *pass) lacks(s *subject, smallest *expression.Partial, path []string) bool {
	if s.kind == nodeKind && len(path) > 1 && path[1] == "labels" {
		// Every kubelet sets labels.
		return len(path) > 2 && !slices.Contains(nodeLabels, path[2])
	}
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

// fails returns the trial of an expression that fails for the requests of a setting, and the match conditions that some
// of them may not meet; ok is false if no request fails.
func (p *pass) fails(f *fact, s *expression.Setting) (trial expression.Trial, open []*fact, ok bool) {
	if trial = f.trials.Of(p.ctx, s); trial.Err == nil || !keyIsMissing(trial.Err) {
		return trial, nil, false
	}
	open, ok = p.meets(f, s)
	return trial, open, ok && !slices.ContainsFunc(open, func(c *fact) bool { return c.trials.Of(p.ctx, s).Err == nil && !c.trials.Independent(s) })
}

// meets returns the match conditions of an entry, except f, that may be false for requests of a setting. ok is false if
// one is false for each: it skips the entry whatever fails. It is false, too, for a condition that fails, which has a
// finding of its own.
func (p *pass) meets(f *fact, s *expression.Setting) (open []*fact, ok bool) {
	for _, c := range p.factsOf(f.entry) {
		if c.use != condition || c.trials == nil {
			continue
		}
		switch result := c.trials.Of(p.ctx, s); {
		case result.Value == types.False:
			return nil, false
		case c == f || result.Value == types.True:
		case result.Err == nil || len(result.If) > 0 && f.use == condition:
			open = append(open, c)
		case f.use != condition:
			return nil, false
		}
	}
	return open, true
}

// keyIsMissing reports whether an error is about the missing field, and not about a mistake that other rules report.
func keyIsMissing(err error) bool { return strings.Contains(err.Error(), "no such key") }
