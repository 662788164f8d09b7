package snapshot

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/condition"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
	"github.com/gatehouse-dev/gatehouse/internal/engine/policy"
)

// Entry is a registered entry, compiled: selectors parsed, expressions compiled.
type Entry struct {
	*registration.Entry
	// Position is the place in the whole ordered list of entries of the same
	// Source, from 0 (S5.1, S5.25).
	//
	// That of a binding counts the groups of its policy, and is of use to package snapshot
	// and its Table only.
	Position int
	// Selectors are never nil. The bindings of a Group share them.
	*Selectors
	// Conditions are the compiled match conditions of a webhook; nil when there are none.
	// Those of a policy are in Policy.
	Conditions *condition.Set
	// Policy is what a policy evaluates, and Bindings are those that put it into force; a
	// policy without any does nothing (S14.18). Both are nil for all other entries.
	Policy   *policy.Policy
	Bindings *Bindings
}

// Selectors are the parsed selectors of an entry.
type Selectors struct {
	// NamespaceSelector and ObjectSelector: one that cannot be parsed is nil, and its error
	// says why (S2.2).
	NamespaceSelector      labels.Selector
	NamespaceSelectorError error
	ObjectSelector         labels.Selector
	ObjectSelectorError    error
	// ParamSelector is that of a binding's paramRef; nil when it has none, or when
	// ParamSelectorError says why it cannot be parsed.
	ParamSelector      labels.Selector
	ParamSelectorError error

	// shared is set for bindings.
	shared *shared
}

// Registrations is what one consistent read found.
type Registrations struct {
	// Version identifies what was read. Two reads with the same Version found the
	// same. Empty means that nobody knows: every read is then news.
	Version Version
	// Unchanged reports whether Version is the one the reader was asked to compare with;
	// Objects are then not needed.
	Unchanged bool
	// Revision is the storage revision of the read, for people.
	Revision string
	// Objects are all registration objects, typed or unstructured, in any order and
	// in any mixture of kinds and versions. They are not changed, and must not
	// change.
	Objects []runtime.Object
	// Rest reads the objects that are not among Objects and calls a function with them, some
	// at a time; nil when there are no more. It may take longer than a Read.
	Rest func(ctx context.Context, take func([]runtime.Object)) error
	// Partial reports whether Changes are all that differs from the Version that the reader was
	// asked to compare with. Objects are not needed then.
	Partial bool
	Changes []Change
	// Kept, if it is not nil, are the objects besides those of Changes; all others are gone.
	// If an object of them is not the one of that Version, the version was of another past.
	Kept []Kept
	// Disabled names the kinds that could not be read because the API is switched
	// off or the reader is not allowed to (S11.12). They count as empty.
	Disabled []string
	// Forbidden are those of Disabled that the reader is not allowed to read.
	Forbidden []string
	// NamesOnly reports whether the server whose registrations these are ignores what objects ask
	// of the order of webhooks and policies, as a kube-apiserver does (S5.29).
	NamesOnly bool
	// Local is what does not come from the API; nil for nothing. A Refresher sets it.
	Local *Local
}

// Change is what became of one object.
type Change struct {
	Source registration.Source
	Name   string
	// Object is as it is now, typed; nil when it was deleted.
	Object runtime.Object
}

// Kept is an object that was not modified.
type Kept struct {
	Source registration.Source
	Name   string
	// Version is its resourceVersion.
	Version string
}

// Version identifies the content of a set of registrations.
type Version string

// Snapshot is every registration of one moment, compiled. It is immutable and
// safe for concurrent use.
type Snapshot struct {
	// Revision is the storage revision the registrations were read at.
	Revision string
	// ReadAt is when the read that gave this snapshot began.
	ReadAt time.Time
	// Disabled names the kinds that are switched off or not readable; they count as
	// empty (S11.12).
	Disabled []string
	// NamesOnly is that of the Registrations.
	NamesOnly bool
	// Problems are the objects that could not be understood, and count as empty.
	Problems []error

	// local is what did not come from the API.
	local *Local
	// sources are indexed by registration.Source; there are fewer in the zero Snapshot.
	sources []Table
}

