package customresources

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/series"
)

// entry is a definition and the newest state of its CRD. This state differs from the state of the
// definition only in status and metadata.
type entry struct {
	*definition
	crd *apiextensionsv1.CustomResourceDefinition
}

// accepted reports whether a CRD is to be served.
func accepted(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) ||
		apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
}

func keyOf(crd *apiextensionsv1.CustomResourceDefinition) schema.GroupResource {
	return schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}
}

// load builds the definitions of all CRDs, in parallel, and serves them. A CRD whose definition
// cannot be built is left to sync.
func (s *Server) load(ctx context.Context) {
	// A lister fails only on the selector, which is valid.
	crds, _ := s.definitions.Lister().List(labels.Everything())
	var mu sync.Mutex
	next := map[schema.GroupResource]entry{}
	var group errgroup.Group
	group.SetLimit(goruntime.GOMAXPROCS(0))
	for _, crd := range crds {
		if !accepted(crd) {
			continue
		}
		group.Go(func() error {
			d, err := s.define(crd, nil)
			if err != nil {
				klog.FromContext(ctx).Error(err, "Could not build a CustomResourceDefinition", "name", crd.Name)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			next[keyOf(crd)] = entry{d, crd}
			return nil
		})
	}
	_ = group.Wait()
	s.store(next)
	s.changed()
}

// sync serves one CRD as it is stored now, or stops serving it.
func (s *Server) sync(ctx context.Context, name string) error {
	s.serving.Lock()
	defer s.serving.Unlock()
	crd, err := s.definitions.Lister().Get(name)
	if apierrors.IsNotFound(err) {
		s.swap(ctx, schema.ParseGroupResource(name), nil)
		return nil
	}
	if err != nil {
		return err
	}
	key := keyOf(crd)
	if !accepted(crd) {
		if e, ok := (*s.snapshot.Load())[key]; ok && e.crd.UID == crd.UID && e.crd.ResourceVersion == crd.ResourceVersion {
			// The names of this state are accepted, and are being written (establishAtOnce).
			return nil
		}
		s.swap(ctx, key, nil)
		if apihelpers.IsCRDConditionFalse(crd, apiextensionsv1.NamesAccepted) {
			s.publisher.reported(func() { s.arrivals.arrived(name) })
		}
		return nil
	}
	old, served := (*s.snapshot.Load())[key]
	d := old.definition
	if !served || !old.serves(crd) {
		if d, err = s.define(crd, old.definition); err != nil {
			return fmt.Errorf("building CustomResourceDefinition %q: %w", name, err)
		}
	}
	if terminating(crd) {
		d.creations.close()
	}
	if !served || old.definition != d || old.crd.ResourceVersion != crd.ResourceVersion {
		s.swap(ctx, key, &entry{d, crd})
	}
	var delay time.Duration
	if !established(crd) {
		if s.options.EstablishDelay != nil {
			delay = s.options.EstablishDelay(ctx)
		}
		s.establish.QueueCRD(name, delay)
	}
	if established(crd) || delay > 0 || refused(crd) {
		s.publisher.reported(func() { s.arrivals.arrived(name) })
	}
	return nil
}

// serve serves a CRD whose names are accepted, before this is stored. stop stops serving it, unless
// sync has seen a newer state.
func (s *Server) serve(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (stop func(), err error) {
	s.serving.Lock()
	defer s.serving.Unlock()
	key := keyOf(crd)
	old := (*s.snapshot.Load())[key]
	d, err := s.define(crd, old.definition)
	if err != nil {
		return nil, err
	}
	s.swap(ctx, key, &entry{d, crd})
	return func() {
		s.serving.Lock()
		defer s.serving.Unlock()
		if (*s.snapshot.Load())[key].crd == crd {
			s.swap(ctx, key, nil)
			s.queue.Add(crd.Name)
		}
	}, nil
}

// swap publishes e at key, or removes the entry at key if e is nil. It retires the previous
// definition. The caller holds serving.
func (s *Server) swap(ctx context.Context, key schema.GroupResource, e *entry) {
	old, served := (*s.snapshot.Load())[key]
	if e == nil && !served {
		return
	}
	next := maps.Clone(*s.snapshot.Load())
	if e == nil {
		delete(next, key)
	} else {
		next[key] = *e
	}
	s.store(next)
	if e != nil {
		s.arrivals.served(e.crd.Name)
	}
	s.publisher.changed(func() {
		if s.options.OnSchema != nil && (!served || e == nil || old.definition != e.definition || established(old.crd) != established(e.crd)) {
			s.options.OnSchema(key.Group)
		}
		if served && (e == nil || old.definition != e.definition) {
			s.retire(ctx, old.definition)
		}
		if e == nil && s.options.Gone != nil {
			s.options.Gone.Add("kind "+key.String(), func() bool {
				_, back := (*s.snapshot.Load())[key]
				return back
			}, series.Of{Labels: map[string]string{"group": key.Group, "resource": key.Resource}},
				series.Of{Prefix: "apiserver_crd_", Labels: map[string]string{"crd_name": key.String()}})
		}
	})
}

// store makes next the set of served definitions.
func (s *Server) store(next map[schema.GroupResource]entry) {
	kinds := make(map[schema.GroupKind]*definition, len(next))
	for key, e := range next {
		kinds[schema.GroupKind{Group: key.Group, Kind: e.definition.crd.Status.AcceptedNames.Kind}] = e.definition
	}
	s.kinds.Store(&kinds)
	s.snapshot.Store(&next)
}

func (s *Server) changed() {
	if s.options.OnChange != nil {
		s.options.OnChange()
	}
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
}

// refused reports whether a CRD cannot be established as it is, although its names are accepted.
func refused(crd *apiextensionsv1.CustomResourceDefinition) bool {
	c := apihelpers.FindCRDCondition(crd, apiextensionsv1.Established)
	return c != nil && c.Reason == "InvalidCABundle"
}

// retire ends the watches of a definition that has been replaced, and closes its stores
// when its running requests are over. If ctx ends first, the stores stay open until the factory
// closes.
func (s *Server) retire(ctx context.Context, d *definition) {
	d.retire()
	d.requests.close()
	s.retiring.Go(func() {
		select {
		case <-d.requests.empty:
			d.close()
		case <-ctx.Done():
		}
	})
}

// eachServed calls f for every version of every established CRD that is served, in order of name.
// It stops at the first error.
func (s *Server) eachServed(f func(d *definition, version string) error) error {
	snapshot := *s.snapshot.Load()
	keys := slices.SortedFunc(maps.Keys(snapshot), func(a, b schema.GroupResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
	for _, key := range keys {
		e := snapshot[key]
		if !established(e.crd) {
			continue
		}
		for _, v := range e.crd.Spec.Versions {
			if !e.shown[place{version: v.Name}] {
				continue
			}
			if err := f(e.definition, v.Name); err != nil {
				return err
			}
		}
	}
	return nil
}
