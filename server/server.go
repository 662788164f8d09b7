package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/compatibility"
	metricsfeatures "k8s.io/component-base/metrics/features"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	schedulingv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/kubeapiserver"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/server/auth"
	"github.com/gatehouse-dev/gatehouse/server/catalog"
	"github.com/gatehouse-dev/gatehouse/server/customresources"
	"github.com/gatehouse-dev/gatehouse/server/discovery"
	"github.com/gatehouse-dev/gatehouse/server/etcd"
	"github.com/gatehouse-dev/gatehouse/server/explain"
	"github.com/gatehouse-dev/gatehouse/server/fresh"
	"github.com/gatehouse-dev/gatehouse/server/inflight"
	"github.com/gatehouse-dev/gatehouse/server/initialization"
	"github.com/gatehouse-dev/gatehouse/server/kubernetesservice"
	"github.com/gatehouse-dev/gatehouse/server/marks"
	"github.com/gatehouse-dev/gatehouse/server/namespaces"
	"github.com/gatehouse-dev/gatehouse/server/openapi"
	"github.com/gatehouse-dev/gatehouse/server/registrations"
	"github.com/gatehouse-dev/gatehouse/server/replicas"
	replicasv1alpha1 "github.com/gatehouse-dev/gatehouse/server/replicas/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/server/resources"
	"github.com/gatehouse-dev/gatehouse/server/stack"
	"github.com/gatehouse-dev/gatehouse/server/storage"
	"github.com/gatehouse-dev/gatehouse/server/traces"
	tracesv1alpha1 "github.com/gatehouse-dev/gatehouse/server/traces/v1alpha1"
)

// kubernetesVersion is the release whose kinds this server has.
const kubernetesVersion = "1.37.1"

// issuer names this server in the tokens of service accounts.
const issuer = "https://kubernetes.default.svc.cluster.local"

// maxRequestBody bounds the body of a request, in bytes, as in kube-apiserver.
const maxRequestBody = 3 << 20

// lastWait is how long creators may go on waiting for initializers when the server
// is to end.
const lastWait = 5 * time.Second

// maxWaiting bounds the creates that wait for initializers beside the requests
// that are handled.
const maxWaiting = 10_000

// Server is an API server. It is made by New and used once.
type Server struct {
	settings *settings
	// serving is set once requests are served, before Run's ready function.
	serving atomic.Bool
}

// Address says where a server can be reached, and with what.
type Address struct {
	// URL is https://HOST:PORT.
	URL string
	// Kubeconfig is the file with the admin's credentials.
	Kubeconfig string
	// Admin is a client configuration with the same credentials.
	Admin *restclient.Config
}

// New checks the options and starts nothing. The error is one sentence that
// names the flag.
func New(o Options) (*Server, error) {
	settings, err := newSettings(o)
	if err != nil {
		return nil, err
	}
	return &Server{settings: settings}, nil
}

// Run serves until ctx ends, then finishes the requests under way and returns
// nil. It calls ready, which may be nil, once when the server is ready. An error
// says in one sentence why the server could not start or go on.
func (s *Server) Run(ctx context.Context, ready func(Address)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	o := s.settings
	if err := setCapabilities(&o.Options); err != nil {
		return err
	}
	// Histograms ask for it when they are registered.
	metricsfeatures.ApplyFeatureGates(utilfeature.DefaultFeatureGate)
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	if err := checkFormat(o.DataDir); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(o.BindAddress, strconv.Itoa(o.SecurePort)))
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("port %d on %s is in use by another process; choose another with --secure-port", o.SecurePort, o.BindAddress)
		}
		return fmt.Errorf("listening on %s:%d: %w", o.BindAddress, o.SecurePort, err)
	}
	defer listener.Close()
	store, err := s.openStore(ctx, stop)
	if err != nil {
		return startError(ctx, err)
	}
	defer store.close()
	a, err := s.assemble(ctx, listener, store)
	if err != nil {
		return startError(ctx, err)
	}
	defer a.storage.Close()
	defer a.judge.engine.Close()
	defer a.webhooks.Close()
	if a.initialization != nil {
		defer a.initialization.Close()
	}
	return a.run(ctx, stop, ready)
}

