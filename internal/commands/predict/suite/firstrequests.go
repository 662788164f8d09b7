package suite

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/stage"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/solve"
)

const (
	// maxSubjects bounds the kinds and operations for which a policy gets requests.
	maxSubjects = 24
	// maxSearched bounds the kinds of one operation that are searched for one validation.
	maxSearched = 5
	// maxVerified bounds the found requests that the server evaluates for one test and subject.
	maxVerified = 12
	// maxRepairs bounds the changes of a request that the API rejects.
	maxRepairs = 8
)

// requestKind is a kind of requests that a policy evaluates.
type requestKind struct {
	operation string
	kind      *offline.Kind
	sub       string
	// parent is the stored object of a request that sends an object of another kind to a subresource.
	parent map[string]any
	// base is a small request that the API accepts; nil if none was found, for the reason why.
	base  *solve.State
	why   string
	begun bool
	// allowed is a request that the policy allows; nil if none was found. searched is set after the search for it.
	allowed  *attempt
	searched bool
}

// attempt is a tried request.
type attempt struct {
	sj      *requestKind
	st      *solve.State
	allowed bool
	// evaluated reports whether the policy evaluated the request for the binding.
	evaluated bool
	// violated and failed have the messages of validations that are false, and whose evaluation failed.
	violated, failed map[int]string
	warnings         []string
	// mutated are the mutations that changed the object, which is the result.
	mutated map[int]bool
	object  map[string]any
	// foreign is the reason of a rejection by anything else. causes has the reasons of the API.
	foreign string
	causes  []OutcomeCause
}

// subjectsOf returns the kinds of requests that the rules of the policy and of the binding match. why is the reason if
// there are none.
func (f *firstTests) subjectsOf() (list []*requestKind, why string) {
	own := mappings(walk(f.policy.Content, "spec", "matchConstraints", "resourceRules"))
	narrowed := mappings(walk(f.binding.Content, "spec", "matchResources", "resourceRules"))
	unserved := []string{}
	for _, operation := range []string{opCreate, opUpdate, opDelete, opConnect} {
		for _, rule := range own {
			if operations := textsOf(walk(rule, "operations")); !slices.Contains(operations, operation) && !slices.Contains(operations, "*") {
				continue
			}
			for _, resource := range textsOf(walk(rule, "resources")) {
				name, sub, _ := strings.Cut(resource, "/")
				versions := textsOf(walk(rule, "apiVersions"))
				kinds := f.stage.Kinds().Matching(textsOf(walk(rule, "apiGroups")), versions, []string{name})
				if len(kinds) == 0 && name != "*" {
					unserved = append(unserved, resource)
				}
				for _, kind := range f.preferred(kinds, name) {
					sj := &requestKind{operation: operation, kind: kind, sub: strings.Trim(sub, "*")}
					if !sj.possible() || len(narrowed) > 0 && !slices.ContainsFunc(narrowed, sj.within) {
						continue
					}
					if !slices.ContainsFunc(list, func(o *requestKind) bool { return o.operation == sj.operation && o.kind == sj.kind && o.sub == sj.sub }) {
						list = append(list, sj)
					}
				}
			}
		}
	}
	if len(list) == 0 && len(unserved) > 0 {
		return nil, fmt.Sprintf("no file defines %s, which its rules match; add the definitions", strings.Join(unserved, ", "))
	}
	if len(list) == 0 {
		return nil, "its rules match no object of a kind that the server has; write tests with requests that they match"
	}
	return list[:min(len(list), maxSubjects)], ""
}

// usual are the kinds of requests for rules that match all resources, in order.
var usual = []string{"Deployment", "Pod", "ConfigMap", "Service", "Namespace"}

