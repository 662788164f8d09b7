package snapshot

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Bindings are the bindings of one policy, by name. Bindings that match the same requests and name
// the same params form one Group: if one of them matches a request, all do. Bindings are immutable.
type Bindings struct {
	// All are the bindings, by name.
	All []*Entry
	// Groups are in the order of their first binding.
	Groups []Group
	// table finds groups by the rules of their bindings.
	table Table
}

// Group is a set of bindings that differ only in their names and actions.
type Group struct {
	// Bindings are by name; there is at least one.
	Bindings []*Entry
}

// Table returns the table that finds groups by the rules of their bindings. It has one entry for
// each group, in the order of Groups. If there is only one group, the table does not index its
// rules.
func (b *Bindings) Table() *Table { return &b.table }

func newBindings(list []*Entry) *Bindings {
	b := &Bindings{All: list}
	if !slices.ContainsFunc(list, func(e *Entry) bool { return e.Selectors != list[0].Selectors }) {
		b.Groups = []Group{{list}}
		b.table.entries = list[:1:1]
		return b
	}
	groups := make(map[*Selectors]int, 1)
	for _, e := range list {
		i, known := groups[e.Selectors]
		if !known {
			i = len(b.Groups)
			groups[e.Selectors] = i
			b.Groups = append(b.Groups, Group{})
			b.table.add(e, nil, &Table{})
		}
		b.Groups[i].Bindings = append(b.Groups[i].Bindings, e)
	}
	b.table.file(&Table{})
	return b
}

// bound identifies the bindings of one policy by their kind and the policy's name.
type bound struct {
	source registration.Source
	policy string
}

// bindingsOf are the bindings of a policy, which need not exist.
type bindingsOf struct {
	list ordered[*Entry]
	// common are values that the entries of bindings may share.
	common []*registration.Binding
	// packed is the number of packed bindings in list.added.
	packed int
	// made is nil after a change of the list.
	made *Bindings
}

func byName(a, b *Entry) int { return cmp.Compare(a.Configuration, b.Configuration) }

// bind adds a binding to its policy.
func (c *Compiler) bind(key id, e *Entry) {
	if c.bindings == nil {
		c.bindings, c.bound = map[id]*Entry{}, map[bound]*bindingsOf{}
	}
	c.bindings[key] = e
	b := c.changed(e)
	e.Binding = b.share(e.Binding)
	b.list.add(e)
}

// A pack has fewest to most bindings. Its memory is kept as long as one of them is in use.
const fewest, most = 16, 128

// pack copies the recently compiled bindings into one block of memory. Otherwise temporary values
// of the compilation lie between them, and the bindings take twice the memory.
func (c *Compiler) pack() {
	for place, b := range c.bound {
		if len(b.list.added) < b.packed {
			b.packed = 0
		}
		added := b.list.added[b.packed:]
		if len(added) < fewest || len(b.list.removed) > 0 {
			continue
		}
		b.packed += len(added)
		for part := range slices.Chunk(added, most) {
			var text strings.Builder
			for _, e := range part {
				text.WriteString(e.Configuration)
				text.WriteString(string(e.ConfigurationUID))
				text.WriteString(e.ConfigurationVersion)
			}
			rest := text.String()
			next := func(n int) string {
				one := rest[:n]
				rest = rest[n:]
				return one
			}
			plain, compiled := make([]registration.Entry, len(part)), make([]Entry, len(part))
			for i, e := range part {
				plain[i], compiled[i] = *e.Entry, *e
				one := &plain[i]
				one.Configuration = next(len(e.Configuration))
				one.ConfigurationUID = types.UID(next(len(e.ConfigurationUID)))
				one.ConfigurationVersion = next(len(e.ConfigurationVersion))
				compiled[i].Entry = one
				key := id{source: place.source, name: one.Configuration}
				if c.bindings[key] != e {
					// Another binding of the same name has replaced this one.
					continue
				}
				// The key must refer to the text in the pack, too.
				delete(c.bindings, key)
				c.bindings[key] = &compiled[i]
				part[i] = &compiled[i]
			}
		}
	}
}

// mostCommon bounds the number of bindings with which share compares a binding.
const mostCommon = 8