// assembly is a server with all its parts in place, not yet serving.
type assembly struct {
	options   *settings
	server    *Server
	generic   *genericapiserver.GenericAPIServer
	storage   *storage.Factory
	loopback  *restclient.Config
	client    *kubernetes.Clientset
	informers informers.SharedInformerFactory
	hooks     []catalog.Hook
	pki       *auth.PKI
	address   Address
	etcd      clientv3.Watcher
	// port is where the server listens.
	port int
	// stopped is closed when the server is to end.
	stopped   <-chan struct{}
	judge     *judge
	announcer *replicas.Announcer
	custom    *customresources.Server
	// webhooks calls conversion webhooks.
	webhooks       *call.Caller
	initialization *initialization.Decorator
	discovery      *discovery.Handler
	openapi        *openapi.Handler
	// publisher keeps the service kubernetes.
	publisher *kubernetesservice.Publisher
	// boot is what is to be done before the server is healthy.
	boot *boot
	// ring has the traces of the latest requests; nil when none are kept.
	ring *traces.Ring
	// controllers run until the server ends.
	controllers []func(context.Context)
	// missing makes what could not be made at the start.
	missing []func(context.Context) error
}

func (s *Server) assemble(ctx context.Context, listener net.Listener, store *store) (*assembly, error) {
	o, etcdClient := s.settings, store.client
	a := &assembly{options: o, server: s, stopped: ctx.Done(), etcd: etcdClient.Client}
	var err error
	hosts := []string{"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	if ip := net.ParseIP(o.BindAddress); !ip.IsUnspecified() && !slices.Contains(hosts, ip.String()) {
		hosts = append(hosts, ip.String())
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	hosts = append(hosts, o.reachedAt()...)
	var shared *auth.Shared
	if o.sharesEtcd() {
		shared = &auth.Shared{Etcd: etcdClient.KV, Prefix: o.ownKey("pki")}
	}
	if a.pki, err = auth.LoadPKI(ctx, filepath.Join(o.DataDir, "pki"), hosts, shared); err != nil {
		return nil, err
	}

	config := genericapiserver.NewConfig(legacyscheme.Codecs)
	config.EffectiveVersion = newEffectiveVersion()
	config.FeatureGate = utilfeature.DefaultFeatureGate
	config.EnableDiscovery = false
	config.EnableIndex = false
	config.SkipOpenAPIInstallation = true
	// Requests are bounded by package inflight, which lets waiting ones step aside.
	config.MaxRequestsInFlight, config.MaxMutatingRequestsInFlight = 0, 0
	config.BuildHandlerChainFunc = func(next http.Handler, c *genericapiserver.Config) http.Handler {
		limiter := inflight.New(inflight.Options{
			Reads: o.MaxRequestsInFlight, Writes: o.MaxMutatingRequestsInFlight, Yielded: maxWaiting,
			LongRunning: c.LongRunningFunc, Serializer: c.Serializer,
		})
		chain := limiter.Doorway(stack.Handler(genericapiserver.DefaultBuildHandlerChain(withTimeToAnswer(stack.Handler(limiter.Limit(next))), c)))
		return genericfilters.WithPanicRecovery(chain, c.RequestInfoResolver)
	}
	config.MaxRequestBodyBytes = maxRequestBody
	config.ShutdownWatchTerminationGracePeriod = 2 * time.Second
	config.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))
	config.RequestInfoResolver = genericapiserver.NewRequestInfoResolver(config)
	config.AddHealthChecks(healthz.NamedCheck("etcd", etcd.Check(etcdClient.KV)))
	config.AddReadyzChecks(healthz.NamedCheck("started", func(*http.Request) error {
		if !s.serving.Load() {
			return errors.New("the server is starting")
		}
		return nil
	}))
	if err := a.secure(config, listener); err != nil {
		return nil, err
	}
	a.loopback = config.LoopbackClientConfig
	if a.client, err = kubernetes.NewForConfig(a.loopback); err != nil {
		return nil, err
	}
	a.informers = informers.NewSharedInformerFactory(a.client, 0)
	config.ExternalAddress = strings.TrimPrefix(a.address.URL, "https://")

	publicKeys, err := serviceaccount.StaticPublicKeysGetter([]any{a.pki.TokenKey.Public()})
	if err != nil {
		return nil, fmt.Errorf("key of service account tokens: %w", err)
	}
	audiences := authenticator.Audiences{issuer}
	config.Authentication.APIAudiences = audiences
	config.Authentication.Authenticator, err = auth.NewAuthenticator(auth.AuthenticationOptions{
		ClientCA: config.SecureServing.ClientCA, TokenFile: o.TokenAuthFile, LoopbackToken: a.loopback.BearerToken,
		Issuer: issuer, Keys: publicKeys, Audiences: audiences,
		Client: func() kubernetes.Interface { return a.client },
	})
	if err != nil {
		return nil, err
	}
	if config.Authorization.Authorizer, config.RuleResolver, err = auth.NewAuthorizer(o.AuthorizationMode, a.informers); err != nil {
		return nil, err
	}
	if err := o.Audit.ApplyTo(config); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if config.AuditBackend != nil {
		config.AuditBackend = resources.AuditBackend(config.AuditBackend)
	}

	storageFactory, err := storageFactory(o, config.EffectiveVersion, store.endpoints)
	if err != nil {
		return nil, err
	}
	a.announcer = replicas.NewAnnouncer(replicas.Options{
		Etcd: etcdClient.Client, Prefix: o.ownKey("replicas"), ID: replicaID(), Address: a.address.URL, MaxStaleness: o.AdmissionMaxStaleness,
		Off: o.notEnforced,
	})
	if a.judge, err = a.newJudge(etcdClient.KV, config.Authorization.Authorizer); err != nil {
		return nil, err
	}
	var decorator storage.Decorator
	var afterDelete map[schema.GroupResource]func(runtime.Object)
	if a.judge.initializers {
		a.initialization = initialization.New(initialization.Options{
			Timeout: o.InitializerTimeout, RepairAfter: o.InitializerRepairAfter,
			MustAct: a.judge.mustAct, Parallel: a.judge.parallel, Observe: initialization.Count,
			Discarded: func(resource schema.GroupResource, obj runtime.Object) {
				if after, ok := afterDelete[resource]; ok {
					after(obj)
				}
			},
		})
		decorator = a.initialization
	}
	marked := *etcdClient
	marked.Kubernetes = marks.Client(etcdClient.Kubernetes, etcdClient.KV, fresh.Marks(o.EtcdPrefix)...)
	marked.Kubernetes = store.guard(a.fenced(marked.Kubernetes, etcdClient.KV))
	a.storage = storage.NewFactory(storageFactory, &marked, decorator, schema.GroupResource{Resource: "events"}, schema.GroupResource{Group: "events.k8s.io", Resource: "events"})
	config.EquivalentResourceRegistry = runtime.NewEquivalentResourceRegistryWithIdentity(storageFactory.ResourcePrefix)

	tokens, err := serviceaccount.JWTTokenGenerator(issuer, a.pki.TokenKey)
	if err != nil {
		return nil, fmt.Errorf("key of service account tokens: %w", err)
	}
	groups, hooks, err := catalog.Build(catalog.Options{
		Storage: storageFactory, RESTOptions: a.storage, Loopback: a.loopback, Client: a.client, Informers: a.informers,
		Authenticator: config.Authentication.Authenticator, Audiences: audiences,
		Authorizer: config.Authorization.Authorizer, RuleResolver: config.RuleResolver,
		TokenIssuer: tokens, ServiceRange: *o.serviceRange, NodePorts: utilnet.PortRange{Base: 30000, Size: 2768},
		EventTTL: o.EventTTL,
	})
	if err != nil {
		return nil, err
	}
	a.hooks = hooks
	afterDelete = catalog.AfterDelete(groups)

	a.generic, err = config.Complete(a.informers).New("gatehouse", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	if err := a.publish(etcdClient); err != nil {
		return nil, err
	}
	parts := []string{bootNamespaces, bootServiceCIDR, bootPriorityClasses, bootRoles, bootCustomKinds, bootService}
	for _, hook := range hooks {
		parts = append(parts, hook.Name)
	}
	a.boot = newBoot(parts...)
	if err := a.generic.AddBootSequenceHealthChecks(a.boot.checks()...); err != nil {
		return nil, err
	}
	for _, g := range groups {
		for _, v := range g.Versions {
			for _, store := range v.Storage {
				a.generic.RegisterDestroyFunc(store.Destroy)
			}
		}
	}
	return a, a.serve(groups, config, storageFactory, etcdClient.KV)
}