// preferred returns the kinds to try for a rule: for a wildcard the kinds that expressions name, and usual ones.
func (f *firstTests) preferred(kinds []*offline.Kind, resource string) []*offline.Kind {
	if resource != "*" {
		return kinds
	}
	text := fmt.Sprint(walk(f.policy.Content, "spec"))
	named := func(k *offline.Kind) int {
		switch i := slices.Index(usual, k.Kind.Kind); {
		case regexp.MustCompile(`['"](` + k.Kind.Kind + `|` + k.Resource.Resource + `)['"]`).MatchString(text):
			return 0
		case i >= 0:
			return 1 + i
		}
		return 1 + len(usual)
	}
	kinds = slices.Clone(kinds)
	slices.SortStableFunc(kinds, func(a, b *offline.Kind) int { return cmp.Compare(named(a), named(b)) })
	return kinds[:min(len(kinds), 8)]
}

// possible reports whether there are such requests.
func (sj *requestKind) possible() bool {
	switch {
	case sj.kind.Takes(sj.sub).Empty():
		return false
	case sj.sub == "":
		return sj.operation != opConnect
	}
	return sj.operation == offline.OperationOf(sj.sub)
}

// within reports whether a rule matches.
func (sj *requestKind) within(rule map[string]any) bool {
	any := func(field, name string) bool {
		names := textsOf(walk(rule, field))
		return slices.Contains(names, name) || slices.Contains(names, "*")
	}
	resource := sj.kind.Resource.Resource
	if sj.sub != "" {
		resource += "/" + sj.sub
		return any("apiGroups", sj.kind.Kind.Group) && any("operations", sj.operation) && (any("resources", resource) || slices.ContainsFunc([]string{"*/*", "*/" + sj.sub, sj.kind.Resource.Resource + "/*"}, func(name string) bool {
			return slices.Contains(textsOf(walk(rule, "resources")), name)
		}))
	}
	return any("apiGroups", sj.kind.Kind.Group) && any("operations", sj.operation) && any("resources", resource)
}

// begin finds the base of a subject.
func (f *firstTests) begin(sj *requestKind) error {
	if sj.begun {
		return nil
	}
	sj.begun = true
	st, why := f.start(sj)
	if sj.why = why; why != "" {
		return nil
	}
	for range maxRepairs {
		a, seen, err := f.see(sj, st)
		if err != nil {
			return err
		}
		if a.foreign == "" {
			sj.base, sj.why = f.withParams(seen), ""
			return nil
		}
		sj.why = a.foreign
		if st = f.repair(sj, st, a.causes); st == nil {
			break
		}
	}
	return nil
}

// selector returns a label selector of the policy or the binding.
func selectorOf(object map[string]any, fields ...string) (*metav1.LabelSelector, labels.Selector, error) {
	content, _ := walk(object, fields...).(map[string]any)
	s := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, s); err != nil {
		return nil, nil, err
	}
	compiled, err := metav1.LabelSelectorAsSelector(s)
	return s, compiled, err
}

// selected are selectors that must all match.
type selected struct {
	written  []*metav1.LabelSelector
	compiled []labels.Selector
}

// selectors returns the selectors of the policy and the binding with a name.
func (f *firstTests) selectors(name string) (s selected) {
	for _, at := range []struct {
		object map[string]any
		field  string
	}{{f.policy.Content, "matchConstraints"}, {f.binding.Content, "matchResources"}} {
		written, compiled, err := selectorOf(at.object, "spec", at.field, name)
		if err == nil {
			s.written, s.compiled = append(s.written, written), append(s.compiled, compiled)
		}
	}
	return s
}

func (s selected) match(of map[string]string) bool {
	return !slices.ContainsFunc(s.compiled, func(c labels.Selector) bool { return !c.Matches(labels.Set(of)) })
}

// labels returns labels that the selectors match.
func (s selected) labels() map[string]string {
	out := map[string]string{}
	for _, w := range s.written {
		maps.Copy(out, w.MatchLabels)
	}
	for _, w := range s.written {
		for _, r := range w.MatchExpressions {
			switch {
			case r.Operator == metav1.LabelSelectorOpExists && out[r.Key] == "":
				out[r.Key] = "true"
			case r.Operator == metav1.LabelSelectorOpIn:
				for _, v := range r.Values {
					if before, there := out[r.Key]; !there || !slices.Contains(r.Values, before) {
						out[r.Key] = v
					}
					if s.match(out) {
						break
					}
				}
			}
		}
	}
	for _, w := range s.written {
		for _, r := range w.MatchExpressions {
			if v, there := out[r.Key]; there && r.Operator == metav1.LabelSelectorOpNotIn && slices.Contains(r.Values, v) {
				out[r.Key] = v + "-other"
			}
		}
	}
	return out
}

