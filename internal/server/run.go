package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/aggregation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/bootstrap"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/connections"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/spans"
)

// assembly is a server with all its parts in place, not yet serving. Each part is made
// in a file of its own, out of parts that stand above it.
type assembly struct {
	settings *settings
	db       *database
	serving  *serving
	loopback *loopback
	admitter *admitter
	stores   *stores
	// generic is the library's server, which frame.go configures.
	generic *genericapiserver.GenericAPIServer
	api     *api
	// boot is done once, when requests are served; objects makes what was refused then.
	boot    *boot
	objects *bootstrap.Objects
	// tracer records the spans of requests.
	tracer tracing.TracerProvider
	// running are what runs until the server ends; controllers run from when it is ready.
	running []func(context.Context)
	// ready are what runs from when the server is ready until it ends.
	ready       []func(context.Context)
	controllers *controllers.Controllers
}

// assemble puts the parts of a server together. ready is closed when the server
// is ready. The caller closes the assembly.
func assemble(ctx context.Context, s *settings, listener net.Listener, db *database, ready <-chan struct{}) (_ *assembly, err error) {
	a := &assembly{settings: s, db: db}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if a.serving, err = newServing(ctx, s, listener, db); err != nil {
		return nil, err
	}
	if a.loopback, err = newLoopback(a.serving.loopback, ctx.Done()); err != nil {
		return nil, err
	}
	config, err := newFrame(ctx, s, a.serving, a.loopback, db, ready, func(req *http.Request, _ *request.RequestInfo) bool {
		return a.api.aggregator.Find(req) != nil
	})
	if err != nil {
		return nil, err
	}
	if a.tracer, err = spans.New(ctx, s.tracing, config.APIServerID); err != nil {
		return nil, fmt.Errorf("--tracing-config-file %s: %w", s.TracingConfigFile, err)
	}
	config.TracerProvider = a.tracer
	if a.admitter, err = newAdmitter(s, a.serving.address.URL, a.loopback, config.Authorization.Authorizer, db); err != nil {
		return nil, err
	}
	if a.stores, err = newStores(s, config.EffectiveVersion, db, a.admitter); err != nil {
		return nil, err
	}
	config.EquivalentResourceRegistry = a.stores.equivalents()
	kinds, hooks, err := newKinds(s, a.serving, a.loopback, config, a.stores)
	if err != nil {
		return nil, err
	}
	if a.generic, err = config.Complete(a.loopback.informers).New("gatehouse", genericapiserver.NewEmptyDelegate()); err != nil {
		return nil, err
	}
	a.serving.tokens.Describe(s.ServiceAccountJWKSURI, config.ExternalAddress, a.generic)
	for _, g := range kinds {
		for _, v := range g.Versions {
			for _, store := range v.Storage {
				a.generic.RegisterDestroyFunc(store.Destroy)
			}
		}
	}
	if a.api, err = newAPI(apiParts{
		settings: s, serving: a.serving, self: a.loopback, config: config, admitter: a.admitter, stores: a.stores, kinds: kinds, etcd: db.client.Client,
	}); err != nil {
		return nil, err
	}
	a.api.install(a.generic)

	publisher, err := newPublisher(s, a.serving, a.loopback, db)
	if err != nil {
		return nil, err
	}
	if !s.EndAtOnce {
		if err := a.generic.AddPreShutdownHook("stop-kubernetes-service-controller", func() error {
			publisher.Withdraw()
			return nil
		}); err != nil {
			return nil, err
		}
	}
	a.objects = &bootstrap.Objects{Client: a.loopback.client, ServiceRange: s.ServiceClusterIPRange, MakeAccount: a.admitter.makeAccount}
	callers := aggregation.Callers{ClientCA: a.serving.clientCA, Proxies: a.serving.proxies}
	a.boot = newBoot([]bootStep{
		{name: bootNamespaces, do: a.objects.OrLater(a.objects.Namespaces)},
		{name: bootServiceCIDR, do: a.objects.OrLater(a.objects.ServiceCIDR)},
		{name: bootPriorityClasses, do: a.objects.OrLater(a.objects.PriorityClasses)},
	}, slices.Concat([]bootStep{
		{name: bootRoles, do: a.objects.OrLater(a.objects.Roles)},
		{name: bootCustomKinds, do: a.api.custom.Ready},
		{name: bootService, do: a.objects.OrLater(publisher.Start)},
		{name: bootRegistered, do: a.objects.OrLater(a.api.aggregator.Register)},
		{name: bootAggregation, do: a.api.aggregator.Know, lasting: true},
		{name: bootAuthentication, lasting: true, do: func(ctx context.Context) error { return callers.Publish(ctx, a.loopback.client) }},
	}, hookSteps(hooks, a.loopback)))
	if err := a.generic.AddBootSequenceHealthChecks(a.boot.checks()...); err != nil {
		return nil, err
	}
	if a.controllers, err = newControllers(controllerParts{
		settings: s, serving: a.serving, self: a.loopback, admitter: a.admitter, stores: a.stores, api: a.api, kinds: kinds, etcd: db.client.Client,
	}); err != nil {
		return nil, err
	}
	a.api.follow(a.controllers.KindsChanged)
	a.running = []func(context.Context){publisher.Run, a.admitter.rejections.Run}
	a.ready = []func(context.Context){a.runAggregator}
	return a, nil
}

