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
}

// key says exactly which state of which object was compiled. A name would not do:
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
}

// Compile makes a snapshot of registrations.
func (c *Compiler) Compile(r Registrations) *Snapshot {
	next := make(map[key]*compiled, len(r.Objects))
	objects := make([]*compiled, len(r.Objects))
	for i, obj := range r.Objects {
		k, known := keyOf(obj)
		if objects[i] = c.last[k]; objects[i] == nil || !known {
			objects[i] = compile(obj)
		}
		if known {
			next[k] = objects[i]
		}
	}
	c.last = next
	slices.SortStableFunc(objects, func(a, b *compiled) int { return cmp.Compare(a.name, b.name) })

	s := &Snapshot{Revision: r.Revision, Disabled: r.Disabled, sources: make([]compiledSource, len(registration.Sources()))}
	found := make([][]*Entry, len(s.sources))
	for _, o := range objects {
		if o.err != nil {
			s.Problems = append(s.Problems, o.err)
		}
		for _, e := range o.entries {
			found[e.Source] = append(found[e.Source], e)
		}
	}
	for source, entries := range found {
		for _, e := range arrange(registration.Source(source), entries) {
			s.sources[source].add(e)
		}
	}
	return s
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

func compile(obj runtime.Object) *compiled {
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
		o.entries = append(o.entries, compileEntry(e))
	}
	return o
}

func compileEntry(h *registration.Entry) *Entry {
	c := &Entry{Entry: h, Conditions: condition.Compile(h.MatchConditions)}
	c.NamespaceSelector, c.NamespaceSelectorError = parse("namespaceSelector", h.NamespaceSelector)
	c.ObjectSelector, c.ObjectSelectorError = parse("objectSelector", h.ObjectSelector)
	return c
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
// snapshot is copied: that one may still be in use.
func (s *compiledSource) add(h *Entry) {
	position := len(s.entries)
	if h.Position != position {
		moved := *h
		moved.Position = position
		h = &moved
	}
	s.entries = append(s.entries, h)
	s.exact.add(int32(position), h.Rules)
	if h.Equivalent {
		s.equivalent.add(int32(position), h.Rules)
	}
}