// namespace chooses a namespace that the selectors match, and its labels. why is the reason if none was found.
func (f *firstTests) namespace() (name string, of map[string]string, why string) {
	selectors := f.selectors("namespaceSelector")
	known := f.namespaces()
	full := func(name string, of map[string]string) map[string]string {
		out := map[string]string{corev1.LabelMetadataName: name}
		maps.Copy(out, of)
		return out
	}
	names := []string{corev1.NamespaceDefault}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if !slices.Contains(stage.Everywhere, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if selectors.match(full(name, known[name])) {
			return name, known[name], ""
		}
	}
	of = selectors.labels()
	name = cmp.Or(of[corev1.LabelMetadataName], "test")
	delete(of, corev1.LabelMetadataName)
	if !selectors.match(full(name, of)) {
		return "", nil, "no namespace was found that its selectors and those of its binding match"
	}
	return name, of, ""
}

// start returns a small request for a subject, which the policy and the binding select. why is the reason if there is none.
func (f *firstTests) start(sj *requestKind) (st *solve.State, why string) {
	kind := sj.kind
	st = &solve.State{Operation: sj.operation, Subresource: sj.sub, Kind: kind.Takes(sj.sub), Resource: kind.Resource, User: solve.Administrator(), Documents: map[string]*solve.Document{}}
	if kind.Namespaced {
		if st.Namespace, st.Labels, why = f.namespace(); why != "" {
			return nil, why
		}
	}
	about := offline.SchemaOf(kind.Kind, f.definitions)
	object := baseOf(kind, about)
	meta := object["metadata"].(map[string]any)
	if kind.Namespaced {
		meta["namespace"] = st.Namespace
	}
	for _, rule := range mappings(walk(f.policy.Content, "spec", "matchConstraints", "resourceRules")) {
		if names := textsOf(walk(rule, "resourceNames")); len(names) > 0 && sj.within(rule) {
			meta["name"] = names[0]
		}
	}
	for _, rule := range mappings(walk(f.binding.Content, "spec", "matchResources", "resourceRules")) {
		if names := textsOf(walk(rule, "resourceNames")); len(names) > 0 && sj.within(rule) {
			meta["name"] = names[0]
		}
	}
	selectors := f.selectors("objectSelector")
	if kind.Kind.GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
		own := f.selectors("namespaceSelector")
		selectors.written, selectors.compiled = append(selectors.written, own.written...), append(selectors.compiled, own.compiled...)
	}
	wanted := selectors.labels()
	if !selectors.match(wanted) && !selectors.match(nil) {
		return nil, "no labels of an object were found that its selectors and those of its binding match"
	}
	if len(wanted) > 0 {
		of, _ := meta["labels"].(map[string]any)
		if of == nil {
			of = map[string]any{}
		}
		for key, value := range wanted {
			of[key] = value
		}
		meta["labels"] = of
	}
	document := func(content map[string]any, about *offline.Kind) *solve.Document {
		return &solve.Document{Sent: content, Seen: runtime.DeepCopyJSON(content), Schema: offline.SchemaOf(about.Kind, f.definitions)}
	}
	mutates := at(f.policy.Content, "kind") == mutatingPolicy
	switch spec, _ := object["spec"].(map[string]any); kind.Kind.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		if sj.sub != "" {
			// Subresources of pods are for running pods.
			spec["nodeName"], spec["serviceAccountName"] = "node", "default"
		}
		if mutates {
			// The volume with the token has another name in each request.
			spec["automountServiceAccountToken"] = false
		}
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		if mutates || sj.operation == opUpdate {
			// A generated selector has another UID in each request, and cannot be changed.
			spec["manualSelector"], spec["selector"] = true, map[string]any{"matchLabels": map[string]any{"app": "test"}}
		}
	}
	sent := kind.Takes(sj.sub)
	switch {
	case sent != kind.Kind:
		sj.parent = object
		other := &offline.Kind{Kind: sent, Namespaced: kind.Namespaced}
		small := baseOf(other, offline.SchemaOf(sent, f.definitions))
		if sj.operation == opConnect {
			delete(small, "metadata")
			if sj.sub == "exec" {
				small["command"] = []any{"ls"}
			}
		} else {
			small["metadata"] = map[string]any{"name": meta["name"]}
			if kind.Namespaced {
				small["metadata"].(map[string]any)["namespace"] = st.Namespace
			}
		}
		st.Documents[solve.Object] = document(small, other)
	case sj.operation == opCreate:
		st.Documents[solve.Object] = document(object, kind)
	case sj.operation == opDelete:
		st.Documents[solve.OldObject] = document(object, kind)
	default:
		st.Documents[solve.Object] = document(object, kind)
		st.Documents[solve.OldObject] = document(runtime.DeepCopyJSON(object), kind)
		if sj.sub == "ephemeralcontainers" {
			st.Documents[solve.OldObject].Fixed = true
		}
	}
	return st, ""
}