// serve puts the resources and what tells clients of them behind the server's
// filters.
func (a *assembly) serve(groups []catalog.Group, config *genericapiserver.Config, storageFactory *serverstorage.DefaultStorageFactory, etcd clientv3.KV) error {
	o := a.options
	registered, err := registrations.Storage(a.storage, storageFactory.StorageConfig, a.judge.hold)
	if err != nil {
		return err
	}
	for _, version := range o.versionsOff {
		delete(registered, version)
	}
	models := openapi.NewModels(
		openapi.Reflect(&v1alpha1.InitializerConfigurationList{}, &v1alpha1.ExternalAdmissionHookConfigurationList{}, &replicasv1alpha1.RegistrationStateList{},
			&replicasv1alpha1.AdmissionExplanation{}, &tracesv1alpha1.AdmissionTraceList{}),
		legacyscheme.Scheme, registrations.Scheme, customresources.Scheme(), ownScheme)
	states := replicas.NewStates(etcd, o.EtcdPrefix, o.ownKey("replicas"), fresh.RegistrationsMark(o.EtcdPrefix))
	explanations := explain.New(explain.Options{Authorizer: config.Authorization.Authorizer, Engine: a.judge.engine, Chain: a.judge.plugins})
	own := map[string]rest.Storage{replicas.Resource: states, explain.Resource: explanations, traces.Resource: a.records()}
	static, all, err := endpoints(groups, registered, o.notEnforced, own, config, models)
	if err != nil {
		return err
	}
	shown := versions(all)
	apiextensions := discovery.Version{GroupVersion: apiextensionsv1.SchemeGroupVersion}
	custom, err := a.customResources(config, storageFactory, append(slices.Clip(shown), apiextensions))
	if err != nil {
		return err
	}
	definitions, err := custom.DefinitionEndpoints()
	if err != nil {
		return err
	}
	static.Add(definitions)
	apiextensions.Resources = discovery.Resources(definitions)
	shown = insertBefore(shown, "extensions", apiextensions)
	if a.discovery, err = discovery.New(config.ExternalAddress, shown); err != nil {
		return err
	}
	a.openapi = openapi.New(openapi.Options{
		Models: models, Endpoints: append(all, definitions...), Version: "v" + kubernetesVersion, Custom: custom,
	})
	explanations.Serve(static, custom)
	handler := showRevision(a.traced(&resources.Handler{
		Sources:   []resources.Source{static, custom},
		Admission: a.judge.chain, Initializers: a.judge.initializers, Authorizer: config.Authorization.Authorizer,
		NotFound: a.discovery,
	}))
	mux := a.generic.Handler.NonGoRestfulMux
	for _, prefix := range []string{"/api", "/apis"} {
		mux.Handle(prefix, handler)
		mux.HandlePrefix(prefix+"/", handler)
	}
	mux.HandlePrefix("/openapi/", a.openapi)
	mux.Handle("/openapi/v2", a.openapi)
	mux.Handle("/openapi/v3", a.openapi)
	mux.UnlistedHandle(openapi.OldPath, a.openapi)
	builtins := builtinCollections(static, o.EtcdPrefix, storageFactory)
	return a.addControllers(etcd, func() []namespaces.Collection {
		return append(slices.Clip(builtins), customCollections(custom.Versions(), o.EtcdPrefix)...)
	})
}

