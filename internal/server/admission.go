package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	apiadmission "k8s.io/apiserver/pkg/admission"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/announce"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/series"
	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/caches"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/chain"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/exclusions"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/fresh"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/inforce"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/params"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/revision"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/schemas"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/rejections"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/staleseries"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/quotas"
)

// admitter is the server's admission: the engine, the active registrations, and the chain of
// plugins for every write.
type admitter struct {
	settings *settings
	engine   *admission.Engine
	// refresher keeps the registrations fresh; announcer announces to other servers which
	// registrations this server enforces.
	refresher *snapshot.Refresher
	announcer *replicas.Announcer
	// chain is the admission chain for writes. plugins are its plugins, in order; rejections writes
	// events on the owners of rejected objects.
	chain      apiadmission.Interface
	plugins    []admission.Plugin
	rejections *rejections.Teller
	// manifests reads registrations from files, and configured is the AdmissionConfiguration.
	manifests  *manifests.Source
	configured *admission.Configuration
	// params reads the params of policies.
	params *params.Reader
	// schemas are the schemas of the kinds that policies change.
	schemas *schemas.Applied
	// inForce delays the response to a write of a registration until the registration is active.
	inForce inforce.Holder
	// makeAccount makes the service account of a namespace; nil if no controller of this server
	// makes it.
	makeAccount func(ctx context.Context, namespace string) (*corev1.ServiceAccount, error)
	// namespaces lists the namespaces that a watch has delivered.
	namespaces corelisters.NamespaceLister
	// caches are the caches that admission plugins and RBAC read.
	caches *caches.Caches
	// rejected tracks the owners whose new objects initializers rejected.
	rejected *controllers.Rejections
	// creations counts the creates that the chain has let pass and that are not stored yet.
	creations *namespaces.Creations
	// fences keep quotas exact.
	fences *quotas.Fences
	// gone drops the metric series of deleted objects and kinds.
	gone    *series.Gone
	counted staleseries.Registrations
	// drained is closed when no more requests come.
	drained chan struct{}
}

// seriesStay is how long metrics keep the series of a deleted object or kind. By then the last
// watches of a deleted kind have ended.
const seriesStay = 20 * time.Second

// judging is the phase in which the server has the admission chain.
type judging struct {
	*framed
	admitter *admitter
}