// definitions yields the CRDs of the test environment.
func (f *firstTests) definitions(yield func(*unstructured.Unstructured) bool) {
	for _, o := range f.set.Objects {
		if at(o.Content, "kind") == "CustomResourceDefinition" && !yield(o.Unstructured()) {
			return
		}
	}
}

// testOf returns the test of a request, without expectations.
func (f *firstTests) testOf(sj *requestKind, st *solve.State) (*Test, error) {
	text, err := yaml.Marshal([]any{map[string]any{"name": "test", "request": sj.request(f, st), "expect": map[string]any{"allowed": true}}})
	if err != nil {
		return nil, err
	}
	return f.parse(string(text))
}

// judge evaluates a request, with or without the registrations of the test environment. The outcome is nil if there is
// none, because the request cannot be made.
func (f *firstTests) judge(t *Test, st *solve.State, without bool) (*Outcome, error) {
	wanted := f.labelsOf(st)
	if _, changed := f.labelled[st.Namespace]; wanted != nil || changed {
		if before, done := f.labelled[st.Namespace]; !done || !maps.Equal(before, wanted) {
			if err := f.stage.Label(f.ctx, st.Namespace, wanted); err != nil {
				return nil, f.ctx.Err()
			}
			f.labelled[st.Namespace] = wanted
		}
	}
	calls := &callers{}
	if without {
		calls.registrations = func(inForce *snapshot.Snapshot) *snapshot.Snapshot {
			return snapshot.Compile(snapshot.Registrations{Kubernetes: inForce.Kubernetes})
		}
	}
	o, err := t.judge(f.ctx, f.stage, calls, nil)
	if err != nil {
		return nil, f.ctx.Err()
	}
	return o, f.ctx.Err()
}

// ask evaluates a request, with or without the registrations of the test environment. Without an outcome, the attempt has
// the reason.
func (f *firstTests) ask(sj *requestKind, st *solve.State, without bool) (*attempt, *Outcome, error) {
	a := &attempt{sj: sj, st: st, violated: map[int]string{}, failed: map[int]string{}, mutated: map[int]bool{}}
	t, err := f.testOf(sj, st)
	if err != nil {
		a.foreign = err.Error()
		return a, nil, nil
	}
	o, err := f.judge(t, st, without)
	if err == nil && o == nil {
		a.foreign = "the request cannot be made"
	}
	return a, o, err
}

