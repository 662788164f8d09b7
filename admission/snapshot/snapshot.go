package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/condition"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Entry is a registered entry, compiled: selectors parsed, expressions compiled.
type Entry struct {
	*registration.Entry
	// Position is the place in the whole ordered list of entries of the same
	// Source, from 0 (S5.1, S5.25).
	Position int
	// NamespaceSelector and ObjectSelector are the parsed selectors. One that cannot be
	// parsed is nil, and its error says why (S2.2).
	NamespaceSelector      labels.Selector
	NamespaceSelectorError error
	ObjectSelector         labels.Selector
	ObjectSelectorError    error
	// Conditions are the compiled match conditions; nil when there are none.
	Conditions *condition.Set
}

// Registrations is what one consistent read found.
type Registrations struct {
	// Version identifies what was read. Two reads with the same Version found the
	// same. Empty means that nobody knows: every read is then news.
	Version Version
	// Unchanged tells that Version is the one the reader was asked to compare with;
	// Objects are then not needed.
	Unchanged bool
	// Revision is the storage revision of the read, for people.
	Revision string
	// Objects are all registration objects, typed or unstructured, in any order and
	// in any mixture of kinds and versions. They are not changed, and must not
	// change.
	Objects []runtime.Object
	// Disabled names the kinds that could not be read because the API is switched
	// off or the reader is not allowed to (S11.12). They count as empty.
	Disabled []string
	// Forbidden are those of Disabled that the reader is not allowed to read.
	Forbidden []string
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
	// Problems are the objects that could not be understood, and count as empty.
	Problems []error

	// sources are indexed by registration.Source; there are fewer in the zero Snapshot.
	sources []compiledSource
}

// compiledSource has the entries of one Source.
type compiledSource struct {
	entries []*Entry
	// exact has all entries, equivalent those whose rules also mean equivalent
	// resources.
	exact      index
	equivalent index
}

// of returns what was compiled of a source.
func (s *Snapshot) of(source registration.Source) *compiledSource {
	if int(source) >= len(s.sources) {
		return &compiledSource{}
	}
	return &s.sources[source]
}

// Entries returns everything of a source, in the order in which it acts (S5.1,
// S11.5). The caller must not change the slice.
func (s *Snapshot) Entries(source registration.Source) []*Entry {
	return s.of(source).entries
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

// Candidates appends to dst the positions of the entries of a source that a rule may
// make match the target itself, ascending and without repeats. It does not
// allocate unless dst has to grow.
func (s *Snapshot) Candidates(dst []int32, source registration.Source, target *Target) []int32 {
	return s.of(source).exact.candidates(dst, target)
}

// EquivalentCandidates is like Candidates, for the hooks with matchPolicy
// Equivalent only. The target is a resource that is equivalent to the requested
// one. The result is ascending if dst is empty; else what it appends is.
func (s *Snapshot) EquivalentCandidates(dst []int32, source registration.Source, target *Target) []int32 {
	return s.of(source).equivalent.candidates(dst, target)
}

// HasEquivalent tells whether a source has entries with matchPolicy Equivalent.
func (s *Snapshot) HasEquivalent(source registration.Source) bool {
	return len(s.of(source).equivalent.buckets) > 0
}