// customResources sets up the kinds that users define.
func (a *assembly) customResources(config *genericapiserver.Config, storageFactory *serverstorage.DefaultStorageFactory, shown []discovery.Version) (*customresources.Server, error) {
	builtin := map[schema.GroupVersion]bool{}
	for _, v := range shown {
		builtin[v.GroupVersion] = true
	}
	var err error
	if a.webhooks, err = customresources.NewCaller(call.Options{
		Resolver:    a.services(),
		Dial:        a.options.DialWebhook,
		Breaker:     a.options.breaker,
		MaxInFlight: a.options.AdmissionWebhookMaxInFlight,
	}); err != nil {
		return nil, err
	}
	options := customresources.Options{
		Factory: a.storage, Storage: storageFactory.StorageConfig, Client: a.loopback,
		Equivalents: config.EquivalentResourceRegistry, Authorizer: config.Authorization.Authorizer,
		MaxRequestBodyBytes: config.MaxRequestBodyBytes,
		Builtin:             func(gv schema.GroupVersion) bool { return builtin[gv] },
		OnChange:            a.customChanged,
		Webhooks:            a.webhooks,
		// With those that wait for it, a webhook takes half of the places at most.
		MaxConversions: max(1, min(a.options.MaxRequestsInFlight, a.options.MaxMutatingRequestsInFlight)/4),
	}
	if a.options.sharesEtcd() {
		options.EstablishDelay = replicaSettle
	}
	a.custom, err = customresources.New(options)
	return a.custom, err
}

