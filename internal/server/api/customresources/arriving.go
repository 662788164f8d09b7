package customresources

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// arrivals are the definitions that were created a moment ago through this server, and are
// not served yet.
type arrivals struct {
	// patience is for how long after its creation a definition counts as arriving.
	patience time.Duration

	mu sync.Mutex
	// byName has an element for each create. Of several creates of one name, one succeeds.
	byName map[string][]*arrival
}

func newArrivals(patience time.Duration) *arrivals {
	return &arrivals{patience: patience, byName: map[string][]*arrival{}}
}

type arrival struct {
	group string
	// uid is that of the definition, "" while it is being created.
	uid types.UID
	// served is closed when requests find the resource, at the latest with over.
	served chan struct{}
	// over is closed when the definition is served, or will not be served soon.
	over chan struct{}
}

// serve closes served. The lock of the arrivals is held.
func (one *arrival) serve() {
	select {
	case <-one.served:
	default:
		close(one.served)
	}
}

// add counts a definition as arriving, for patience at most. created is to be called with the
// UID of the definition, or with "" if there is none.
func (a *arrivals) add(name, group string) (created func(types.UID)) {
	one := &arrival{group: group, served: make(chan struct{}), over: make(chan struct{})}
	leave := func() { a.end(name, func(other *arrival) bool { return other == one }) }
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byName[name] = append(a.byName[name], one)
	time.AfterFunc(a.patience, leave)
	return func(uid types.UID) {
		if uid == "" {
			leave()
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		one.uid = uid
	}
}

// arrived ends the arrival of a name.
func (a *arrivals) arrived(name string) {
	a.end(name, func(*arrival) bool { return true })
}

// deleted ends the arrival of a definition that was deleted.
func (a *arrivals) deleted(name string, uid types.UID) {
	a.end(name, func(one *arrival) bool { return one.uid == uid })
}

func (a *arrivals) end(name string, which func(*arrival) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var rest []*arrival
	for _, one := range a.byName[name] {
		if which(one) {
			one.serve()
			close(one.over)
		} else {
			rest = append(rest, one)
		}
	}
	if rest == nil {
		delete(a.byName, name)
		return
	}
	a.byName[name] = rest
}

// served says that requests find the resource of a definition.
func (a *arrivals) served(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.byName[name] {
		one.serve()
	}
}

// called lists the arrivals of a name.
func (a *arrivals) called(name string) []*arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.byName[name])
}

// of lists the arrivals of a group; "" means all groups.
func (a *arrivals) of(group string) []*arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []*arrival
	for _, those := range a.byName {
		for _, one := range those {
			if group == "" || one.group == group {
				list = append(list, one)
			}
		}
	}
	return list
}

// Arriving reports whether a definition of a group, "" for any, was created a moment ago
// and is not served yet.
func (s *Server) Arriving(group string) bool { return len(s.arrivals.of(group)) > 0 }

// AwaitArrivals waits until the definitions of a group that are arriving at the time of the
// call are served and OnChange has returned, for some seconds at most. It does not wait for a
// definition that cannot be served as it is, nor for EstablishDelay.
func (s *Server) AwaitArrivals(ctx context.Context, group string) {
	for _, one := range s.arrivals.of(group) {
		select {
		case <-one.over:
		case <-ctx.Done():
			return
		}
	}
}

// ArrivingResource reports whether the definition of a resource was created a moment ago and
// the resource is not served yet.
func (s *Server) ArrivingResource(resource schema.GroupResource) bool {
	return slices.ContainsFunc(s.arrivals.called(resource.String()), func(one *arrival) bool {
		select {
		case <-one.served:
			return false
		default:
			return true
		}
	})
}

// AwaitResource waits until requests find a resource whose definition is arriving at the time of
// the call, for some seconds at most. It does not wait for a definition that cannot be served as
// it is.
func (s *Server) AwaitResource(ctx context.Context, resource schema.GroupResource) {
	for _, one := range s.arrivals.called(resource.String()) {
		select {
		case <-one.served:
		case <-ctx.Done():
			return
		}
	}
}

// definitionStorage stores definitions, and counts those that it creates as arriving.
type definitionStorage struct {
	*customresourcedefinition.REST
	arrivals *arrivals
}

// Create implements rest.Creater.
func (d definitionStorage) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	crd, ok := obj.(*apiextensions.CustomResourceDefinition)
	if !ok || dryrun.IsDryRun(options.DryRun) {
		return d.REST.Create(ctx, obj, validate, options)
	}
	// The definition may be served before the create returns.
	arriving := d.arrivals.add(crd.Name, crd.Spec.Group)
	created, err := d.REST.Create(ctx, obj, validate, options)
	if err != nil {
		arriving("")
		return nil, err
	}
	arriving(created.(*apiextensions.CustomResourceDefinition).UID)
	return created, nil
}