// newJudging builds the admission chain from the settings.
func newJudging(f *framed) (*judging, error) {
	s, self, db, authorize := f.settings, f.loopback, f.db, f.config.Authorization.Authorizer
	configuration, err := admission.LoadConfiguration(s.AdmissionConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	if err := chain.CheckConfigured(configuration, s.plugins); err != nil {
		return nil, fmt.Errorf("--admission-control-config-file %s: %w", s.AdmissionConfigFile, err)
	}
	makeAccount, err := controllers.MakeAccount(s.Controllers, self.client)
	if err != nil {
		return nil, fmt.Errorf("--controllers: %w", err)
	}
	a := &admitter{settings: s, configured: configuration, makeAccount: makeAccount, rejected: controllers.NewRejections(), creations: &namespaces.Creations{}, fences: quotas.New(db.client.KV, s.EtcdPrefix), params: newParams(s, db), schemas: &schemas.Applied{}, gone: series.NewGone(seriesStay), drained: make(chan struct{})}
	a.counted.Gone = a.gone
	id := replicaID()
	a.announcer = replicas.NewAnnouncer(replicas.Options{
		Etcd: db.client.Client, Prefix: s.ownKey("replicas"), ID: id, Address: f.serving.announced(s), MaxStaleness: s.AdmissionMaxStaleness,
		Off: s.notEnforced,
	})
	a.announcer.Encrypts(db.values.Hash())
	if a.manifests, err = manifests.Open(manifests.Options{
		Directories: s.manifestDirectories(configuration), ServerID: id, Exclusions: configuration.Exclusions(), Changed: func() { f.links.manifestsChanged() },
	}); err != nil {
		return nil, fmt.Errorf("--admission-control-config-file %s: %w", s.AdmissionConfigFile, err)
	}
	a.caches = caches.New(self.informers, s.plugins, s.authorizes("RBAC"))
	a.namespaces = self.informers.Core().V1().Namespaces().Lister()
	cached := fresh.NewNamespaces(s.EtcdPrefix, db.namespaces(), a.namespaces, self.client)
	reader := fresh.NewReader(db.client.KV, s.EtcdPrefix, cached, db.values, s.versions.Hidden()...)
	refreshing := snapshot.Options{
		Reader:       sourced{announce.Covered(reader, a.announcer.Covers), s.Kubernetes},
		Interval:     s.AdmissionRefreshInterval,
		MaxStaleness: s.AdmissionMaxStaleness,
		Strict:       s.strict(),
		Local:        a.manifests.Local,
		Observer:     func(r snapshot.Read) { f.links.read(r) },
	}
	if s.Rehearsals {
		refreshing.Witness = func(e *registration.Entry) expression.Witness { return rehearsalWitness{e} }
	}
	if a.refresher, err = snapshot.NewRefresher(refreshing); err != nil {
		return nil, err
	}
	a.inForce = inforce.Holder{Refresher: a.refresher, MaxStaleness: s.AdmissionMaxStaleness}
	engine := admission.Options{
		Snapshots:          revision.Snapshots{Refresher: a.refresher},
		Registrations:      reader,
		Namespaces:         cached,
		Params:             a.params,
		Schemas:            a.schemas,
		Authorizer:         controllers.Initializing(authorize),
		Configuration:      configuration,
		Resolver:           self.services(s),
		Dial:               s.DialWebhook,
		Wrap:               s.WrapWebhook,
		Breaker:            s.breaker,
		MaxInFlight:        s.AdmissionWebhookMaxInFlight,
		StepAside:          inflight.StepAside,
		InitializerTimeout: s.InitializerTimeout,
		Skips:              s.AdmissionTraceSkips,
		Reviews:            emulation.JudgesReviews(),

		ExternalCertFile: s.ProxyClientCertFile,
		ExternalKeyFile:  s.ProxyClientKeyFile,
	}
	if s.Rehearsals {
		engine.Resolver = anywhere(engine.Resolver)
		engine.Snapshots = rehearsalSnapshots{engine.Snapshots}
		engine.Wrap = func(rt http.RoundTripper) http.RoundTripper {
			if s.WrapWebhook != nil {
				rt = s.WrapWebhook(rt)
			}
			return rehearsalCalls{rt}
		}
	}
	if a.engine, err = admission.New(engine); err != nil {
		return nil, err
	}
	f.ends.add(a.close)
	if a.plugins, err = chain.New(chain.Options{
		Names: s.plugins, Engine: a.engine, Authorizer: authorize, Client: self.client, Informers: self.informers, Mapper: self.mapper,
		Namespaces: cached, Creations: a.creations, Fences: a.fences, Configuration: configuration, Version: f.config.EffectiveVersion,
		MakeAccount: a.makeAccount, Drained: a.drained,
	}); err != nil {
		return nil, err
	}
	owners, err := metadata.NewForConfig(self.config)
	if err != nil {
		return nil, fmt.Errorf("client for the metadata of owners: %w", err)
	}
	a.rejections = rejections.New(self.client, owners)
	writes := a.rejections.Around(admission.Chain(a.plugins...))
	if s.HintsAtMissing {
		writes = a.rejections.Hinting(writes, controllers.Missing(s.Controllers, s.FakeNodes))
	}
	if a.chain = writes; s.Rehearsals {
		a.chain = rehearsalChain{writes}
	}
	return &judging{f, a}, nil
}

// judges returns an error while registrations cannot be read, so that no write can be admitted.
func (a *admitter) judges() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	err := a.refresher.Await(now, func(s *snapshot.Snapshot) bool { return time.Since(s.ReadAt) <= a.settings.AdmissionMaxStaleness })
	if err != nil {
		return fmt.Errorf("registrations cannot be read, so writes are rejected: %w", err)
	}
	return nil
}

// close ends the goroutines of the plugins, and closes the engine. All requests must have
// ended.
func (a *admitter) close() {
	close(a.drained)
	a.engine.Close()
}