// customChanged tells discovery and OpenAPI what users define now.
func (a *assembly) customChanged() {
	shown := []discovery.Version{}
	documented := []openapi.CustomVersion{}
	for _, v := range a.custom.Versions() {
		shown = append(shown, discovery.Version{GroupVersion: v.GroupVersion, Resources: v.Resources, Aggregated: v.Aggregated})
		documented = append(documented, openapi.CustomVersion{GroupVersion: v.GroupVersion})
	}
	if err := a.discovery.SetCustom(shown); err != nil {
		klog.ErrorS(err, "Discovery of custom resources")
	}
	a.openapi.SetCustom(documented)
}

// versions lists what discovery shows of endpoints, which are in order.
func versions(endpoints []*resources.Endpoint) []discovery.Version {
	var list []discovery.Version
	for i := 0; i < len(endpoints); {
		gv := endpoints[i].Scope.Resource.GroupVersion()
		end := i
		for end < len(endpoints) && endpoints[end].Scope.Resource.GroupVersion() == gv {
			end++
		}
		list = append(list, discovery.Version{GroupVersion: gv, Resources: discovery.Resources(endpoints[i:end])})
		i = end
	}
	return list
}

// insertBefore puts a version before the first of the given group, or at the end.
func insertBefore(versions []discovery.Version, group string, v discovery.Version) []discovery.Version {
	i := slices.IndexFunc(versions, func(v discovery.Version) bool { return v.Group == group })
	if i < 0 {
		i = len(versions)
	}
	return slices.Insert(versions, i, v)
}

// storageFactory says where each resource is stored and in which version, as
// kube-apiserver does.
func storageFactory(o *settings, v compatibility.EffectiveVersion, endpoints []string) (*serverstorage.DefaultStorageFactory, error) {
	etcdOptions := options.NewEtcdOptions(storagebackend.NewDefaultConfig(o.EtcdPrefix, nil))
	etcdOptions.StorageConfig.Transport.ServerList = endpoints
	etcdOptions.StorageConfig.Transport.TrustedCAFile = o.EtcdCAFile
	etcdOptions.StorageConfig.Transport.CertFile = o.EtcdCertFile
	etcdOptions.StorageConfig.Transport.KeyFile = o.EtcdKeyFile
	etcdOptions.DefaultStorageMediaType = "application/vnd.kubernetes.protobuf"
	factory := kubeapiserver.NewStorageFactoryConfigEffectiveVersion(v)
	factory.APIResourceConfig = controlplane.DefaultAPIResourceConfigSource()
	return factory.Complete(etcdOptions).New()
}

