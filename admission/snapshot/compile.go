package snapshot

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/condition"
	"github.com/gatehouse-dev/gatehouse/admission/expression"
	"github.com/gatehouse-dev/gatehouse/admission/policy"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Compile makes a snapshot of registrations. An object that cannot be understood
// is left out and reported in Problems; it can only be one that was stored without
// validation.
func Compile(r Registrations) *Snapshot {
	return new(Compiler).Compile(r)
}

// Compiler makes snapshots, one after the other, and reuses of the last one what
// has not changed (S2.37). Its zero value is ready. It is for one goroutine.
type Compiler struct {
	last map[key]*compiled
	// objects are what the last registrations were made into, by name.
	objects []*compiled
	// policies are those that were compiled last, by uid.
	policies map[types.UID]*compiled
	// expressions are shared by all snapshots.
	expressions expression.Cache
	// bound has what was made of the bindings of each policy the last time.
	bound map[*Entry]*Bindings
}

// key says exactly which state of which object was compiled. A name is not enough:
// an object may be replaced by another of the same name.
type key struct {
	uid     types.UID
	version string
}

// compiled is what became of one object. It is never changed.
type compiled struct {
	name    string
	entries []*Entry
	err     error
	// uid and generation say which policy it is; empty for other objects.
	uid        types.UID
	generation int64
}

// Compile makes a snapshot of registrations.
func (c *Compiler) Compile(r Registrations) *Snapshot {
	next := make(map[key]*compiled, len(r.Objects))
	objects := make([]*compiled, len(r.Objects))
	for i, obj := range r.Objects {
		k, known := keyOf(obj)
		if objects[i] = c.last[k]; objects[i] == nil || !known {
			objects[i] = c.compile(obj)
		}
		if known {
			next[k] = objects[i]
		}
	}
	c.last, c.policies = next, map[types.UID]*compiled{}
	for _, o := range objects {
		if o.uid != "" {
			c.policies[o.uid] = o
		}
	}
	slices.SortStableFunc(objects, func(a, b *compiled) int { return cmp.Compare(a.name, b.name) })
	c.objects = objects
	return c.assemble(r.Revision, r.Disabled, r.Local)
}

// assemble makes a snapshot of the objects that were compiled last, and of what is local.
func (c *Compiler) assemble(revision string, disabled []string, local *Local) *Snapshot {
	s := &Snapshot{Revision: revision, Disabled: disabled, sources: make([]Table, len(registration.Sources()))}
	local.into(s)
	found := make([][]*Entry, len(s.sources))
	for _, o := range c.objects {
		if o.err != nil {
			s.Problems = append(s.Problems, o.err)
		}
		for _, e := range o.entries {
			found[e.Source] = append(found[e.Source], e)
		}
	}
	bound := map[*Entry]*Bindings{}
	for _, d := range registration.Sources() {
		if d.Policies {
			// The bindings come first: policies refer to them. Those of manifest files are bound
			// to policies of files already (S21.15).
			s.fill(d.Bindings, found[d.Bindings])
			c.bind(found[d.Source], s.Entries(d.Bindings)[s.sources[d.Bindings].manifests:], bound)
		}
		if !d.Binds {
			s.fill(d.Source, found[d.Source])
		}
	}
	c.bound = bound
	return s
}

// fill makes the table of a source.
func (s *Snapshot) fill(source registration.Source, entries []*Entry) {
	for _, e := range arrange(source, entries) {
		s.sources[source].add(e)
	}
}

// arrange puts the entries of a source into the order in which they act.
func arrange(source registration.Source, entries []*Entry) []*Entry {
	order := source.Descriptor().Arrange
	if order == nil {
		return entries
	}
	plain := make([]*registration.Entry, len(entries))
	compiled := make(map[*registration.Entry]*Entry, len(entries))
	for i, e := range entries {
		plain[i], compiled[e.Entry] = e.Entry, e
	}
	out := make([]*Entry, 0, len(entries))
	for _, e := range order(plain) {
		out = append(out, compiled[e])
	}
	return out
}

func keyOf(obj runtime.Object) (key, bool) {
	m, ok := obj.(metav1.Object)
	if !ok {
		return key{}, false
	}
	k := key{m.GetUID(), m.GetResourceVersion()}
	return k, k.uid != "" && k.version != ""
}

func (c *Compiler) compile(obj runtime.Object) *compiled {
	o := &compiled{}
	if m, ok := obj.(metav1.Object); ok {
		o.name = m.GetName()
	}
	entries, err := registration.Entries(obj)
	if err != nil {
		o.err = fmt.Errorf("reading registration %q: %w", o.name, err)
		return o
	}
	for _, e := range entries {
		o.entries = append(o.entries, c.entry(e))
	}
	o.inherit(obj, c.policies)
	return o
}

// inherit takes over what a policy evaluates from the same policy as it was compiled before,
// if only its metadata or its status has changed: the costs that were measured stay.
func (o *compiled) inherit(obj runtime.Object, before map[types.UID]*compiled) {
	m, ok := obj.(metav1.Object)
	if !ok || m.GetGeneration() == 0 || len(o.entries) != 1 || o.entries[0].Policy == nil {
		return
	}
	o.uid, o.generation = m.GetUID(), m.GetGeneration()
	if last := before[o.uid]; last != nil && last.generation == o.generation {
		o.entries[0].Policy = last.entries[0].Policy
	}
}

// ofWebhooks is what match conditions of webhooks may use.
var ofWebhooks = expression.Scope{Authorizer: true}

func (c *Compiler) entry(h *registration.Entry) *Entry {
	e := &Entry{Entry: h}
	e.NamespaceSelector, e.NamespaceSelectorError = parse("namespaceSelector", h.NamespaceSelector)
	e.ObjectSelector, e.ObjectSelectorError = parse("objectSelector", h.ObjectSelector)
	switch {
	case h.Policy != nil:
		e.Policy = policy.Compile(&c.expressions, h)
	case h.Binding != nil:
		e.alike = alikeOf(h)
		if ref := h.Binding.ParamRef; ref != nil && ref.Selector != nil {
			e.ParamSelector, e.ParamSelectorError = metav1.LabelSelectorAsSelector(ref.Selector)
		}
	default:
		e.Conditions = condition.Compile(&c.expressions, ofWebhooks, h.MatchConditions)
	}
	return e
}

// parse parses a selector; name is its field.
func parse(name string, s *metav1.LabelSelector) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return selector, nil
}

// add gives an entry its position. An entry that has another one in an earlier
// snapshot is copied: that one may still be in use. An entry that cannot apply is found by
// no rule.
func (t *Table) add(h *Entry) {
	position := len(t.entries)
	if h.Position != position {
		moved := *h
		moved.Position = position
		h = &moved
	}
	t.entries = append(t.entries, h)
	if h.Binding != nil && !t.groups {
		// Bindings are looked for among those of their policy.
		return
	}
	rules := h.Rules
	switch {
	case h.Policy != nil && h.Bindings == nil:
		return
	case h.Binding != nil && len(rules) == 0:
		rules = everything
	}
	t.exact.add(int32(position), rules)
	if h.Equivalent {
		t.equivalent.add(int32(position), rules)
	}
}

// everything are the rules of a binding that has none (S14.5).
var everything = []registration.Rule{{
	Operations: []string{"*"}, APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}, Scope: "*",
}}