// run keeps the registrations fresh, until ctx ends. The server announces itself in etcd before it
// reads a registration.
func (a *admitter) run(ctx context.Context, etcd clientv3.Watcher) error {
	if err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		err := a.announcer.Announce(ctx)
		if err != nil {
			klog.ErrorS(err, "Cannot announce this server in etcd; refusing writes until it succeeds")
		}
		return err == nil, nil
	}); err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { a.announcer.Run(ctx) })
	running.Go(func() { a.params.Run(ctx) })
	running.Go(func() { survive.Run(ctx, "series of deleted registrations", a.gone.Run) })
	running.Go(func() { a.manifests.Run(ctx) })
	running.Go(func() {
		exclusions.Follow(ctx, a.settings.AdmissionConfigFile, a.configured, a.manifests.SetExclusions)
	})
	running.Go(func() { fresh.Watch(ctx, etcd, a.settings.EtcdPrefix, a.refresher.Poke) })
	defer running.Wait()
	return a.refresher.Run(ctx)
}

// newParams makes the reader of params. The reader follows the writes of other servers if the
// server shares its etcd. With strict consistency each request reads params that are newer than the
// request, and the reader follows nothing.
func newParams(s *settings, db *database) *params.Reader {
	o := params.Options{Strict: s.strict(), StepAside: inflight.StepAside, Observe: admission.CountParamsRead}
	if s.sharesEtcd() && !s.strict() {
		o.Follow = func(ctx context.Context, prefix string, changed func(string)) {
			root := path.Clean("/" + s.EtcdPrefix)
			fresh.WatchBelow(ctx, db.client.Client, root+prefix, func(key string) { changed(strings.TrimPrefix(key, root)) })
		}
	}
	return params.New(o)
}

// manifestDirectories returns the directories of the plugins that run, by name.
func (s *settings) manifestDirectories(c *admission.Configuration) map[string]string {
	directories := map[string]string{}
	for _, plugin := range s.plugins {
		if dir := c.StaticManifestsDir(plugin); dir != "" {
			directories[plugin] = dir
		}
	}
	return directories
}

// replicaID identifies this run of this server.
func replicaID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "gatehouse"
	}
	return strings.ToLower(host + "-" + rand.Text()[:8])
}

// sourced is a reader that marks which registrations kube-apiserver has stored too.
type sourced struct {
	snapshot.Reader
	// kubernetes is Options.Kubernetes.
	kubernetes bool
}

func (r sourced) Read(ctx context.Context, since snapshot.Version) (snapshot.Registrations, error) {
	found, err := r.Reader.Read(ctx, since)
	found.Kubernetes = r.kubernetes
	return found, err
}

// reasonAbandoned is the reason of the event about an object that the server deleted before an
// initializer had released the resources it allocated for the object (S11.59).
const reasonAbandoned = "ReleaseAbandoned"

// observe counts events of uninitialized objects. It writes an event on the owner of an object that
// an initializer rejected, and of an object that the server deleted before an initializer had
// released the resources it allocated.
func (a *admitter) observe(e initialization.Event) {
	initialization.Count(e)
	if e.Object == nil {
		return
	}
	object, err := meta.Accessor(e.Object)
	if err != nil {
		return
	}
	switch e.Kind {
	case initialization.Initialized:
		a.rejected.Initialized(e.Resource, object)
	case initialization.SeenRejected:
		a.rejected.Seen(e.Resource, object, e.Err)
	case initialization.Rejected:
		a.rejections.Initializer(e.Resource, object, e.Initializer, e.Err)
	case initialization.Abandoned:
		a.rejections.About(e.Resource, object, reasonAbandoned, fmt.Sprintf(
			"The object was deleted before it was initialized. Initializer %q did not remove its finalizer %q within %s, so the server removed it: resources that the initializer allocated for uid %s may be left.",
			e.Initializer, e.Finalizer, a.settings.InitializerReleaseTimeout, object.GetUID()))
	}
}

// read counts a read of the registrations, and announces the registrations that the engine cannot
// use.
func (a *admitter) read(r snapshot.Read) {
	admission.CountRead(r)
	a.announcer.Observe(r)
	a.counted.Observe(r)
	if r.Snapshot != nil {
		a.announcer.Skip(a.engine.Skipped(r.Snapshot))
	}
}

// replicaSettle is how long other replicas may take to see a new kind, or a namespace that is being
// deleted.
const replicaSettle = 2 * time.Second

// settle returns how long to wait for other replicas; 0 when there are none.
func (a *admitter) settle(ctx context.Context) time.Duration {
	if alone, err := a.announcer.Alone(ctx); err != nil || !alone {
		return replicaSettle
	}
	return 0
}
