package server

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage"
)

// storing is the phase in which every resource can be stored.
type storing struct {
	*judging
	stores *storeSet
}

// storeSet has the stores of all resources.
type storeSet struct {
	factory *storage.Factory
	// initialization hides uninitialized objects, and makes creators wait; nil when the plugin is
	// off.
	initialization *initialization.Decorator
	// conversions calls the webhooks that convert stored objects.
	conversions *call.Caller
	places      *serverstorage.DefaultStorageFactory
}

func newStoring(j *judging) (*storing, error) {
	s, admitter := j.settings, j.admitter
	st := &storeSet{places: j.places}
	var decorator storage.Decorator
	if s.runs(admission.InitializersName) {
		mustAct, parallel := initialization.Registered(admitter.refresher.Current)
		st.initialization = initialization.New(initialization.Options{
			Timeout: s.InitializerTimeout, RepairAfter: s.InitializerRepairAfter,
			ReleaseTimeout: s.InitializerReleaseTimeout, MustAct: mustAct, Parallel: parallel, Observe: admitter.observe,
			Discarded: func(resource schema.GroupResource, obj runtime.Object) { j.links.discarded(resource, obj) },
		})
		decorator = st.initialization
	}
	st.factory = storage.NewFactory(st.places, j.db.forObjects(s, admitter.fences), decorator, uncached...)
	st.factory.Encrypt(j.db.values)
	if s.EtcdCompactionInterval > 0 {
		st.factory.Compact(s.EtcdCompactionInterval)
	}
	j.ends.add(st.factory.Close)
	st.factory.OnWrite(func(ctx context.Context, w storage.Write) {
		admitter.params.Written(w.Place, w.Key)
		admitter.caches.Written(ctx, w)
	})
	if s.Rehearsals {
		st.factory.Instead(storedFor)
	}
	var err error
	if st.conversions, err = customresources.NewCaller(call.Options{
		Resolver: j.loopback.services(s), Dial: s.DialWebhook, Wrap: s.WrapWebhook, Breaker: s.breaker, MaxInFlight: s.AdmissionWebhookMaxInFlight,
	}); err != nil {
		return nil, err
	}
	j.ends.add(st.conversions.Close)
	// Waiting creators end before the stores and conversions that they use.
	if st.initialization != nil {
		j.ends.add(st.initialization.Close)
	}
	return &storing{j, st}, nil
}

// uncached are the resources without a watch cache: resources that are written often and hardly
// ever read, resources with very many objects that this server reads from etcd, and CRDs, which
// take a hundred times as much memory in a cache as in etcd.
var uncached = []schema.GroupResource{
	{Resource: "events"},
	{Group: "events.k8s.io", Resource: "events"},
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"},
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
}

// place implements params.Place.
func (st *storeSet) place(resource schema.GroupResource) string {
	if legacyscheme.Scheme.IsGroupRegistered(resource.Group) {
		return "/" + st.places.ResourcePrefix(resource)
	}
	// Custom resources and CRDs.
	return "/" + resource.Group + "/" + resource.Resource
}
