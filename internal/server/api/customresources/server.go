package customresources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	informersv1 "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/apiapproval"
	"k8s.io/apiextensions-apiserver/pkg/controller/establish"
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	"k8s.io/apiextensions-apiserver/pkg/controller/nonstructuralschema"
	naming "k8s.io/apiextensions-apiserver/pkg/controller/status"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/kit/series"
	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// resync is how often every CRD is checked again, to finish finalizations that failed.
const resync = 5 * time.Minute

// patience is how long readers of discovery wait for a CRD at most.
const patience = 5 * time.Second

// Factory returns the options with which the store of a resource is opened.
type Factory interface {
	For(config *storagebackend.ConfigForResource, prefix string) generic.RESTOptions
}

// Options configure the serving of CRDs and their objects. Factory, Storage, Client, Equivalents
// and Webhooks must be set.
type Options struct {
	// Factory opens the stores; Storage is the configuration they share: where
	// etcd is, and the prefix of its keys.
	Factory Factory
	Storage storagebackend.Config
	// Client reaches the server itself as a superuser. An informer reads definitions with it, and
	// controllers write the status of definitions.
	Client *rest.Config
	// LikeTheRelease leaves metadata.initializers out of documents for clients.
	LikeTheRelease bool
	// Equivalents is the server's registry of equivalent resources, for
	// CustomResourceDefinition itself. Every definition has a registry of its own.
	Equivalents runtime.EquivalentResourceRegistry
	// Authorizer is asked by handlers that check a second verb.
	Authorizer upstream.Authorizer
	// MaxRequestBodyBytes bounds the body of a request; 0 means no bound.
	MaxRequestBodyBytes int64
	// Builtin reports which group versions belong to built-in kinds. A CRD is not served in them.
	// Nil means none.
	Builtin func(schema.GroupVersion) bool
	// Webhooks calls conversion webhooks. NewCaller makes the Caller, and its user closes it
	// when Run has returned.
	Webhooks *call.Caller
	// MayConvert, if set, is called before each call of a conversion webhook. If it returns an error, the
	// webhook is not called, and the call fails with this error.
	MayConvert func(ctx context.Context, definition string, to *registration.ClientConfig) error
	// MaxConversions bounds the calls of one conversion webhook at once; as many
	// may wait. 0 means 50.
	MaxConversions int
	// EstablishDelay is how long a CRD is served before it becomes Established. Where several
	// servers share an etcd, the delay gives the others time to serve the CRD, too: upstream waits
	// 5 s. Nil means no delay.
	EstablishDelay func(context.Context) time.Duration
	// OnChange, if set, is called after the result of Versions or the OpenAPI documents may have
	// changed. It must not block.
	OnChange func()
	// OnSchema, if set, is called after OnChange when the kinds of a group, or
	// their schemas, have changed. It must not block.
	OnSchema func(group string)
	// Gone, if set, drops the metric series of deleted kinds.
	Gone *series.Gone
}

// Server serves CRDs and the kinds that they define. It is made by New and safe for concurrent use.
type Server struct {
	options     Options
	client      clientset.Interface
	informers   externalversions.SharedInformerFactory
	definitions informersv1.CustomResourceDefinitionInformer
	establish   *establish.EstablishingController
	controllers []func(context.Context)
	queue       workqueue.TypedRateLimitingInterface[string]

	// snapshot has the served definitions by their resource, and kinds the same definitions by
	// the kind of their objects. serving is held while they are replaced.
	serving  sync.Mutex
	snapshot atomic.Pointer[map[schema.GroupResource]entry]
	kinds    atomic.Pointer[map[schema.GroupKind]*definition]
	ready    chan struct{}
	arrivals *arrivals
	// publisher calls OnChange.
	publisher *publisher
	// keeper drops parts of definitions that are no longer used.
	keeper keeper
	// retiring counts the replaced definitions whose stores are not closed yet.
	retiring sync.WaitGroup
}

// NewCaller returns the Caller that calls conversion webhooks, without credentials. It sets the
// options that are about headers, credentials and circuits.
func NewCaller(o call.Options) (*call.Caller, error) {
	// The headers of an answer are not needed.
	o.MaxHeaderBytes, o.Credentials = 64<<10, nil
	circuits := trace.Circuits("CustomResourceConversion")
	o.Observe = func(c call.Circuit) { circuits(trace.Circuit(c)) }
	return call.New(o)
}

// listing is a client whose informers list first and then watch: the servers that answer these
// informers may support no other way.
type listing struct{ clientset.Interface }

// IsWatchListSemanticsUnSupported is asked by informers.
func (listing) IsWatchListSemanticsUnSupported() bool { return true }

