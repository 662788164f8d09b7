package storage

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

const (
	// keptSnapshots is the approximate number of snapshots that a watch cache keeps while no list
	// asks for one.
	keptSnapshots = 64
	// keepSnapshots is how long all snapshots are kept after a list that asked for one.
	keepSnapshots = storagebackend.DefaultCompactInterval
)

// snapshots drops the snapshots of a watch cache that no list asks for. The cache keeps its objects
// as they were after each event, for the pages of lists and for lists at an exact version: with
// thousands of writes in a second, these are 100,000 copies of the changed parts of its tree, more
// than the objects themselves. While no client reads such lists, only the last snapshots stay. A
// list that finds none is answered from etcd, if that has the version, and from then on all
// snapshots stay for some time.
type snapshots struct {
	cache atomic.Pointer[compacting]
	now   func() time.Time
	// asked is when a list last asked for a snapshot, in nanoseconds; 0 when none has.
	asked atomic.Int64
	// The watch cache gets one event at a time. events counts them, and last is the version of the
	// last event.
	events int
	last   string
}

// compacting is a watch cache.
type compacting interface {
	// Compact drops the snapshots before a version.
	Compact(resourceVersion string) error
}

func newSnapshots(now func() time.Time) *snapshots { return &snapshots{now: now} }

// of sets the cache.
func (s *snapshots) of(cache compacting) { s.cache.Store(&cache) }

// attributes returns attrs, which the cache calls with the object of each event before it processes
// the event. The previous event is then in the cache, with its snapshot.
func (s *snapshots) attributes(attrs apistorage.AttrFunc) apistorage.AttrFunc {
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		s.pass(obj)
		return attrs(obj)
	}
}

// pass lets one event pass.
func (s *snapshots) pass(obj runtime.Object) {
	if s.events++; s.events%keptSnapshots == 0 {
		if c := s.cache.Load(); c != nil && s.last != "" && !s.wanted() {
			// It fails only for a version that is not a number.
			_ = (*c).Compact(s.last)
		}
	}
	s.last = ""
	if m, err := meta.Accessor(obj); err == nil {
		s.last = m.GetResourceVersion()
	}
}

func (s *snapshots) wanted() bool {
	asked := s.asked.Load()
	return asked != 0 && s.now().UnixNano()-asked < int64(keepSnapshots)
}

// list records a list for which the cache keeps snapshots.
func (s *snapshots) list(opts apistorage.ListOptions) {
	legacy := opts.ResourceVersionMatch == "" && opts.Predicate.Limit > 0 && opts.ResourceVersion != "" && opts.ResourceVersion != "0"
	if opts.Predicate.Continue != "" || opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || legacy {
		s.asked.Store(s.now().UnixNano())
	}
}
