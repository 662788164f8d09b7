package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/condition"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/engine/policy"
)

// Compile returns a snapshot of registrations that are not Partial and have no Rest. An object that
// cannot be parsed is left out and reported in Problems; this happens only to objects that were
// stored without validation.
func Compile(r Registrations) *Snapshot {
	return new(Compiler).Compile(r)
}

// Compiler compiles snapshots, one after the other. It reuses the parts of the last snapshot that
// have not changed (S2.37), and keeps no API object. Its zero value is ready. Only one goroutine
// may use a Compiler.
type Compiler struct {
	// objects has the compiled form of all objects except bindings, which are in the field
	// bindings.
	objects  map[id]*compiled
	bindings map[id]*Entry
	// strange are the objects of other kinds.
	strange []*compiled
	// broken is the number of objects that cannot be parsed.
	broken int
	// lists has the objects of each source, by name.
	lists [sources]ordered[*compiled]
	// bound has the bindings of each policy. rebound has the sources of bindings with changes.
	bound   map[bound]*bindingsOf
	rebound [sources]bool
	// alike has the selectors that bindings share.
	alike alike
	// expressions are shared by all snapshots.
	expressions expression.Cache
	// last is the last snapshot.
	last *Snapshot
	// kubernetes is Registrations.Kubernetes for the current snapshot.
	kubernetes bool
	// witness is Options.Witness of a Refresher.
	witness func(*registration.Entry) expression.Witness
}

// sources is the number of sources.
const sources = int(registration.MutatingBindings) + 1

// id identifies an object. Objects outside of a cluster may have the same name: copy distinguishes
// them.
type id struct {
	source registration.Source
	copy   uint16
	name   string
}

// compiled is one object in compiled form. It is immutable.
type compiled struct {
	id
	// uid and version identify the compiled state of the object; empty if unknown.
	uid     types.UID
	version string
	// generation is the generation of a policy.
	generation int64
	entries    []*Entry
	err        error
}

// Compile returns a snapshot of registrations that are not Partial and have no Rest.
func (c *Compiler) Compile(r Registrations) *Snapshot {
	// Only a Rest has errors.
	s, _ := c.CompileAll(context.Background(), r)
	return s
}

// CompileAll is Compile for registrations that may have a Rest. If Rest fails, CompileAll returns
// its error, and the Compiler has objects of two versions: the next call must compile all
// registrations, and not a Change.
func (c *Compiler) CompileAll(ctx context.Context, r Registrations) (*Snapshot, error) {
	c.strange, c.kubernetes = nil, r.Kubernetes
	seen := seen{}
	c.take(r.Objects, seen)
	if r.Rest != nil {
		if err := r.Rest(ctx, func(objects []runtime.Object) { c.take(objects, seen) }); err != nil {
			return nil, err
		}
	}
	return c.finish(r, seen), nil
}

// seen is the set of existing objects.
type seen map[id]struct{}

// take compiles some of the objects, and adds them to seen.
func (c *Compiler) take(objects []runtime.Object, seen seen) {
	for _, obj := range objects {
		source, ok := registration.SourceOf(obj)
		if !ok {
			c.strange = append(c.strange, c.compile(id{name: nameOf(obj)}, obj))
			continue
		}
		key := id{source: source, name: nameOf(obj)}
		for {
			if _, again := seen[key]; !again {
				break
			}
			key.copy++
		}
		seen[key] = struct{}{}
		c.put(key, obj, "")
	}
	c.pack()
}

// finish removes the objects that no longer exist and returns a snapshot.
func (c *Compiler) finish(r Registrations, seen seen) *Snapshot {
	for key := range c.objects {
		if _, there := seen[key]; !there {
			c.remove(key)
		}
	}
	for key := range c.bindings {
		if _, there := seen[key]; !there {
			c.remove(key)
		}
	}
	return c.assemble(&r)
}

// Change returns a snapshot of Partial registrations: the last compiled registrations with the
// Changes. It returns nil if the two do not fit together; the caller must then compile all
// registrations.
func (c *Compiler) Change(r Registrations) *Snapshot {
	c.kubernetes = r.Kubernetes
	for _, change := range r.Changes {
		key := id{source: change.Source, name: change.Name}
		if change.Object == nil {
			c.remove(key)
		} else {
			c.put(key, change.Object, "")
		}
	}
	if r.Kept != nil {
		seen := make(seen, len(r.Kept)+len(r.Changes))
		for _, kept := range r.Kept {
			key := id{source: kept.Source, name: kept.Name}
			if _, version, ok := c.compiledVersion(key); !ok || version != kept.Version {
				return nil
			}
			seen[key] = struct{}{}
		}
		for _, change := range r.Changes {
			seen[id{source: change.Source, name: change.Name}] = struct{}{}
		}
		return c.finish(r, seen)
	}
	return c.assemble(&r)
}

// compiledVersion returns the uid and version of a compiled object; ok is false for other objects.
func (c *Compiler) compiledVersion(key id) (uid types.UID, version string, ok bool) {
	if e := c.bindings[key]; e != nil {
		return e.ConfigurationUID, e.ConfigurationVersion, true
	}
	if o := c.objects[key]; o != nil {
		return o.uid, o.version, true
	}
	return "", "", false
}