// try evaluates a request by the policy.
func (f *firstTests) try(sj *requestKind, st *solve.State) (*attempt, error) {
	a, o, err := f.ask(sj, st, false)
	if err != nil || o == nil {
		return a, err
	}
	a.allowed, a.warnings, a.object = o.Allowed, o.Warnings, o.Object
	binding := at(f.binding.Content, "metadata", "name")
	for j := range o.trace.Verdicts(false).Judged() {
		if j.Policy.Configuration != f.name {
			continue
		}
		for i := range j.Evaluations {
			e := &j.Evaluations[i]
			if !slices.Contains(e.Bindings, binding) || e.FalseCondition != "" {
				continue
			}
			for _, m := range e.Mutations {
				a.evaluated = a.evaluated || m.Error == ""
				a.mutated[m.Index] = a.mutated[m.Index] || m.Mutated
			}
			for _, v := range e.Validations {
				a.evaluated = true
				switch {
				case v.Index == nil:
				case v.Verdict == "violated":
					a.violated[*v.Index] = v.Message
				case v.Verdict == "failed":
					a.failed[*v.Index] = v.Message
				}
			}
		}
	}
	if !o.Allowed && !slices.ContainsFunc(o.By, func(d rejection.Decider) bool { return d.Policy == f.name }) {
		a.foreign, a.causes = o.Message, o.Causes
	}
	return a, nil
}

// see returns a request with its objects as policies see them. The attempt has the reason of a rejection by the API.
func (f *firstTests) see(sj *requestKind, st *solve.State) (*attempt, *solve.State, error) {
	a, o, err := f.ask(sj, st, true)
	if err != nil || o == nil {
		return a, nil, err
	}
	if !o.Allowed {
		a.foreign, a.causes = o.Message, o.Causes
		return a, nil, nil
	}
	seen := map[string]any{}
	if o.Object == nil {
		seen = nil
	} else if err := utiljson.Unmarshal(stage.Encode(o.Object), &seen); err != nil {
		return nil, nil, err
	}
	out := st.With(solve.Object, seen)
	if d := st.Documents[solve.OldObject]; d != nil {
		old := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(d.Sent)}
		stored(old, st.Namespace)
		if _, err := complete(f.ctx, f.stage, old); err == nil {
			out = out.With(solve.OldObject, old.Object)
			if meta, ok := seen["metadata"].(map[string]any); ok {
				// An update without a change has the metadata of the old object.
				before, _ := old.Object["metadata"].(map[string]any)
				for _, name := range ofServer {
					if delete(meta, name); before[name] != nil {
						meta[name] = before[name]
					}
				}
			}
		}
	}
	return a, out, nil
}

// goals returns the goals of a request that the policy allows, except for one validation.
func (f *firstTests) goals(except int, keeps func(int) bool) (list []solve.Goal) {
	for _, e := range f.conditions {
		if e != nil {
			list = append(list, solve.Goal{Expression: e, Want: true})
		}
	}
	for i, e := range f.validations {
		if e != nil && i != except && keeps(i) {
			list = append(list, solve.Goal{Expression: e, Want: true})
		}
	}
	return list
}

// allowed returns an evaluated request that the policy allows; nil if none is found.
func (f *firstTests) allowed() (*attempt, error) {
	for _, sj := range f.subjects {
		a, err := f.allowedFor(sj)
		if a != nil || err != nil {
			return a, err
		}
	}
	return nil, nil
}

func (f *firstTests) allowedFor(sj *requestKind) (*attempt, error) {
	if err := f.begin(sj); err != nil || sj.base == nil || sj.searched {
		return sj.allowed, err
	}
	sj.searched = true
	wanted := func(a *attempt) bool { return a.evaluated && a.allowed && len(a.violated) == 0 }
	a, err := f.try(sj, sj.base)
	if err == nil && !wanted(a) {
		a, err = f.search(sj, sj.base, f.goals(-1, func(int) bool { return true }), wanted)
	}
	if a == nil && err == nil && at(f.policy.Content, "spec", "failurePolicy") == "Ignore" {
		// Validations whose evaluation fails reject nothing.
		a, err = f.search(sj, sj.base, f.goals(-1, func(i int) bool {
			_, known := f.solver.Holds(f.ctx, f.validations[i], sj.base)
			return known
		}), wanted)
	}
	sj.allowed = a
	return a, err
}

