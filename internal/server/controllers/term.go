package controllers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/lateinformer"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/lazyinformer"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/replies"
)

// term is the time in which this server runs controllers, with the objects that the controllers
// share.
type term struct {
	options *Options
	kinds   *change
	// loopback's requests end with the term.
	loopback  *restclient.Config
	informers informers.SharedInformerFactory
	// all are informers that also see objects that are not initialized, for controllers that
	// count objects.
	all      informers.SharedInformerFactory
	monitors *monitors
	// parts are further factories: for all objects, and for informers that see only some objects of
	// a kind.
	parts  []informers.SharedInformerFactory
	watch  kubernetes.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// started is closed: informers may be started on first use.
	started chan struct{}
	making  making
	// over ends with the term.
	over context.Context
}

func newTerm(ctx context.Context, c *Controllers) (*term, error) {
	t := &term{options: &c.options, kinds: &c.kinds, started: make(chan struct{}), making: making{over: ctx.Done()}, over: ctx}
	close(t.started)
	held := func() bool { return true }
	if e := c.options.Election; e != nil {
		held = e.Held
	}
	t.loopback = restclient.CopyConfig(c.options.Loopback)
	t.loopback.WarningHandler = restclient.NoWarnings{}
	t.loopback.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next, ctx, held} })

	watching := restclient.CopyConfig(t.loopback)
	watching.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &lazyinformer.Transport{Next: next, Etcd: c.options.Etcd, Prefix: c.options.Prefix, Values: c.options.Values, Custom: c.options.Custom}
	})
	typed, err := kubernetes.NewForConfig(watching)
	if err != nil {
		return nil, err
	}
	watching.Wrap(func(next http.RoundTripper) http.RoundTripper { return everything{next} })
	typedAll, err := kubernetes.NewForConfig(watching)
	if err != nil {
		return nil, err
	}
	// Custom resources have no protobuf.
	watching.ContentType, watching.AcceptContentTypes = "", ""
	objects, err := metadata.NewForConfig(watching)
	if err != nil {
		return nil, err
	}
	list, listObjects := lazyinformer.Clients(typed, objects)
	t.watch = list
	listAll, _ := lazyinformer.Clients(typedAll, objects)
	factory := informers.NewSharedInformerFactoryWithOptions(list, 0, informers.WithTransform(trim))
	borrow(factory, c.shared)
	t.informers = settled{factory, &t.making}
	t.all = settled{informers.NewSharedInformerFactoryWithOptions(listAll, 0, informers.WithTransform(trim)), &t.making}
	t.parts = append(t.parts, t.all)
	t.monitors = &monitors{
		typed:    t.informers,
		whole:    whole,
		all:      t.all,
		objects:  newFollowed(ctx, listObjects, func(gr schema.GroupResource) bool { return c.options.Prefix(gr) == "" }),
		progress: &progress{term: ctx, etcd: c.options.Etcd, prefix: c.options.Prefix},
	}
	finder, err := kubernetes.NewForConfig(t.config("controller-discovery"))
	if err != nil {
		return nil, err
	}
	t.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(finder.Discovery()))
	return t, nil
}

// borrow adds informers of the server to a factory.
func borrow(factory informers.SharedInformerFactory, shared map[runtime.Object]cache.SharedIndexInformer) {
	for kind, owned := range shared {
		factory.InformerFor(kind, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
			b := &borrowed{}
			b.Handled = lateinformer.Handled{SharedIndexInformer: owned, Added: b.added}
			return b
		})
	}
}

// only returns informers of the objects with the given value in a field. It must be called while
// a controller is made.
func (t *term) only(field, value string) informers.SharedInformerFactory {
	f := informers.NewSharedInformerFactoryWithOptions(t.watch, 0, informers.WithTransform(trim),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = fields.OneTermEqualSelector(field, value).String() }))
	t.parts = append(t.parts, f)
	return f
}