// put compiles an object, unless this state of it is already compiled. file is the object's
// manifest file, if any.
func (c *Compiler) put(key id, obj runtime.Object, file string) {
	if m, ok := obj.(metav1.Object); ok && m.GetUID() != "" && m.GetResourceVersion() != "" {
		uid, version, _ := c.compiledVersion(key)
		if uid == m.GetUID() && version == m.GetResourceVersion() {
			return
		}
	}
	before := c.objects[key]
	c.remove(key)
	o := c.compile(key, obj)
	for _, e := range o.entries {
		e.File = file
	}
	if key.source.Descriptor().Binds && o.err == nil {
		c.bind(key, o.entries[0])
		return
	}
	o.inherit(before)
	if c.objects == nil {
		c.objects = map[id]*compiled{}
	}
	c.objects[key] = o
	c.lists[key.source].add(o)
	if o.err != nil {
		c.broken++
	}
}

// remove removes an object.
func (c *Compiler) remove(key id) {
	if e := c.bindings[key]; e != nil {
		c.unbind(key, e)
	}
	if o := c.objects[key]; o != nil {
		delete(c.objects, key)
		c.lists[key.source].remove(o)
		if o.err != nil {
			c.broken--
		}
	}
}

// assemble returns a snapshot of the compiled objects and of the local files.
func (c *Compiler) assemble(r *Registrations) *Snapshot {
	local := r.Local
	s := &Snapshot{Revision: r.Revision, Disabled: r.Disabled, Kubernetes: r.Kubernetes, Problems: c.problems(), local: local, sources: make([]Table, sources)}
	last := c.last
	if last == nil {
		last = &Snapshot{}
	}
	static := local.Static()
	if static == nil {
		static = &Snapshot{}
	}
	for _, d := range registration.Sources() {
		if d.Binds {
			continue
		}
		// Policies refer to their bindings. Policies of manifest files already have their bindings,
		// which are also in files (S21.15), and come before all others (S21.13).
		manifests := static.Entries(d.Source)
		t := Table{manifests: len(manifests)}
		for _, e := range manifests {
			t.add(e, e.Bindings, last.Table(d.Source))
		}
		list := c.lists[d.Source].take(byID)
		for _, e := range arrange(list) {
			var b *Bindings
			if d.Policies {
				b = c.bindingsOf(bound{d.Bindings, e.Configuration})
			}
			t.add(e, b, last.Table(d.Source))
		}
		t.file(last.Table(d.Source))
		s.sources[d.Source] = t
	}
	for _, d := range registration.Sources() {
		if d.Binds {
			s.sources[d.Source] = c.bindingTable(d.Source, local, last)
		}
	}
	c.last = s
	return s
}

// problems returns the errors of objects that cannot be parsed, by name.
func (c *Compiler) problems() []error {
	if c.broken == 0 && len(c.strange) == 0 {
		return nil
	}
	list := slices.Clone(c.strange)
	for _, o := range c.objects {
		if o.err != nil {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *compiled) int { return cmp.Or(cmp.Compare(a.name, b.name), byID(a, b)) })
	var errs []error
	for _, o := range list {
		errs = append(errs, o.err)
	}
	return errs
}

func byID(a, b *compiled) int {
	return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.name, b.name), cmp.Compare(a.copy, b.copy))
}

// arrange returns the entries of the objects of a source in the order in which they act.
func arrange(objects []*compiled) []*Entry {
	entries := make([]*Entry, 0, len(objects))
	asked := false
	for _, o := range objects {
		for _, e := range o.entries {
			asked = asked || e.Order != nil
		}
		entries = append(entries, o.entries...)
	}
	if !asked {
		return entries
	}
	plain := make([]*registration.Entry, len(entries))
	compiled := make(map[*registration.Entry]*Entry, len(entries))
	for i, e := range entries {
		plain[i], compiled[e.Entry] = e.Entry, e
	}
	out := make([]*Entry, 0, len(entries))
	for _, e := range registration.Arrange(plain) {
		out = append(out, compiled[e])
	}
	return out
}

func nameOf(obj runtime.Object) string {
	if m, ok := obj.(metav1.Object); ok {
		return m.GetName()
	}
	return ""
}

func (c *Compiler) compile(key id, obj runtime.Object) *compiled {
	o := &compiled{id: key}
	if m, ok := obj.(metav1.Object); ok {
		o.uid, o.version, o.generation = m.GetUID(), m.GetResourceVersion(), m.GetGeneration()
	}
	entries, err := registration.Entries(obj)
	if err != nil {
		o.err = fmt.Errorf("reading registration %q: %w", o.name, err)
		return o
	}
	for _, e := range entries {
		if c.kubernetes && e.Initializer == nil {
			e.Order, e.Enforcement = nil, nil
		}
		o.entries = append(o.entries, c.entry(e))
	}
	return o
}