// rejected returns a request that a validation rejects, if possible that validation alone; nil if none is found.
func (f *firstTests) rejected(i int) (*attempt, error) {
	if f.validations[i] == nil {
		return nil, nil
	}
	subjects := slices.Clone(f.subjects)
	text := at(f.list("validations")[i], "expression")
	slices.SortStableFunc(subjects, func(a, b *requestKind) int {
		named := func(sj *requestKind) bool {
			return strings.Contains(text, "'"+sj.kind.Kind.Kind+"'") || strings.Contains(text, `"`+sj.kind.Kind.Kind+`"`)
		}
		switch {
		case named(a) == named(b):
			return 0
		case named(a):
			return -1
		}
		return 1
	})
	var second *attempt
	worse := func(a *attempt) int {
		n := len(a.violated) + len(a.failed)
		if _, ok := a.violated[i]; !ok {
			n += 100
		}
		for j := range i {
			// The answer names the first validation that rejects.
			if a.violated[j] != "" || a.failed[j] != "" {
				n += 50
			}
		}
		return n
	}
	searched := map[string]int{}
	for _, sj := range subjects {
		if err := f.begin(sj); err != nil {
			return nil, err
		}
		if searched[sj.operation]++; sj.base == nil || searched[sj.operation] > maxSearched {
			continue
		}
		from := sj.base
		if _, err := f.allowedFor(sj); err != nil {
			return nil, err
		}
		if sj.allowed != nil {
			from = sj.allowed.st
		}
		note := func(a *attempt) bool {
			if !a.evaluated || a.foreign != "" {
				return false
			}
			_, violated := a.violated[i]
			_, failed := a.failed[i]
			if violated && len(a.violated)+len(a.failed) == 1 {
				return true
			}
			if (violated || failed && !a.allowed) && (second == nil || worse(a) < worse(second)) {
				second = a
			}
			return false
		}
		keeps := func(j int) bool {
			value, known := f.solver.Holds(f.ctx, f.validations[j], from)
			return known && value
		}
		goal := solve.Goal{Expression: f.validations[i], Want: false}
		others := []func(int) bool{keeps, func(j int) bool { return j < i }, func(int) bool { return false }}
		if sj.allowed == nil {
			others = slices.Insert(others, 0, func(int) bool { return true })
		}
		for _, keeps := range others {
			// The violated validation is first: the others are then met again where it violates them, too.
			goals := append([]solve.Goal{goal}, f.goals(i, keeps)...)
			a, err := f.search(sj, from, goals, note)
			if a != nil || err != nil {
				return a, err
			}
			if second != nil && worse(second) < 50 {
				return second, nil
			}
		}
		// A validation whose evaluation fails for each request rejects these.
		if second == nil {
			a, err := f.try(sj, from)
			if err != nil {
				return nil, err
			}
			if note(a) {
				return a, nil
			}
		}
	}
	return second, nil
}

// search finds a request with goals that the server evaluates as wanted; nil if there is none.
func (f *firstTests) search(sj *requestKind, from *solve.State, goals []solve.Goal, wanted func(*attempt) bool) (found *attempt, err error) {
	left := maxVerified
	var rounds func(from *solve.State, depth int) bool
	rounds = func(from *solve.State, depth int) bool {
		return f.solver.Each(f.ctx, from, goals, false, func(st *solve.State) bool {
			if left--; left < 0 {
				return true
			}
			var a *attempt
			for range maxRepairs {
				if a, err = f.try(sj, st); err != nil {
					return true
				}
				if a.foreign == "" || len(a.causes) == 0 {
					break
				}
				repaired := f.repair(sj, st, a.causes)
				if repaired == nil {
					break
				}
				st = repaired
			}
			if a.foreign == "" && wanted(a) {
				found = a
				return true
			}
			if depth > 0 || a.foreign != "" {
				return false
			}
			// Defaults and plugins of the server have changed the object.
			_, seen, failed := f.see(sj, st)
			if failed != nil {
				err = failed
				return true
			}
			if seen == nil || slices.ContainsFunc(goals, func(g solve.Goal) bool {
				value, known := f.solver.Holds(f.ctx, g.Expression, seen)
				return !known || value != g.Want
			}) {
				return seen != nil && rounds(seen, depth+1)
			}
			return false
		})
	}
	rounds(from, 0)
	return found, err
}