// startInformers starts the informers that controllers asked for and that do not run yet. These
// informers outlive the controller that is being made, because others share them.
func (t *term) startInformers() {
	t.informers.Start(t.over.Done())
	for _, f := range t.parts {
		f.Start(t.over.Done())
	}
}

// end waits until the informers have ended. The term's context must have ended before.
func (t *term) end() {
	t.informers.Shutdown()
	t.monitors.objects.Shutdown()
	for _, f := range t.parts {
		f.Shutdown()
	}
}

// config returns a configuration whose clients act as a ServiceAccount in kube-system.
func (t *term) config(account string) *restclient.Config {
	as := restclient.CopyConfig(t.loopback)
	as.Impersonate.UserName = systemAccounts + account
	as.UserAgent = "gatehouse/" + account
	return as
}

// followKinds clears the cache of the mapper whenever kinds are added or removed.
func (t *term) followKinds(ctx context.Context) {
	for {
		changed := t.kinds.await()
		t.mapper.Reset()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

const (
	// lookAgain is how often controllers that follow all kinds read the list of kinds, in case a
	// read failed.
	lookAgain = 30 * time.Second
	// settle is the shortest time between two changes of the kinds that these controllers get.
	settle = time.Second
)

// everyKind runs follow, which tracks the served kinds as upstream's controllers do every 30 s. It
// restarts follow after each change of the kinds.
func (t *term) everyKind(ctx context.Context, follow func(context.Context)) {
	for ctx.Err() == nil {
		changed := t.kinds.await()
		following, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer utilruntime.HandleCrash()
			follow(following)
		}()
		sleep(ctx, settle)
		select {
		case <-ctx.Done():
		case <-changed:
		}
		stop()
		<-ended
	}
}

// trim removes the fields that no controller reads.
func trim(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// bare removes metadata that controllers of objects of every kind do not read.
func bare(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
		m.SetAnnotations(nil)
		m.SetLabels(nil)
	}
	return obj, nil
}

// errOver is the error of a request that is not sent. It counts as canceled, so that client
// libraries do not report it.
var errOver = fmt.Errorf("this server does not run the controllers any more: %w", context.Canceled)

// bounded ends requests with a term. It sends no request when this server may not hold the Lease
// any more, because the controllers of another server may run then.
type bounded struct {
	http.RoundTripper
	term context.Context
	held func() bool
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	if b.term.Err() != nil || !b.held() {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, errOver
	}
	ctx, cancel := context.WithCancel(req.Context())
	release := context.AfterFunc(b.term, cancel)
	done := func() {
		release()
		cancel()
	}
	response, err := b.RoundTripper.RoundTrip(req.WithContext(ctx))
	if err != nil {
		done()
		return nil, err
	}
	// The context that bounds the request is released with the answer.
	replies.WhenClosed(response, done)
	return response, nil
}

// borrowed is an informer of the server in a factory of a term: the informer runs already, and
// the handlers that the term added are removed when the term ends.
type borrowed struct {
	lateinformer.Handled
	mu       sync.Mutex
	handlers []cache.ResourceEventHandlerRegistration
}

func (b *borrowed) added(r cache.ResourceEventHandlerRegistration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handlers = append(b.handlers, r)
}

// SetTransform implements cache.SharedInformer. It has no effect: the server decides which fields
// its informers keep.
func (b *borrowed) SetTransform(cache.TransformFunc) error { return nil }

// Run implements cache.SharedInformer.
func (b *borrowed) Run(stop <-chan struct{}) {
	<-stop
	b.giveBack()
}

// RunWithContext implements cache.SharedInformer.
func (b *borrowed) RunWithContext(ctx context.Context) { b.Run(ctx.Done()) }

func (b *borrowed) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.handlers {
		_ = b.SharedIndexInformer.RemoveEventHandler(h)
	}
	b.handlers = nil
}