// secure sets up TLS and the server's own connection to itself.
func (a *assembly) secure(config *genericapiserver.Config, listener net.Listener) error {
	o := a.options
	certFile, keyFile, ca := a.pki.ServerCertFile, a.pki.ServerKeyFile, a.pki.CA
	if o.TLSCertFile != "" {
		certFile, keyFile = o.TLSCertFile, o.TLSPrivateKeyFile
		var err error
		if ca, err = os.ReadFile(certFile); err != nil {
			return fmt.Errorf("--tls-cert-file: %w", err)
		}
	}
	cert, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving", certFile, keyFile)
	if err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	clientCA, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", a.pki.CAFile)
	if err != nil {
		return fmt.Errorf("client CA: %w", err)
	}
	var clients dynamiccertificates.CAContentProvider = clientCA
	if o.ClientCAFile != "" {
		given, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-file", o.ClientCAFile)
		if err != nil {
			return fmt.Errorf("--client-ca-file: %w", err)
		}
		clients = dynamiccertificates.NewUnionCAContentProvider(clientCA, given)
	}
	loopbackCert, loopbackKey, err := auth.Loopback(genericapiserver.LoopbackClientServerNameOverride)
	if err != nil {
		return fmt.Errorf("loopback certificate: %w", err)
	}
	loopback, err := dynamiccertificates.NewStaticSNICertKeyContent("loopback", loopbackCert, loopbackKey, genericapiserver.LoopbackClientServerNameOverride)
	if err != nil {
		return fmt.Errorf("loopback certificate: %w", err)
	}
	config.SecureServing = &genericapiserver.SecureServingInfo{
		Listener: inflight.Pace(listener), Cert: cert, ClientCA: clients,
		SNICerts:                     []dynamiccertificates.SNICertKeyContentProvider{loopback},
		HTTP2MaxStreamsPerConnection: 1000,
	}
	if config.LoopbackClientConfig, err = config.SecureServing.NewLoopbackClientConfig(auth.NewToken(), loopbackCert); err != nil {
		return fmt.Errorf("loopback client: %w", err)
	}
	config.LoopbackClientConfig.QPS, config.LoopbackClientConfig.Burst = -1, -1
	config.LoopbackClientConfig.ContentType = runtime.ContentTypeProtobuf
	config.LoopbackClientConfig.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON

	host := o.BindAddress
	if net.ParseIP(host).IsUnspecified() {
		host = "127.0.0.1"
	}
	port := listener.Addr().(*net.TCPAddr).Port
	a.port = port
	a.address = Address{URL: "https://" + net.JoinHostPort(host, strconv.Itoa(port)), Kubeconfig: o.KubeconfigOut}
	kubeconfig := a.pki.Kubeconfig(a.address.URL, ca)
	if a.address.Admin, err = clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig(); err != nil {
		return err
	}
	data, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.KubeconfigOut), 0o755); err != nil {
		return fmt.Errorf("--kubeconfig-out: %w", err)
	}
	return auth.WriteFile(o.KubeconfigOut, data, 0o600)
}