// repair changes a request so that the API may accept it; nil if that is not possible.
func (f *firstTests) repair(sj *requestKind, st *solve.State, causes []OutcomeCause) *solve.State {
	var out *solve.State
	for _, c := range causes {
		path := fieldPath(c.Field)
		if len(path) == 0 {
			continue
		}
		now := st
		if out != nil {
			now = out
		}
		if changed := f.repairField(now, path, c); changed != nil {
			out = changed
		}
	}
	return out
}

var (
	supportedValues = regexp.MustCompile(`supported values: (.*)$`)
	quotedText      = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
	sidecarOnly     = regexp.MustCompile(`restartPolicy=Always`)
	ownUsers        = regexp.MustCompile(`hostUsers.* must be false`)
	wantedName      = regexp.MustCompile(`must be spec\.names\.plural`)
)

// repairField changes one field that the API rejects; nil if that is not possible.
func (f *firstTests) repairField(st *solve.State, path []any, c OutcomeCause) *solve.State {
	for _, root := range []string{solve.Object, solve.OldObject} {
		d := st.Documents[root]
		if d == nil || d.Sent == nil {
			continue
		}
		switch {
		case wantedName.MatchString(c.Message):
			return st.Set(root, path, at(d.Sent, "spec", "names", "plural")+"."+at(d.Sent, "spec", "group"))
		case sidecarOnly.MatchString(c.Message):
			// Only init containers that keep running have probes and hooks.
			if i := slices.Index(path, any("initContainers")); i >= 0 && i+2 <= len(path) {
				return st.Set(root, append(slices.Clone(path[:i+2]), "restartPolicy"), "Always")
			}
		case c.Reason == string(metav1.CauseTypeFieldValueNotFound) && slices.Contains(path, any("volumeMounts")):
			i := slices.IndexFunc(path, func(name any) bool { return strings.HasSuffix(strings.ToLower(fmt.Sprint(name)), "containers") })
			if m := quotedText.FindStringSubmatch(c.Message); m != nil && i > 0 {
				return st.Add(root, append(slices.Clone(path[:i]), "volumes"), map[string]any{"name": m[1]})
			}
		case ownUsers.MatchString(c.Message):
			for i, name := range path {
				if i > 0 && strings.HasSuffix(strings.ToLower(fmt.Sprint(name)), "containers") {
					return st.Set(root, append(slices.Clone(path[:i]), "hostUsers"), false)
				}
			}
		case c.Reason == string(metav1.CauseTypeFieldValueRequired):
			if out := st.Require(root, path, c.Message); out != nil {
				return out
			}
		case c.Reason == string(metav1.CauseTypeFieldValueNotSupported):
			m := supportedValues.FindStringSubmatch(c.Message)
			if m == nil {
				continue
			}
			var values []any
			for _, q := range quotedText.FindAllStringSubmatch(m[1], -1) {
				values = append(values, q[1])
			}
			f.solver.Enums[solve.Field(root, path)] = values
			for _, v := range values {
				if out := st.Set(root, path, v); out != nil {
					return out
				}
			}
		case c.Reason == string(metav1.CauseTypeForbidden) && strings.Contains(c.Message, "may not specify more than"):
			return st.Remove(root, path)
		case c.Reason == string(metav1.CauseTypeFieldValueInvalid):
			if out := st.Require(root, path, c.Message); out != nil {
				return out
			}
			if out := st.Another(root, path); out != nil {
				return out
			}
		}
	}
	return nil
}

// fieldPath parses the path of a field in a message of the API.
func fieldPath(field string) (path []any) {
	for field != "" {
		switch i := strings.IndexAny(field, ".["); {
		case strings.HasPrefix(field, "["):
			inside, rest, ok := strings.Cut(field[1:], "]")
			if !ok {
				return nil
			}
			if n, err := strconv.Atoi(inside); err == nil {
				path = append(path, n)
			} else {
				path = append(path, inside)
			}
			field = strings.TrimPrefix(rest, ".")
		case i < 0:
			return append(path, field)
		default:
			path = append(path, field[:i])
			field = strings.TrimPrefix(field[i:], ".")
		}
	}
	return path
}