// monitors are the informers of controllers that follow objects of every kind. The informers have
// only the metadata, except for kinds whose objects other controllers have anyway. The type
// implements upstream's informer factory.
type monitors struct {
	typed informers.SharedInformerFactory
	// whole are the kinds for which typed is used.
	whole   []schema.GroupVersionResource
	objects *followed
	// all and progress are set for the garbage collector, and nil for other controllers.
	all      informers.SharedInformerFactory
	progress *progress
}

// whole are the kinds whose whole objects a term keeps, because default controllers read them, in
// the versions that these controllers read.
var whole = []schema.GroupVersionResource{
	{Version: "v1", Resource: "namespaces"},
	{Version: "v1", Resource: "nodes"},
	{Version: "v1", Resource: "resourcequotas"},
	{Version: "v1", Resource: "serviceaccounts"},
	{Version: "v1", Resource: "services"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "ipaddresses"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "servicecidrs"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
}

// wholeAll are the kinds of which a term also has uninitialized objects. Uninitialized objects of
// other kinds are in the collector's own informers of metadata (S11.36).
var wholeAll = []schema.GroupVersionResource{
	{Version: "v1", Resource: "endpoints"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
}

// ForResource returns the informer of a resource.
func (m *monitors) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	var informer informers.GenericInformer
	var err error
	switch {
	case slices.Contains(m.whole, resource):
		informer, err = m.typed.ForResource(resource)
	case m.all != nil && slices.Contains(wholeAll, resource):
		informer, err = m.all.ForResource(resource)
	default:
		informer = m.objects.ForResource(resource)
	}
	return monitor{informer, m.progress.of(resource)}, err
}

// Start starts the informers of the typed kinds that do not run yet. The informers of other kinds
// run while a controller runs with them.
func (m *monitors) Start(stop <-chan struct{}) {
	m.typed.Start(stop)
	if m.all != nil {
		m.all.Start(stop)
	}
}

// monitor is an informer of monitors.
type monitor struct {
	informers.GenericInformer
	kind *kindProgress
}

// Informer implements informers.GenericInformer.
func (m monitor) Informer() cache.SharedIndexInformer {
	return &monitored{lateinformer.Handled{
		SharedIndexInformer: m.GenericInformer.Informer(),
		Wrap:                func(h cache.ResourceEventHandler) cache.ResourceEventHandler { return apart{h, m.kind} },
		Added:               func(r cache.ResourceEventHandlerRegistration) { m.kind.follow(r.HasSynced) },
	}, m.kind}
}

// monitored reports the deletion and the new creation of an object in two events. When a watch was
// interrupted meanwhile, an informer has a single event for both, an update. The controllers that
// follow all kinds would then never see that the first object was deleted.
type monitored struct {
	lateinformer.Handled
	kind *kindProgress
}

// GetController implements cache.SharedInformer.
func (m *monitored) GetController() cache.Controller {
	return forgetful{m.SharedIndexInformer.GetController(), m.kind}
}

// forgetful is a controller of an informer. When it ends, progress forgets the monitor of the
// kind.
type forgetful struct {
	cache.Controller
	kind *kindProgress
}

// Run implements cache.Controller.
func (f forgetful) Run(stop <-chan struct{}) {
	defer f.kind.forget()
	f.Controller.Run(stop)
}

// apart is a handler that never gets an update from one object to another of the same name.
type apart struct {
	cache.ResourceEventHandler
	kind *kindProgress
}

// OnAdd implements cache.ResourceEventHandler.
func (a apart) OnAdd(obj any, initially bool) {
	a.kind.hold(nil, obj)
	a.ResourceEventHandler.OnAdd(obj, initially)
	a.kind.passed(obj)
}

// OnUpdate implements cache.ResourceEventHandler.
func (a apart) OnUpdate(before, after any) {
	if first, err := meta.Accessor(before); err == nil {
		if second, err := meta.Accessor(after); err == nil && first.GetUID() != second.GetUID() {
			a.OnDelete(before)
			a.OnAdd(after, false)
			return
		}
	}
	a.kind.hold(before, after)
	a.ResourceEventHandler.OnUpdate(before, after)
	a.kind.passed(after)
}
