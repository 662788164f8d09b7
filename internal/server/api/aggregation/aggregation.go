package aggregation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/internal/kit/series"
	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
)

// Options are the inputs of an Aggregator. All except Dial and Gone must be set.
type Options struct {
	// Loopback reaches this server, as a superuser. Informers are this server's informers.
	Loopback  *restclient.Config
	Informers informers.SharedInformerFactory
	// Builtin are the group versions of the built-in kinds.
	Builtin []schema.GroupVersion
	// Priority returns the priority of a group version of this server.
	Priority func(schema.GroupVersion) Priority
	// Resolver finds the addresses of services, as for webhooks. Placed reports whether Resolver
	// has an address for a service even if the service does not exist.
	Resolver call.Resolver
	Placed   func(namespace, name string) bool
	// Self is the HOST:PORT at which this server reaches itself.
	Self string
	// ClientCertificate returns the client certificate of this server for remote servers, and its
	// key, as PEM.
	ClientCertificate func() (certificate, key []byte)
	// Dial opens connections to remote servers; nil means TCP.
	Dial *transport.DialHolder
	// MaxInFlight bounds the requests to one APIService that are handled at once. Long-running
	// requests (LongRunning), above all watches, do not count.
	MaxInFlight int
	LongRunning request.LongRunningRequestCheck
	// Show is called with all remote group versions when one of them changes.
	Show func([]discovery.Version)
	// Document is called with the OpenAPI documents of remote servers when one of them changes.
	Document func(openapi.Remote)
	// Gone, if set, drops the metric series of deleted APIServices.
	Gone *series.Gone
}

// Priority is the priority of a group version in discovery: groups and then versions with higher
// numbers come first.
type Priority struct{ Group, Version int32 }

// resync is how often the conditions of APIServices are checked again, as in kube-apiserver
// (S22.6).
const resync = 30 * time.Second

// Aggregator has the APIServices. It is made by New and safe for concurrent use.
type Aggregator struct {
	options   Options
	client    clientset.Interface
	informers apiregistrationinformers.SharedInformerFactory
	registrar *registrar
	known     *apiserver.APIServiceRegistrationController
	// initiated is closed when all APIServices that were stored at the start are known.
	initiated chan struct{}

	// ctx is the context of Know; up reports whether Run has begun.
	ctx context.Context
	up  atomic.Bool

	// remote are the proxies by group version. The map is immutable.
	remote atomic.Pointer[map[schema.GroupVersion]*Proxy]
	shown  *shown
	docs   *documents
	// wake is closed when the first APIService that names a service is known.
	wake     chan struct{}
	wakeOnce sync.Once
}

// New makes an Aggregator, which does nothing until Run.
func New(o Options) (*Aggregator, error) {
	client, err := clientset.NewForConfig(o.Loopback)
	if err != nil {
		return nil, fmt.Errorf("client for APIServices: %w", err)
	}
	a := &Aggregator{
		options: o, client: client, informers: apiregistrationinformers.NewSharedInformerFactory(client, resync),
		initiated: make(chan struct{}), wake: make(chan struct{}),
	}
	a.remote.Store(&map[schema.GroupVersion]*Proxy{})
	a.shown = newShown(o.Show)
	a.docs = newDocuments(o.Document)
	services := a.informers.Apiregistration().V1().APIServices()
	a.registrar = newRegistrar(client, services, &o)
	a.known = apiserver.NewAPIServiceRegistrationController(services, handlers{a})
	return a, nil
}

// Register creates the APIServices of built-in group versions that are missing. It is a step
// of the start. direct reaches this server without connections, as a superuser.
func (a *Aggregator) Register(ctx context.Context, direct *restclient.Config) error {
	client, err := clientset.NewForConfig(direct)
	if err != nil {
		return err
	}
	return a.registrar.create(ctx, client)
}

// Know reads the APIServices, and returns when requests for remote group versions are passed on.
// The goroutines that it starts run until ctx ends.
func (a *Aggregator) Know(ctx context.Context) error {
	a.ctx = ctx
	a.informers.Start(ctx.Done())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		survive.Run(ctx, "aggregation", func(ctx context.Context) { a.known.Run(ctx.Done(), a.initiated) })
	}()
	select {
	case <-a.initiated:
	case <-ended:
		// Without the APIServices, all other requests are served, and the health check fails.
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// SetCustom sets the group versions that CustomResourceDefinitions define now.
func (a *Aggregator) SetCustom(versions []schema.GroupVersion) { a.registrar.setCustom(versions) }

// Run keeps the APIServices, and the discovery and OpenAPI documents of remote servers, up to
// date until ctx ends. The start must be over.
func (a *Aggregator) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer a.informers.Shutdown()
	defer running.Wait()
	running.Go(func() { survive.Run(ctx, "aggregation: local APIServices", a.registrar.run) })
	// From now on conditions of local APIServices are written, including conditions of APIServices
	// that were seen before.
	a.up.Store(true)
	a.known.Enqueue()
	select {
	case <-a.wake:
	case <-ctx.Done():
		return
	}
	running.Go(func() { survive.Run(ctx, "aggregation: discovery", a.shown.run) })
	running.Go(func() { survive.Run(ctx, "aggregation: OpenAPI", a.docs.run) })
	remote, err := newRemote(ctx, a)
	if err != nil {
		logger(ctx).Error(err, "No condition of remote APIServices is kept")
		return
	}
	running.Go(func() {
		survive.Run(ctx, "aggregation: availability", func(ctx context.Context) { remote.Run(workers, ctx.Done()) })
	})
}