// inherit keeps the compiled expressions of a policy if only its metadata or its status has
// changed. This preserves the measured costs.
func (o *compiled) inherit(before *compiled) {
	if before == nil || len(o.entries) != 1 || len(before.entries) != 1 || o.entries[0].Policy == nil {
		return
	}
	if o.uid != "" && o.generation != 0 && o.uid == before.uid && o.generation == before.generation {
		o.entries[0].Policy = before.entries[0].Policy
	}
}

// ofWebhooks is the scope of match conditions of webhooks.
var ofWebhooks = expression.Scope{Authorizer: true}

func (c *Compiler) entry(h *registration.Entry) *Entry {
	e := &Entry{Entry: h}
	switch {
	case h.Binding != nil:
		if c.alike == nil {
			c.alike = alike{}
		}
		e.Selectors = c.alike.share(h)
		return e
	case h.Policy != nil:
		e.Policy = policy.Compile(&c.expressions, h)
		if c.witness != nil {
			e.Policy.Watch(c.witness(h))
		}
	default:
		e.Conditions = condition.Compile(&c.expressions, ofWebhooks, h.MatchConditions)
		if c.witness != nil {
			e.Conditions.Watch(c.witness(h))
		}
	}
	e.Selectors = selectorsOf(h)
	return e
}

// selectorsOf parses the selectors of an entry.
func selectorsOf(h *registration.Entry) *Selectors {
	s := &Selectors{}
	s.NamespaceSelector, s.NamespaceSelectorError = parse("namespaceSelector", h.NamespaceSelector)
	s.ObjectSelector, s.ObjectSelectorError = parse("objectSelector", h.ObjectSelector)
	if h.Binding != nil && h.Binding.ParamRef != nil && h.Binding.ParamRef.Selector != nil {
		s.ParamSelector, s.ParamSelectorError = metav1.LabelSelectorAsSelector(h.Binding.ParamRef.Selector)
	}
	return s
}

// parse parses a selector; name is the field name.
func parse(name string, s *metav1.LabelSelector) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return selector, nil
}

// add gives an entry its position and its bindings. If an earlier snapshot has the entry with
// another position or other bindings, add copies the entry, because that snapshot may still be in
// use.
func (t *Table) add(h *Entry, bindings *Bindings, last *Table) {
	position := len(t.entries)
	switch before := last.at(position); {
	case before != nil && before.Entry == h.Entry && before.Bindings == bindings:
		h = before
	case h.Position != position || h.Bindings != bindings:
		moved := *h
		moved.Position, moved.Bindings = position, bindings
		h = &moved
	}
	t.entries = append(t.entries, h)
}

func (t *Table) at(position int) *Entry {
	if position < len(t.entries) {
		return t.entries[position]
	}
	return nil
}

// file indexes the entries by their rules. It reuses the index of the last table if the rules are
// the same.
func (t *Table) file(last *Table) {
	if len(t.entries) == len(last.entries) && !slices.ContainsFunc(t.entries, func(e *Entry) bool {
		before := last.entries[e.Position]
		return e.Match != before.Match || e.inactive() != before.inactive()
	}) {
		t.exact, t.equivalent = last.exact, last.equivalent
		return
	}
	for _, e := range t.entries {
		if !e.inactive() {
			t.find(e)
		}
	}
}

// inactive reports whether an entry cannot apply. It is then not indexed.
func (e *Entry) inactive() bool { return e.Entry.Policy != nil && e.Bindings == nil }

// find adds an entry to the index.
func (t *Table) find(e *Entry) {
	rules := e.Rules
	if e.Binding != nil && len(rules) == 0 {
		rules = everything
	}
	t.exact.add(int32(e.Position), rules)
	if e.Equivalent {
		t.equivalent.add(int32(e.Position), rules)
	}
}

// everything are the rules of a binding without rules of its own (S14.5).
var everything = []registration.Rule{{
	Operations: []string{"*"}, APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}, Scope: "*",
}}

// ordered is a sorted list with few changes at a time. Its zero value is empty.
type ordered[T comparable] struct {
	list []T
	// added are elements that are not yet in the list, and removed are elements that are still in
	// the list.
	added   []T
	removed map[T]struct{}
}

func (o *ordered[T]) add(x T) { o.added = append(o.added, x) }

func (o *ordered[T]) remove(x T) {
	if o.removed == nil {
		o.removed = map[T]struct{}{}
	}
	o.removed[x] = struct{}{}
}

// take returns the sorted list. The returned slice never changes.
func (o *ordered[T]) take(compare func(T, T) int) []T {
	if len(o.added) == 0 && len(o.removed) == 0 {
		return o.list
	}
	list := make([]T, 0, len(o.list)+len(o.added))
	for _, part := range [][]T{o.list, o.added} {
		for _, x := range part {
			if _, gone := o.removed[x]; !gone {
				list = append(list, x)
			}
		}
	}
	if !slices.IsSortedFunc(list, compare) {
		slices.SortStableFunc(list, compare)
	}
	*o = ordered[T]{list: slices.Clip(list)}
	return list
}