// share returns an equal binding, preferably a copy that other bindings already share.
func (b *bindingsOf) share(one *registration.Binding) *registration.Binding {
	for _, other := range b.common {
		if other.ParamRef == one.ParamRef && slices.Equal(other.Actions, one.Actions) {
			return other
		}
	}
	if len(b.common) < mostCommon {
		b.common = append(b.common, one)
	}
	return one
}

// unbind removes a binding.
func (c *Compiler) unbind(key id, e *Entry) {
	delete(c.bindings, key)
	b := c.changed(e)
	b.list.remove(e)
	c.alike.release(e.Selectors)
}

// changed returns the bindings of the policy of e, and marks them as changed.
func (c *Compiler) changed(e *Entry) *bindingsOf {
	place := bound{e.Source, e.Binding.PolicyName}
	b := c.bound[place]
	if b == nil {
		b = &bindingsOf{}
		c.bound[place] = b
	}
	b.made, c.rebound[e.Source] = nil, true
	return b
}

// bindingsOf returns the bindings of a policy; nil if there are none.
func (c *Compiler) bindingsOf(place bound) *Bindings {
	b := c.bound[place]
	if b == nil {
		return nil
	}
	if b.made == nil {
		list := b.list.take(byName)
		if len(list) == 0 {
			delete(c.bound, place)
			return nil
		}
		b.made = newBindings(list)
	}
	return b.made
}

// bindingTable returns the table of a source of bindings, which lists them on demand.
func (c *Compiler) bindingTable(source registration.Source, local *Local, last *Snapshot) Table {
	if last.local.Static() == local.Static() && !c.rebound[source] && last.Table(source).listed != nil {
		return *last.Table(source)
	}
	c.rebound[source] = false
	parts := make([][]*Entry, 0, len(c.bound))
	n := 0
	for place, b := range c.bound {
		if place.source != source {
			continue
		}
		list := b.list.take(byName)
		if len(list) == 0 {
			delete(c.bound, place)
			continue
		}
		parts = append(parts, list)
		n += len(list)
	}
	var first []*Entry
	if static := local.Static(); static != nil {
		first = static.Entries(source)
	}
	return Table{manifests: len(first), parts: append(parts, first), listed: sync.OnceValue(func() []*Entry {
		all := make([]*Entry, 0, n)
		for _, part := range parts {
			all = append(all, part...)
		}
		slices.SortFunc(all, byName)
		return slices.Concat(first, all)
	})}
}

// alike has the selectors that bindings share, by a hash of their match and paramRef.
type alike map[[sum]byte]*Selectors

// sum is the number of bytes of the hash that are kept.
const sum = 16

// shared is the data shared by bindings with the same Selectors.
type shared struct {
	sum      [sum]byte
	match    *registration.Match
	paramRef *registration.ParamRef
	// users is the number of bindings with the Selectors. Only the Compiler uses it.
	users int
}

// share returns the selectors of a binding, shared with an equal binding if there is one.
func (a alike) share(h *registration.Entry) *Selectors {
	text, err := json.Marshal([]any{h.Match, h.Binding.ParamRef})
	if err != nil {
		panic(fmt.Sprintf("the match of the binding cannot be encoded: %v", err))
	}
	whole := sha256.Sum256(text)
	key := [sum]byte(whole[:])
	s := a[key]
	if s == nil {
		s = selectorsOf(h)
		s.shared = &shared{sum: key, match: h.Match, paramRef: h.Binding.ParamRef}
		a[key] = s
	}
	s.shared.users++
	h.Match, h.Binding.ParamRef = s.shared.match, s.shared.paramRef
	return s
}

// release deletes the selectors when their last binding is removed.
func (a alike) release(s *Selectors) {
	if s.shared.users--; s.shared.users == 0 {
		delete(a, s.shared.sum)
	}
}

// Bound returns the policy of a binding; nil if no policy has that name. Bindings of manifest files
// bind policies of files, and bindings of the API bind policies of the API (S21.15).
func (s *Snapshot) Bound(binding *Entry) *Entry {
	table := s.Table(binding.Source.Descriptor().Bound)
	policies := table.entries[table.manifests:]
	if binding.Static() {
		policies = table.entries[:table.manifests]
	}
	return find(policies, binding.Binding.PolicyName)
}
