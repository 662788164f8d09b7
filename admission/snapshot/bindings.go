package snapshot

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unique"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Bindings are the bindings of one policy, by name. Those that are for the same requests
// and name the same params are one Group: a match of one of them is a match of all.
// It is immutable.
type Bindings struct {
	// All are the bindings, by name.
	All []*Entry
	// Groups are in the order of their first binding.
	Groups []Group
	// table finds groups by the rules of their bindings.
	table Table
}

// Group is bindings that differ in nothing but their name and what they do about a
// violation.
type Group struct {
	// Bindings are by name; there is at least one.
	Bindings []*Entry
}

// Table finds groups by the rules of their bindings. Its entries stand for the Groups, in
// the same order.
func (b *Bindings) Table() *Table { return &b.table }

// alike is what the bindings of a group have in common.
type alike = unique.Handle[string]

func alikeOf(e *registration.Entry) alike {
	text, err := json.Marshal([]any{e.Match, e.Binding.ParamRef})
	if err != nil {
		panic(fmt.Sprintf("what a binding matches cannot be encoded: %v", err))
	}
	return unique.Make(string(text))
}

func newBindings(list []*Entry) *Bindings {
	b := &Bindings{All: list, table: Table{groups: true}}
	groups := make(map[alike]int, 1)
	for _, e := range list {
		i, known := groups[e.alike]
		if !known {
			i = len(b.Groups)
			groups[e.alike] = i
			b.Groups = append(b.Groups, Group{})
			b.table.add(e)
		}
		b.Groups[i].Bindings = append(b.Groups[i].Bindings, e)
	}
	return b
}

// bind resolves which bindings are those of which policy. Policies that have some are
// copied: the compiled form of an object does not change.
func (c *Compiler) bind(policies []*Entry, bindings []*Entry, next map[*Entry]*Bindings) {
	if len(policies) == 0 || len(bindings) == 0 {
		return
	}
	places := make(map[string]int, len(policies))
	for i, p := range policies {
		places[p.Configuration] = i
	}
	of := make([][]*Entry, len(policies))
	for _, b := range bindings {
		if place, ok := places[b.Binding.PolicyName]; ok {
			of[place] = append(of[place], b)
		}
	}
	for i, p := range policies {
		if len(of[i]) == 0 {
			continue
		}
		b := c.bound[p]
		if b == nil || !slices.EqualFunc(b.All, of[i], func(x, y *Entry) bool { return x.Entry == y.Entry }) {
			b = newBindings(of[i])
		}
		next[p] = b
		inForce := *p
		inForce.Bindings = b
		policies[i] = &inForce
	}
}

// Bound returns the policy that a binding puts into force; nil when there is none of that
// name. Policies of manifest files are bound by bindings of files, and the others by bindings
// of the API (S21.15).
func (s *Snapshot) Bound(binding *Entry) *Entry {
	table := s.Table(binding.Source.Descriptor().Bound)
	policies := table.entries[table.manifests:]
	if binding.Static() {
		policies = table.entries[:table.manifests]
	}
	i, ok := slices.BinarySearchFunc(policies, binding.Binding.PolicyName, func(p *Entry, name string) int {
		return strings.Compare(p.Configuration, name)
	})
	if !ok {
		return nil
	}
	return policies[i]
}