// run serves until ctx ends.
func (a *assembly) run(ctx context.Context, stop context.CancelCauseFunc, ready func(Address)) error {
	group, groupCtx := errgroup.WithContext(ctx)
	if a.initialization != nil {
		defer context.AfterFunc(groupCtx, func() { time.AfterFunc(lastWait, a.initialization.Release) })()
	}
	group.Go(func() error {
		stopHangUp, err := a.hangUp(groupCtx)
		if err != nil {
			return err
		}
		defer stopHangUp()
		a.generic.ShutdownTimeout = shutdownTimeout
		return a.generic.PrepareRun().RunWithContext(groupCtx)
	})
	group.Go(func() error {
		if err := a.judgeRequests(groupCtx); groupCtx.Err() == nil {
			return err
		}
		return nil
	})
	for _, run := range a.controllers {
		group.Go(func() error {
			run(groupCtx)
			return nil
		})
	}
	group.Go(func() error { return a.custom.Run(groupCtx) })
	group.Go(func() error {
		if err := a.start(groupCtx); err != nil {
			if groupCtx.Err() != nil {
				return nil
			}
			return err
		}
		a.server.serving.Store(true)
		if ready != nil {
			ready(a.address)
		}
		// Starting took memory that serving does not need.
		debug.FreeOSMemory()
		a.makeUp(groupCtx)
		return nil
	})
	err := group.Wait()
	a.informers.Shutdown()
	if err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// judgeRequests keeps the registrations fresh that requests are judged by. The
// server is announced before it reads any.
func (a *assembly) judgeRequests(ctx context.Context) error {
	for {
		err := a.announcer.Announce(ctx)
		if err == nil {
			break
		}
		klog.ErrorS(err, "No request is judged before that")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
	var running sync.WaitGroup
	running.Go(func() { a.announcer.Run(ctx) })
	running.Go(func() { fresh.Watch(ctx, a.etcd, a.options.EtcdPrefix, a.judge.refresher.Poke) })
	defer running.Wait()
	return a.judge.refresher.Run(ctx)
}

// replicaID names this run of this server.
func replicaID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "gatehouse"
	}
	return strings.ToLower(host + "-" + rand.Text()[:8])
}

// systemNamespaces exist from the start.
var systemNamespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// start brings up what runs beside the request path, once requests are served.
func (a *assembly) start(ctx context.Context) error {
	a.informers.Start(ctx.Done())
	for _, first := range []struct {
		part   string
		create func(context.Context) error
	}{
		{bootNamespaces, a.createNamespaces}, {bootServiceCIDR, a.createServiceCIDR}, {bootPriorityClasses, a.createPriorityClasses},
	} {
		if err := a.furnish(ctx, first.part, first.create); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.furnish(groupCtx, bootRoles, a.createRoles) })
	group.Go(func() error { return a.boot.do(groupCtx, bootCustomKinds, a.custom.Ready) })
	group.Go(func() error { return a.boot.do(groupCtx, bootService, a.publishService) })
	for _, hook := range a.hooks {
		group.Go(func() error {
			return a.boot.do(ctx, hook.Name, func(context.Context) error {
				if err := hook.Run(genericapiserver.PostStartHookContext{LoopbackClientConfig: a.loopback, Context: ctx}); err != nil {
					return fmt.Errorf("starting %s: %w", hook.Name, err)
				}
				return nil
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for kind, synced := range a.informers.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("reading %s: %w", kind, context.Cause(ctx))
		}
	}
	return nil
}

func (a *assembly) createNamespaces(ctx context.Context) error {
	for _, name := range systemNamespaces {
		_, err := a.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			_, err = a.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	return nil
}

// createServiceCIDR makes the range that cluster IPs are taken from. A range
// that is there already stays: addresses of it are in use.
func (a *assembly) createServiceCIDR(ctx context.Context) error {
	const name = "kubernetes"
	cidrs := a.client.NetworkingV1().ServiceCIDRs()
	_, err := cidrs.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = cidrs.Create(ctx, &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{a.options.ServiceClusterIPRange}},
		}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("range of cluster IPs: %w", err)
	}
	return nil
}

// createPriorityClasses makes the two classes that every cluster has.
func (a *assembly) createPriorityClasses(ctx context.Context) error {
	classes := a.client.SchedulingV1().PriorityClasses()
	for _, class := range schedulingv1.SystemPriorityClasses() {
		_, err := classes.Get(ctx, class.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = classes.Create(ctx, class, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("priority class %s: %w", class.Name, err)
		}
	}
	return nil
}