// Table has entries, and finds them by their rules. It is immutable.
type Table struct {
	entries []*Entry
	// listed makes the entries when they are first asked for, if it is set: there may be
	// very many bindings, and nothing judges by a list of them all.
	listed func() []*Entry
	// parts are the entries then, by policy, each part in order of name.
	parts [][]*Entry
	// exact has all entries that can apply, equivalent those whose rules also mean
	// equivalent resources.
	exact      index
	equivalent index
	// manifests is how many entries come from manifest files; they are the first ones.
	manifests int
}

// Local returns what is in the snapshot and does not come from the API; nil for nothing.
func (s *Snapshot) Local() *Local { return s.local }

// Exclusions returns the exclusion rules of the server; nil for none (S23).
func (s *Snapshot) Exclusions() *exclusion.Rules {
	if s.local == nil {
		return nil
	}
	return s.local.exclusions
}

// Table returns the entries of a source.
func (s *Snapshot) Table(source registration.Source) *Table {
	if int(source) >= len(s.sources) {
		return &Table{}
	}
	return &s.sources[source]
}

// Entries returns everything of a source, in the order in which it acts (S5.1,
// S11.5). The caller must not change the slice.
func (s *Snapshot) Entries(source registration.Source) []*Entry {
	return s.Table(source).Entries()
}

// Configuration returns the entry of a policy or binding of a name, nil when there is none.
// Objects of the API come before those of manifest files.
func (t *Table) Configuration(name string) *Entry {
	parts := t.parts
	if t.listed == nil {
		parts = [][]*Entry{t.entries[t.manifests:], t.entries[:t.manifests]}
	}
	for _, part := range parts {
		if e := find(part, name); e != nil {
			return e
		}
	}
	return nil
}

// find returns the entry of an object of a name, nil when there is none. Entries are by name
// unless some of them ask for another order.
func find(list []*Entry, name string) *Entry {
	i, ok := slices.BinarySearchFunc(list, name, func(e *Entry, name string) int { return strings.Compare(e.Configuration, name) })
	if !ok && slices.ContainsFunc(list, func(e *Entry) bool { return e.Order != nil }) {
		i = slices.IndexFunc(list, func(e *Entry) bool { return e.Configuration == name })
		ok = i >= 0
	}
	if !ok {
		return nil
	}
	return list[i]
}

// Constraints lists what the entries of a source ask of their order, in this order. Those of
// manifest files and those of the API ask for nothing of each other.
func (s *Snapshot) Constraints(source registration.Source) []registration.Constraint {
	if s.NamesOnly && source != registration.Initializing {
		return nil
	}
	t := s.Table(source)
	var list []registration.Constraint
	for _, part := range [][]*Entry{t.entries[:t.manifests], t.entries[t.manifests:]} {
		plain := make([]*registration.Entry, len(part))
		for i, e := range part {
			plain[i] = e.Entry
		}
		list = append(list, registration.Constraints(plain)...)
	}
	return list
}

// Initializer returns the initializer of a name that acts, nil when none of that name
// is registered. Of several with the same name, the first one acts (S11.6).
func (s *Snapshot) Initializer(name string) *Entry {
	for _, e := range s.Entries(registration.Initializing) {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// Entries returns all entries, in order. The caller must not change the slice.
func (t *Table) Entries() []*Entry {
	if t.listed != nil {
		return t.listed()
	}
	return t.entries
}

// Manifests returns how many of the entries come from manifest files. They come before all
// others (S21.13).
func (t *Table) Manifests() int { return t.manifests }

// Candidates appends to dst the positions of the entries that a rule may make match the
// target itself, ascending and without repeats. It does not allocate unless dst has to
// grow.
func (t *Table) Candidates(dst []int32, target *Target) []int32 {
	return t.exact.candidates(dst, target)
}

// EquivalentCandidates is like Candidates, for the entries with matchPolicy
// Equivalent only. The target is a resource that is equivalent to the requested
// one. The result is ascending if dst is empty; else what it appends is.
func (t *Table) EquivalentCandidates(dst []int32, target *Target) []int32 {
	return t.equivalent.candidates(dst, target)
}

// HasEquivalent reports whether there are entries with matchPolicy Equivalent.
func (t *Table) HasEquivalent() bool { return len(t.equivalent.buckets) > 0 }
