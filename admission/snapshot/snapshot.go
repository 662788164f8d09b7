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

// Entry is a compiled entry: selectors parsed, expressions compiled.
type Entry struct {
	*registration.Entry
	// Position is the index in the ordered list of all entries of the same Source (S5.1, S5.25).
	//
	// The Position of a binding is the index of its group in its policy. Only package snapshot and
	// its Table use it.
	Position int
	// Selectors are never nil. The bindings of a Group share them.
	*Selectors
	// Conditions are the compiled match conditions of a webhook; nil if there are none. The match
	// conditions of a policy are in Policy.
	Conditions *condition.Set
	// Policy has the compiled expressions of a policy, and Bindings are its bindings; a policy
	// without bindings has no effect (S14.18). Both are nil for all other entries.
	Policy   *policy.Policy
	Bindings *Bindings
}

// Selectors are the parsed selectors of an entry.
type Selectors struct {
	// NamespaceSelector and ObjectSelector are nil if they cannot be parsed; the error is in
	// NamespaceSelectorError or ObjectSelectorError (S2.2).
	NamespaceSelector      labels.Selector
	NamespaceSelectorError error
	ObjectSelector         labels.Selector
	ObjectSelectorError    error
	// ParamSelector is the selector of a binding's paramRef. It is nil if there is none, or if it
	// cannot be parsed with ParamSelectorError.
	ParamSelector      labels.Selector
	ParamSelectorError error

	// shared is set for bindings.
	shared *shared
}

// Registrations is the result of one consistent read.
type Registrations struct {
	// Version identifies the content. Two reads with the same Version have the same content. Empty
	// means that the version is unknown: every read then counts as a change.
	Version Version
	// Unchanged reports whether Version equals the since of the Read; Objects are then not needed.
	Unchanged bool
	// Revision is the storage revision of the read, for people.
	Revision string
	// Objects are all webhook configurations, policies, bindings and initializer configurations,
	// typed or unstructured, in any order and in any mixture of versions. They are not changed, and
	// must not change.
	Objects []runtime.Object
	// Rest reads the objects that are not among Objects and passes them to a function, some at a
	// time; nil if there are no more. It may take longer than a Read.
	Rest func(ctx context.Context, take func([]runtime.Object)) error
	// Partial reports whether Changes are all differences from the since of the Read. Objects are
	// then not needed.
	Partial bool
	Changes []Change
	// Kept, if not nil, lists the existing objects that are not in Changes; all others were
	// deleted. If one of these objects differs from its compiled state, the store has another
	// history, and all objects must be read.
	Kept []Kept
	// Disabled names the kinds that could not be read because the API is disabled or the reader is
	// not authorized (S11.12). They count as empty.
	Disabled []string
	// Forbidden are the kinds in Disabled that the reader is not authorized to read.
	Forbidden []string
	// Kubernetes reports whether a kube-apiserver enforces these registrations. It ignores the
	// annotations for the order of webhooks and policies (S5.29) and for their enforcement
	// (S28.11).
	Kubernetes bool
	// Local has the manifest files and exclusion rules; nil for none. A Refresher sets it.
	Local *Local
}

// Change is the change of one object.
type Change struct {
	Source registration.Source
	Name   string
	// Object is the current object, typed; nil if it was deleted.
	Object runtime.Object
}

// Kept is an object that has not changed.
type Kept struct {
	Source registration.Source
	Name   string
	// Version is the object's resourceVersion.
	Version string
}

// Version identifies the content of Registrations.
type Version string

// Snapshot has all registrations of one moment, compiled. It is immutable and safe for concurrent
// use.
type Snapshot struct {
	// Revision is the storage revision of the read.
	Revision string
	// ReadAt is the beginning of the read.
	ReadAt time.Time
	// Disabled names the kinds that are disabled or not readable; they count as empty (S11.12).
	Disabled []string
	// Kubernetes is Registrations.Kubernetes.
	Kubernetes bool
	// Problems are the errors of objects that could not be parsed, and count as empty.
	Problems []error

	// local is Registrations.Local.
	local *Local
	// sources are indexed by registration.Source; the zero Snapshot has fewer.
	sources []Table
}

// Table has the entries of a source, and finds them by their rules. It is immutable.
type Table struct {
	entries []*Entry
	// listed, if set, builds the entries when Entries is first called: there may be very many
	// bindings, and admission of a request does not need a list of all.
	listed func() []*Entry
	// parts are the entries if listed is set: one part for each policy, in order of name.
	parts [][]*Entry
	// exact has all entries that can apply. equivalent has the entries whose rules also match
	// equivalent resources.
	exact      index
	equivalent index
	// manifests is the number of entries from manifest files; they come first.
	manifests int
}

// Local returns the manifest files and exclusion rules; nil if there are none.
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

// Entries returns all entries of a source, in the order in which they act (S5.1, S11.5). The
// caller must not change the slice.
func (s *Snapshot) Entries(source registration.Source) []*Entry {
	return s.Table(source).Entries()
}

// Configuration returns the entry of a policy or binding with a name; nil if there is none. Objects
// of the API take precedence over manifest files.
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

// find returns the entry of the object with a name; nil if there is none. Entries are sorted by
// name unless some of them have order annotations.
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

// Constraints returns the order constraints of the entries of a source, in order. Entries of
// manifest files and entries of the API do not constrain each other.
func (s *Snapshot) Constraints(source registration.Source) []registration.Constraint {
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

// Initializer returns the initializer with a name; nil if there is none. If several have the same
// name, it returns the first one, which is used (S11.6).
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

// Manifests returns the number of entries from manifest files. They come before all others
// (S21.13).
func (t *Table) Manifests() int { return t.manifests }

// Candidates appends to dst the positions of the entries with a rule that may match the target
// itself, ascending and without repeats. It does not allocate unless dst has to grow.
func (t *Table) Candidates(dst []int32, target *Target) []int32 {
	return t.exact.candidates(dst, target)
}

// EquivalentCandidates is like Candidates, for the entries with matchPolicy Equivalent only. The
// target is a resource that is equivalent to the requested one. The appended positions are
// ascending.
func (t *Table) EquivalentCandidates(dst []int32, target *Target) []int32 {
	return t.equivalent.candidates(dst, target)
}

// HasEquivalent reports whether there are entries with matchPolicy Equivalent.
func (t *Table) HasEquivalent() bool { return len(t.equivalent.buckets) > 0 }