// workers is how many remote APIServices are checked at once, as in kube-apiserver.
const workers = 5

// Find returns the proxy of a request, nil if this server handles the request itself. A request
// of this server to itself about its own kinds stays here, also when another server has their
// group version (S22.22).
func (a *Aggregator) Find(req *http.Request) *Proxy {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok {
		return nil
	}
	return a.FindFor(req.Context(), info)
}

// FindFor is Find for a request of which only the context is available.
func (a *Aggregator) FindFor(ctx context.Context, info *request.RequestInfo) *Proxy {
	remote := *a.remote.Load()
	if len(remote) == 0 {
		return nil
	}
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	if !info.IsResourceRequest {
		var ok bool
		if gv, ok = root(info.Path); !ok {
			return nil
		}
	}
	p := remote[gv]
	if p == nil {
		return nil
	}
	if u, ok := request.UserFrom(ctx); ok && u.GetName() == user.APIServerUser && slices.Contains(a.options.Builtin, gv) {
		return nil
	}
	return p
}

// root returns the group version whose root path is path.
func root(path string) (schema.GroupVersion, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return schema.GroupVersion{}, false
}

// Handler returns a handler that passes on requests for remote group versions, and leaves all other
// requests to next.
func (a *Aggregator) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if p := a.Find(req); p != nil {
			p.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// Remote lists the remote group versions, by name.
func (a *Aggregator) Remote() []schema.GroupVersion {
	return slices.SortedFunc(maps.Keys(*a.remote.Load()), func(a, b schema.GroupVersion) int { return cmp.Compare(a.String(), b.String()) })
}

// Server names the server of a remote group version, for people; empty if this server has the
// group version.
func (a *Aggregator) Server(gv schema.GroupVersion) string {
	p := a.proxy(gv)
	if p == nil {
		return ""
	}
	return p.target.Load().String()
}

// ClientCertificateChanged is called when Options.ClientCertificate returns another
// certificate.
func (a *Aggregator) ClientCertificateChanged() { a.known.Enqueue() }

// handlers takes in APIServices, one after the other.
type handlers struct{ *Aggregator }

// AddAPIService implements apiserver.APIHandlerManager.
func (a handlers) AddAPIService(service *apiregistrationv1.APIService) error {
	gv := schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}
	if service.Spec.Service == nil {
		a.remove(gv, service.Name)
		return a.keepLocal(service)
	}
	if gv.Group == groupName {
		// This server never passes on the group of APIServices: through it an administrator can
		// undo an APIService (S22.22).
		a.wakeOnce.Do(func() { close(a.wake) })
		return nil
	}
	p := a.proxy(gv)
	if p == nil {
		p = newProxy(a.options, gv)
		p.update(service)
		a.change(func(remote map[schema.GroupVersion]*Proxy) { remote[gv] = p })
	} else if !p.update(service) {
		// The APIService has not changed: the controller only processed it again.
		return nil
	}
	a.shown.add(service, p.always())
	a.docs.add(service, p)
	a.wakeOnce.Do(func() { close(a.wake) })
	return nil
}

// RemoveAPIService implements apiserver.APIHandlerManager.
func (a handlers) RemoveAPIService(name string) {
	version, group, _ := strings.Cut(name, ".")
	availability().ForgetAPIService(name)
	a.remove(schema.GroupVersion{Group: group, Version: version}, name)
}

func (a handlers) remove(gv schema.GroupVersion, name string) {
	if a.proxy(gv) == nil {
		return
	}
	a.change(func(remote map[schema.GroupVersion]*Proxy) { delete(remote, gv) })
	a.shown.remove(gv, name)
	a.docs.remove(gv)
	if a.options.Gone != nil {
		a.options.Gone.Add("apiservice "+name, func() bool { return a.proxy(gv) != nil },
			series.Of{Prefix: "aggregator_", Labels: map[string]string{"name": name}},
			series.Of{Prefix: "gatehouse_aggregator_", Labels: map[string]string{"name": name}},
			series.Of{Labels: map[string]string{"group": gv.Group, "version": gv.Version}})
	}
}

func (a *Aggregator) proxy(gv schema.GroupVersion) *Proxy { return (*a.remote.Load())[gv] }

// change replaces the proxies. One goroutine calls it at a time.
func (a *Aggregator) change(edit func(map[schema.GroupVersion]*Proxy)) {
	next := maps.Clone(*a.remote.Load())
	edit(next)
	a.remote.Store(&next)
}
