package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/condition"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Hook is a registered hook, compiled: selectors parsed, expressions compiled.
type Hook struct {
	*registration.Hook
	// Position is the place in the whole ordered list of hooks of the same
	// Source, from 0 (S5.1, S5.25).
	Position int
	// NamespaceSelector and ObjectSelector are the parsed selectors;
	// SelectorError is why one of them could not be parsed (S2.2). That one is
	// nil.
	NamespaceSelector labels.Selector
	ObjectSelector    labels.Selector
	SelectorError     error
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

	sources      [3]compiledSource
	initializers []*registration.Initializer
	initializing index
}

// compiledSource has the hooks of one Source.
type compiledSource struct {
	hooks []*Hook
	// exact has all hooks, equivalent those whose rules also mean equivalent
	// resources.
	exact      index
	equivalent index
}

// Hooks returns every hook of a source, in order (S5.1). The caller must not
// change the slice.
func (s *Snapshot) Hooks(source registration.Source) []*Hook {
	return s.sources[source].hooks
}

// Initializers returns every initializer, in the one order of all of them (S11.5).
// A name may be there several times. The caller must not change the slice.
func (s *Snapshot) Initializers() []*registration.Initializer {
	return s.initializers
}

// Candidates appends to dst the positions of the hooks of a source that a rule may
// make match the target itself, ascending and without repeats. It does not
// allocate unless dst has to grow.
func (s *Snapshot) Candidates(dst []int32, source registration.Source, target *Target) []int32 {
	return s.sources[source].exact.candidates(dst, target)
}

// EquivalentCandidates is like Candidates, for the hooks with matchPolicy
// Equivalent only. The target is a resource that is equivalent to the requested
// one. The result is ascending if dst is empty; else what it appends is.
func (s *Snapshot) EquivalentCandidates(dst []int32, source registration.Source, target *Target) []int32 {
	return s.sources[source].equivalent.candidates(dst, target)
}

// HasEquivalent tells whether a source has hooks with matchPolicy Equivalent.
func (s *Snapshot) HasEquivalent(source registration.Source) bool {
	return len(s.sources[source].equivalent.buckets) > 0
}

// InitializerCandidates appends to dst the places in Initializers of those that
// may apply to the target, ascending. Its operation and subresource do not count.
func (s *Snapshot) InitializerCandidates(dst []int32, target *Target) []int32 {
	return s.initializing.candidates(dst, target)
}
