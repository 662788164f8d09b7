package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	name         string
	hooks        []*Hook
	initializers []*registration.Initializer
	err          error
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

	s := &Snapshot{Revision: r.Revision, Disabled: r.Disabled}
	for _, o := range objects {
		if o.err != nil {
			s.Problems = append(s.Problems, o.err)
		}
		for _, h := range o.hooks {
			s.sources[h.Source].add(h)
		}
		s.initializers = append(s.initializers, o.initializers...)
	}
	s.initializers = arrange(s.initializers)
	for i, in := range s.initializers {
		s.initializing.add(int32(i), creating(in.Rules))
	}
	return s
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
	hooks, err := registration.Hooks(obj)
	if err != nil {
		o.err = fmt.Errorf("reading registration %q: %w", o.name, err)
		return o
	}
	for _, h := range hooks {
		o.hooks = append(o.hooks, compileHook(h))
	}
	o.initializers, o.err = registration.Initializers(obj)
	return o
}

func compileHook(h *registration.Hook) *Hook {
	c := &Hook{Hook: h, Conditions: condition.Compile(h.MatchConditions)}
	var namespaces, objects error
	if c.NamespaceSelector, namespaces = metav1.LabelSelectorAsSelector(h.NamespaceSelector); namespaces != nil {
		c.NamespaceSelector = nil
		namespaces = fmt.Errorf("namespaceSelector: %w", namespaces)
	}
	if c.ObjectSelector, objects = metav1.LabelSelectorAsSelector(h.ObjectSelector); objects != nil {
		c.ObjectSelector = nil
		objects = fmt.Errorf("objectSelector: %w", objects)
	}
	c.SelectorError = errors.Join(namespaces, objects)
	return c
}

// add gives a hook its position. A hook that has another one in an earlier
// snapshot is copied: that one may still be in use.
func (s *compiledSource) add(h *Hook) {
	position := len(s.hooks)
	if h.Position != position {
		moved := *h
		moved.Position = position
		h = &moved
	}
	s.hooks = append(s.hooks, h)
	s.exact.add(int32(position), h.Rules)
	if h.Equivalent {
		s.equivalent.add(int32(position), h.Rules)
	}
}

// creating returns an initializer's rules as rules about the creation of main
// resources, which is what initializers are for (S11.7, S11.15).
func creating(rules []registration.Rule) []registration.Rule {
	out := make([]registration.Rule, len(rules))
	for i, r := range rules {
		r.Operations, r.Scope = []string{"CREATE"}, "*"
		r.Resources = mainResources(r.Resources)
		out[i] = r
	}
	return out
}

// mainResources leaves out entries with a slash, which never match an initializer;
// "*/*" is another way to write "*".
func mainResources(entries []string) []string {
	var out []string
	for _, e := range entries {
		switch {
		case e == "*/*":
			out = append(out, "*")
		case !strings.Contains(e, "/"):
			out = append(out, e)
		}
	}
	return out
}