// New checks the options and starts nothing.
func New(o Options) (*Server, error) {
	if o.Factory == nil || o.Client == nil || o.Equivalents == nil || o.Webhooks == nil {
		return nil, errors.New("custom resources: Factory, Client, Equivalents and Webhooks must be set")
	}
	client, err := clientset.NewForConfig(o.Client)
	if err != nil {
		return nil, fmt.Errorf("custom resources: client: %w", err)
	}
	s := &Server{
		options:   o,
		client:    client,
		informers: externalversions.NewSharedInformerFactory(listing{client}, resync),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "customresources"}),
		ready:    make(chan struct{}),
		arrivals: newArrivals(patience),
		keeper:   keeper{interval: roundTime},
	}
	s.publisher = newPublisher(s.changed)
	s.store(map[schema.GroupResource]entry{})
	s.definitions = s.informers.Apiextensions().V1().CustomResourceDefinitions()
	informer := s.definitions.Informer()
	if err := informer.SetTransform(func(obj any) (any, error) {
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			return obj, nil
		}
		before, _, _ := informer.GetIndexer().GetByKey(crd.Name)
		earlier, _ := before.(*apiextensionsv1.CustomResourceDefinition)
		return crd, pack(crd, earlier)
	}); err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    s.enqueue,
		UpdateFunc: func(_, obj any) { s.enqueue(obj) },
		DeleteFunc: func(obj any) {
			if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
				s.arrivals.deleted(crd.Name, crd.UID)
			}
			s.enqueue(obj)
		},
	}); err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	v1 := statusWriter{client.ApiextensionsV1(), nil}
	s.establish = establish.NewEstablishingController(s.definitions, v1)
	const workers = 5
	names := naming.NewNamingConditionController(klog.Background(), s.definitions, statusWriter{v1.client, s.establishAtOnce})
	structure := nonstructuralschema.NewConditionController(withSchemas{s.definitions, s}, v1)
	approval := apiapproval.NewKubernetesAPIApprovalPolicyConformantConditionController(s.definitions, v1)
	final := finalizer.NewCRDFinalizer(s.definitions, v1, finalizing{s})
	s.controllers = []func(context.Context){
		names.RunWithContext,
		s.establish.RunWithContext,
		func(ctx context.Context) { structure.RunWithContext(workers, ctx) },
		func(ctx context.Context) { approval.RunWithContext(workers, ctx) },
		func(ctx context.Context) { final.RunWithContext(workers, ctx) },
	}
	return s, nil
}

// Run serves CRDs until ctx ends. The endpoints of DefinitionEndpoints must be reachable through
// Options.Client, now or soon. It returns nil. It logs the error of a single CRD and retries.
func (s *Server) Run(ctx context.Context) error {
	s.informers.Start(ctx.Done())
	defer s.informers.Shutdown()
	defer s.retiring.Wait()
	defer s.keeper.end()
	if !cache.WaitForCacheSync(ctx.Done(), s.definitions.Informer().HasSynced) {
		s.queue.ShutDown()
		return nil
	}
	s.load(ctx)
	close(s.ready)
	var group sync.WaitGroup
	for _, run := range s.controllers {
		// They write the conditions of CRDs. If one panics, the part that serves objects continues.
		group.Go(func() { survive.Run(ctx, "conditions of definitions", run) })
	}
	group.Go(func() { s.publisher.run(ctx) })
	survive.Work(ctx, s.queue, 1, s.look)
	group.Wait()
	return nil
}

// Ready waits until the CRDs that existed at the start are served. It returns the error of ctx.
func (s *Server) Ready(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Lookup implements resources.Source.
func (s *Server) Lookup(gvr schema.GroupVersionResource, subresource string) (*resources.Endpoint, func()) {
	for {
		e, ok := (*s.snapshot.Load())[gvr.GroupResource()]
		if !ok {
			return nil, nil
		}
		at := place{gvr.Version, subresource}
		if !e.shown[at] {
			return nil, nil
		}
		if e.requests.enter() {
			made, err := e.open()
			if err != nil {
				e.leave()
				utilruntime.HandleError(err)
				return nil, nil
			}
			return made.endpoints[at], e.leave
		}
		// The definition has been replaced since the snapshot was loaded.
	}
}

// ResourceOf returns the resource whose objects have a kind; ok is false when no such resource
// is served in that version.
func (s *Server) ResourceOf(kind schema.GroupVersionKind) (resource schema.GroupVersionResource, ok bool) {
	d := (*s.kinds.Load())[kind.GroupKind()]
	if d == nil || !d.shown[place{version: kind.Version}] {
		return resource, false
	}
	return kind.GroupVersion().WithResource(d.crd.Spec.Names.Plural), true
}

// TypeConverter returns the converter with the schema of a custom kind as it is served now; nil
// when no CRD defines the kind in that version. Server-side apply uses the same converter, which is
// available as soon as the kind is served.
func (s *Server) TypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	d := (*s.kinds.Load())[kind.GroupKind()]
	if d == nil || !slices.ContainsFunc(d.crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == kind.Version }) {
		return nil
	}
	return d.typeConverter
}

func (s *Server) builtin(gv schema.GroupVersion) bool {
	return s.options.Builtin != nil && s.options.Builtin(gv)
}

func (s *Server) enqueue(obj any) {
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		s.queue.Add(name)
	}
}

// look handles one CRD that changed.
func (s *Server) look(ctx context.Context, name string) error {
	err := s.sync(ctx, name)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not serve a CustomResourceDefinition; keeping its last working state, if any; will retry", "name", name)
		s.arrivals.arrived(name)
	}
	return err
}