// close gives back what the parts hold, also of an assembly that is not complete. Requests
// must have ended.
func (a *assembly) close() {
	if a.stores != nil && a.stores.initialization != nil {
		a.stores.initialization.Close()
	}
	if a.api != nil {
		a.api.conversions.Close()
	}
	if a.admitter != nil {
		a.admitter.close()
	}
	if a.stores != nil {
		a.stores.factory.Close()
	}
	if a.tracer != nil {
		if err := a.tracer.Shutdown(context.Background()); err != nil {
			klog.ErrorS(err, "Cannot send the spans of the last requests")
		}
	}
}

// lastWait is how long creators may go on waiting for initializers when the server
// is to end.
const lastWait = 5 * time.Second

// controllersEnd is how long the controllers and informers may take to end before serving
// ends without them.
const controllersEnd = time.Second

// run serves until ctx ends.
func (a *assembly) run(ctx context.Context, ready func(Address)) error {
	group, groupCtx := errgroup.WithContext(ctx)
	if waits := a.stores.initialization; waits != nil {
		defer context.AfterFunc(groupCtx, func() { time.AfterFunc(lastWait, waits.Release) })()
	}
	up, controlled := make(chan struct{}), make(chan struct{})
	group.Go(func() error {
		defer close(controlled)
		select {
		case <-up:
			a.afterStart(groupCtx)
		case <-groupCtx.Done():
		}
		return nil
	})
	// The end of serving waits for watches. Those of the server itself end before.
	serving, endServing := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endServing(nil)
	group.Go(func() error {
		<-groupCtx.Done()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			<-controlled
			a.loopback.informers.Shutdown()
		}()
		select {
		case <-ended:
		case <-time.After(controllersEnd):
		}
		endServing(context.Cause(groupCtx))
		return nil
	})
	group.Go(func() error { return a.serve(serving) })
	group.Go(func() error {
		if err := a.admitter.run(groupCtx, a.db.client.Client); groupCtx.Err() == nil {
			return err
		}
		return nil
	})
	for _, run := range a.running {
		group.Go(func() error {
			run(groupCtx)
			return nil
		})
	}
	group.Go(func() error { return a.api.custom.Run(groupCtx) })
	group.Go(func() error {
		if err := a.start(groupCtx); err != nil {
			if groupCtx.Err() != nil {
				return nil
			}
			return err
		}
		if err := a.admitter.caches.Await(); err != nil {
			return err
		}
		ready(a.serving.address)
		// Starting took memory that serving does not need.
		debug.FreeOSMemory()
		close(up)
		a.objects.Retry(groupCtx)
		return nil
	})
	err := group.Wait()
	a.loopback.informers.Shutdown()
	if err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// afterStart runs what works through the API once the server is ready, until ctx ends.
func (a *assembly) afterStart(ctx context.Context) {
	var running sync.WaitGroup
	for _, run := range a.ready {
		running.Go(func() { run(ctx) })
	}
	a.controllers.Run(ctx)
	running.Wait()
}

// serve handles requests until ctx ends.
func (a *assembly) serve(ctx context.Context) error {
	stopHangUp, err := connections.HangUp(ctx, a.loopback.config)
	if err != nil {
		return err
	}
	defer stopHangUp()
	if clients := a.serving.connections; clients != nil {
		defer context.AfterFunc(ctx, clients.CloseAll)()
	}
	a.generic.ShutdownTimeout = shutdownTimeout
	return a.generic.PrepareRun().RunWithContext(ctx)
}

// start brings up what works through the server's own API.
func (a *assembly) start(ctx context.Context) error {
	a.loopback.informers.Start(ctx.Done())
	if err := a.boot.run(ctx); err != nil {
		return err
	}
	for kind, synced := range a.loopback.informers.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("reading %s: %w", kind, context.Cause(ctx))
		}
	}
	return nil
}

// hookSteps are what the built-in kinds want to have run once requests are served.
func hookSteps(hooks []catalog.Hook, self *loopback) []bootStep {
	var steps []bootStep
	for _, hook := range hooks {
		steps = append(steps, bootStep{name: hook.Name, lasting: true, do: func(ctx context.Context) error {
			if err := hook.Run(genericapiserver.PostStartHookContext{LoopbackClientConfig: self.config, Context: ctx}); err != nil {
				return fmt.Errorf("starting %s: %w", hook.Name, err)
			}
			return nil
		}})
	}
	return steps
}
