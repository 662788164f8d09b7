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

// arrivals are the CRDs that were created a moment ago through this server, and are not served yet.
type arrivals struct {
	// patience is how long after its creation a CRD counts as arriving.
	patience time.Duration

	mu sync.Mutex
	// byName has an element for each create. If several creates have the same name, one succeeds.
	byName map[string][]*arrival
}

func newArrivals(patience time.Duration) *arrivals {
	return &arrivals{patience: patience, byName: map[string][]*arrival{}}
}

type arrival struct {
	group string
	// uid is the UID of the CRD, "" while it is being created.
	uid types.UID
	// over ends when the CRD is served, or will not be served soon. served ends when requests find the
	// resource, at the latest with over.
	over, served context.Context
	end, serve   context.CancelFunc
}

// add counts a CRD as arriving, for patience at most. The caller calls created with the UID of the
// CRD, or with "" if there is none.
func (a *arrivals) add(name, group string) (created func(types.UID)) {
	one := &arrival{group: group}
	one.over, one.end = context.WithCancel(context.Background())
	one.served, one.serve = context.WithCancel(one.over)
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

// deleted ends the arrival of a CRD that was deleted.
func (a *arrivals) deleted(name string, uid types.UID) {
	a.end(name, func(one *arrival) bool { return one.uid == uid })
}

func (a *arrivals) end(name string, which func(*arrival) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	rest := slices.DeleteFunc(a.byName[name], func(one *arrival) bool {
		if which(one) {
			one.end()
		}
		return one.over.Err() != nil
	})
	if a.byName[name] = rest; len(rest) == 0 {
		delete(a.byName, name)
	}
}

// served records that requests find the resource of a CRD.
func (a *arrivals) served(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.byName[name] {
		one.serve()
	}
}

// of lists contexts that end when arrivals of a group are over; "" means all groups.
func (a *arrivals) of(group string) []context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []context.Context
	for _, those := range a.byName {
		for _, one := range those {
			if group == "" || one.group == group {
				list = append(list, one.over)
			}
		}
	}
	return list
}

// Arriving returns a context for each CRD of a group that was created a moment ago and is not served yet; ""
// means all groups. A context ends when its CRD is served and OnChange has returned, or after some seconds.
// There is none for a CRD that cannot be served as it is, and none waits for EstablishDelay.
func (s *Server) Arriving(group string) []context.Context { return s.arrivals.of(group) }

// ArrivingResource returns contexts that end when requests find a resource whose CRD was created a moment ago,
// or after some seconds. There is none for a CRD that cannot be served as it is.
func (s *Server) ArrivingResource(resource schema.GroupResource) []context.Context {
	s.arrivals.mu.Lock()
	defer s.arrivals.mu.Unlock()
	var list []context.Context
	for _, one := range s.arrivals.byName[resource.String()] {
		if one.served.Err() == nil {
			list = append(list, one.served)
		}
	}
	return list
}

// Await waits until all arrivals, or ctx, have ended.
func Await(ctx context.Context, arrivals []context.Context) {
	for _, one := range arrivals {
		select {
		case <-one.Done():
		case <-ctx.Done():
			return
		}
	}
}

// definitionStorage stores CRDs, and counts the CRDs that it creates as arriving.
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
	// The CRD may be served before the create returns.
	arriving := d.arrivals.add(crd.Name, crd.Spec.Group)
	created, err := d.REST.Create(ctx, obj, validate, options)
	if err != nil {
		arriving("")
		return nil, err
	}
	arriving(created.(*apiextensions.CustomResourceDefinition).UID)
	return created, nil
}
