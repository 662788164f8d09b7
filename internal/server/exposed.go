package server

import (
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/client-go/discovery/cached/memory"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/transport"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/announce"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/aggregation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/builtin"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/places"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/priorities"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/publish"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/registrations"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/stores"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/filters"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/expressioncost"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/fresh"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/revision"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/schemas"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/typechecking"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/explain"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/problems"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas"
	replicasv1alpha1 "github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces"
	tracesv1alpha1 "github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// populated is the phase in which the server has the built-in kinds.
type populated struct {
	*storing
	kinds []stores.Group
	// hooks run once requests are served.
	hooks []stores.Hook
	// afterDelete has the functions to call when an object was deleted other than through the
	// storage of its kind.
	afterDelete map[schema.GroupResource]func(runtime.Object)
	// generic is the generic server of k8s.io/apiserver.
	generic *genericapiserver.GenericAPIServer
}

// ownDefinitions describe the kinds that upstream's definitions lack.
var ownDefinitions = openapi.Reflect(
	[]openapi.Package{
		{Example: v1alpha1.Rule{}, FieldDocs: v1alpha1.FieldDocs},
		{Example: replicasv1alpha1.Replica{}, FieldDocs: replicasv1alpha1.FieldDocs},
		{Example: tracesv1alpha1.AdmissionTrace{}, FieldDocs: tracesv1alpha1.FieldDocs},
		{Example: announce.Announcement{}, FieldDocs: announce.FieldDocs},
		{Example: plan.Plan{}, FieldDocs: plan.FieldDocs},
		{Example: trace.Record{}, FieldDocs: trace.FieldDocs},
	},
	&v1alpha1.InitializerConfigurationList{}, &v1alpha1.ExternalAdmissionHookConfigurationList{}, &replicasv1alpha1.RegistrationStateList{},
	&replicasv1alpha1.AdmissionExplanation{}, &replicasv1alpha1.AdmissionServerList{}, &tracesv1alpha1.AdmissionTraceList{},
)

// exposed is the phase in which the API answers requests.
type exposed struct {
	*populated
	api *api
}

// api has the resources that clients can request, and the discovery and OpenAPI documents that
// show clients these resources.
type api struct {
	// static are the resources that are always there, and endpoints their endpoints in order;
	// custom are the resources that users define.
	static    resources.Static
	endpoints []*resources.Endpoint
	custom    *customresources.Server
	// shown publishes the kinds to clients.
	shown *publish.Kinds
	// explanations explain requests.
	explanations *explain.Explanations
	// types writes status.typeChecking of policies (D61).
	types *typechecking.Controller
	// aggregator passes requests on to other servers.
	aggregator *aggregation.Aggregator
	// resources handles requests for resources and for discovery, and own only such requests
	// that are for this server. own is handler behind filters.
	resources, own http.Handler
	handler        *resources.Handler
}

// ownScheme has the kinds of gatehouse.dev, which come from several packages. It is read only.
var ownScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(replicasv1alpha1.AddToScheme(s))
	utilruntime.Must(tracesv1alpha1.AddToScheme(s))
	metav1.AddToGroupVersion(s, metav1.Unversioned)
	return s
}()

// newPopulated makes the built-in kinds.
func newPopulated(st *storing) (*populated, error) {
	s, self, config := st.settings, st.loopback, st.config
	p := &populated{storing: st}
	var err error
	if p.kinds, p.hooks, err = stores.Build(stores.Options{
		Storage: st.places, RESTOptions: st.stores.factory, Loopback: self.config, Client: self.client, Informers: self.informers,
		Authenticator: config.Authentication.Authenticator, Audiences: config.Authentication.APIAudiences,
		Authorizer: config.Authorization.Authorizer, RuleResolver: config.RuleResolver,
		TokenIssuer: st.serving.tokens.Generator, MaxTokenExpiration: st.serving.tokens.MaxExpiration, MaxExtendedExpiration: st.serving.tokens.MaxExtended,
		ProxyTransport: proxyTransport(s), ServiceAddress: s.addresses.Of, ServiceRange: *s.serviceRange, NodePorts: s.NodePorts,
		EventTTL: s.EventTTL, Served: s.versions.Builtin, LaterVersions: s.EmulationForwardCompatible, LaterAsked: s.RuntimeConfigEmulationForwardCompatible,
		Legacy: s.versions.Legacy,
	}); err != nil {
		return nil, err
	}
	p.afterDelete = stores.AfterDelete(p.kinds)
	if p.generic, err = config.Complete(self.informers).New("gatehouse", genericapiserver.NewEmptyDelegate()); err != nil {
		return nil, err
	}
	st.serving.tokens.Describe(s.ServiceAccountJWKSURI, config.ExternalAddress, p.generic)
	for v := range stores.Versions(p.kinds) {
		for _, store := range v.Storage {
			p.generic.RegisterDestroyFunc(store.Destroy)
		}
	}
	return p, nil
}

// proxyTransport reaches pods and services by their addresses. It does not verify their
// certificates, because no known CA has signed them.
func proxyTransport(s *settings) *http.Transport {
	return utilnet.SetTransportDefaults(&http.Transport{DialContext: s.DialWebhook, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})
}

// later configures how fields that the emulated release does not have are handled. It returns nil if
// they are handled like all other fields.
func (s *settings) later() *resources.Later {
	release := emulation.Effective().EmulationVersion().String()
	fields := emulation.FieldsOf(release)
	if fields == nil || s.LaterFields == laterKeep {
		return nil
	}
	return &resources.Later{Fields: fields, Release: release, Reject: s.likeTheRelease()}
}

// likeTheRelease reports whether responses must have no text that a server of the emulated release does
// not send.
func (s *settings) likeTheRelease() bool {
	return s.LaterFields == laterReject && emulation.FieldsOf(emulation.Effective().EmulationVersion().String()) != nil
}

// newExposed makes the resources, and the discovery and OpenAPI documents that describe them.
func newExposed(p *populated) (*exposed, error) {
	s, authorizer, etcd := p.settings, p.config.Authorization.Authorizer, p.db.client.Client
	models := openapi.NewModels(ownDefinitions, legacyscheme.Scheme, registrations.Scheme, apiextensionsapiserver.Scheme, ownScheme, aggregatorscheme.Scheme)
	described := schemas.NewDescribed(p.loopback.client.Discovery(), models)
	wrong := &problems.Reporter{
		Engine: p.admitter.engine, Current: p.admitter.refresher.Current, Namespaces: p.admitter.namespaces,
		Costs: expressioncost.New(described, p.loopback.mapper),
	}
	warn := wrong.Warn
	if s.likeTheRelease() {
		warn = func(string) registrations.Warn { return nil }
	}
	registrationStorage, err := registrations.Storage(p.stores.factory, p.places.StorageConfig, p.admitter.inForce.Hold, warn)
	if err != nil {
		return nil, err
	}
	for _, version := range s.versions.Off {
		delete(registrationStorage, version)
	}
	for v := range stores.Versions(p.kinds, registrations.Group) {
		registrations.HoldPolicies(v.Storage, stores.RegistryOf, p.admitter.inForce.Hold, warn)
	}
	// Without a ring no traces are kept.
	var ring *traces.Ring
	if s.AdmissionTraceBytes >= 0 {
		ring = traces.NewRing(s.AdmissionTraceBytes)
	}
	servers := replicas.NewAdmissionServers(etcd, s.ownKey("replicas"))
	var peers *traces.Peers
	if s.sharesEtcd() {
		peers = &traces.Peers{Transport: toPeers{p.serving}, Addresses: func(ctx context.Context) ([]string, error) {
			return servers.Addresses(ctx, p.serving.announced(s))
		}}
	}
	a := &api{types: typechecking.New(typechecking.Options{
		Schemas: described, Kinds: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(p.loopback.client.Discovery())),
		Builtin: legacyscheme.Scheme.IsGroupRegistered,
	})}
	a.explanations = explain.New(explain.Options{
		Authorizer: authorizer, Engine: p.admitter.engine, Chain: p.admitter.plugins, Locate: p.admitter.manifests.Locate,
		Trying: explain.Trying{Read: manifests.Read, TypeErrors: a.types.TypeErrors, Costs: wrong.CostsOfEntry},
	})
	own := &resources.Group{
		GroupVersion: replicasv1alpha1.SchemeGroupVersion, Hub: replicasv1alpha1.SchemeGroupVersion,
		Scheme: ownScheme, Codec: initialization.NewCodec(initialization.Codecs(ownScheme)), ParameterCodec: runtime.NewParameterCodec(ownScheme),
		Storage: map[string]rest.Storage{
			replicas.Resource: replicas.NewStates(etcd, s.EtcdPrefix, s.ownKey("replicas"), fresh.RegistrationsMark(s.EtcdPrefix), replicas.About{Problems: wrong.Of, Costs: wrong.CostsOf}),
			replicas.Servers:  servers,
			explain.Resource:  a.explanations,
			traces.Resource:   traces.NewStorage(ring, peers, trace.RecordOptions{RedactPatches: s.AdmissionTraceRedact}),
		},
	}
	if a.static, a.endpoints, err = builtin.Endpoints(builtin.Options{
		Kinds: p.kinds, LegacyVersions: s.versions.Legacy, Registrations: registrationStorage, NotEnforced: s.notEnforced,
		Others: []*resources.Group{own, apiServices(p)}, Models: models, Equivalents: p.config.EquivalentResourceRegistry,
		Authorizer: authorizer, MaxRequestBodyBytes: p.config.MaxRequestBodyBytes,
		Later: s.later(),
	}); err != nil {
		return nil, err
	}
	versions := discovery.VersionsOf(a.endpoints)
	definitions := discovery.Version{GroupVersion: apiextensionsv1.SchemeGroupVersion}
	if a.custom, err = newCustom(p, append(slices.Clip(versions), definitions), a.types.SchemaChanged); err != nil {
		return nil, err
	}
	endpoints, err := a.custom.DefinitionEndpoints()
	if err != nil {
		return nil, err
	}
	for _, e := range endpoints {
		e.Later = s.later()
	}
	a.static.Add(endpoints)
	a.endpoints = append(a.endpoints, endpoints...)
	definitions.Resources = discovery.Resources(endpoints)
	versions = publish.Prioritized(append(versions, definitions))
	a.shown = &publish.Kinds{Mapper: p.loopback.mapper, Changed: func() { p.links.kindsChanged() }}
	if a.shown.Discovery, err = discovery.New(p.config.ExternalAddress, versions); err != nil {
		return nil, err
	}
	published := models
	if s.likeTheRelease() {
		published = models.Released()
	}
	a.shown.OpenAPI = openapi.New(openapi.Options{Models: published, Endpoints: a.endpoints, Version: "v" + emulation.Release, Custom: a.custom})
	if a.aggregator, err = newAggregator(p, versions, a.shown); err != nil {
		return nil, err
	}
	a.handler = &resources.Handler{
		// A request for a resource goes to the first source that has it.
		Sources:   []resources.Source{a.static, a.custom},
		Await:     a.awaitResource,
		Admission: p.admitter.chain, Initializers: s.runs(admission.InitializersName), Authorizer: authorizer,
		MinWatch: s.MinRequestTimeout,
		Counting: controllers.Counts, NotFound: http.HandlerFunc(a.discover),
	}
	a.own = filters.Through(a.handler, revision.Handler, ring.Handler)
	a.resources = a.aggregator.Handler(a.own)
	a.install(p.generic, s.versions.OldClients)
	if s.member != nil {
		p.generic.Handler.NonGoRestfulMux.HandleFunc(MemberPath, p.memberStatus)
	}
	if s.LatestLog != nil && s.Features.EnableProfiling {
		p.generic.Handler.NonGoRestfulMux.UnlistedHandle(LogPath, latestLog(s.LatestLog))
	}
	return &exposed{p, a}, nil
}

// LogPath is where a server shows the latest records of its log.
const LogPath = "/debug/log"

// latestLog shows the latest records of the log.
func latestLog(latest func() []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the log can only be read: use GET", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(latest())
	})
}

// discover answers requests for discovery. The response has the kinds of CRDs that were created a
// moment ago. A client that has created a CRD looks for its kind next, and if the kind is missing,
// the client looks again only after a pause.
func (a *api) discover(w http.ResponseWriter, req *http.Request) {
	path, others := strings.CutPrefix(req.URL.Path, "/apis")
	group, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if arriving := a.custom.Arriving(group); others && len(arriving) > 0 {
		inflight.Aside(req.Context(), func() { customresources.Await(req.Context(), arriving) })
	}
	a.shown.Discovery.ServeHTTP(w, req)
}

// awaitResource waits for a resource whose CRD was created a moment ago, because a client that has
// created a CRD creates objects next.
func (a *api) awaitResource(ctx context.Context, resource schema.GroupResource) bool {
	arriving := a.custom.ArrivingResource(resource)
	return len(arriving) > 0 && inflight.Aside(ctx, func() { customresources.Await(ctx, arriving) })
}

// install adds the API to the generic server of k8s.io/apiserver, which has health checks, metrics
// and the version already.
func (a *api) install(generic *genericapiserver.GenericAPIServer, oldClients bool) {
	m := generic.Handler.NonGoRestfulMux
	for _, prefix := range []string{"/api", "/apis"} {
		m.Handle(prefix, a.resources)
	}
	m.UnlistedHandlePrefix("/api/", a.resources)
	m.HandlePrefix("/apis/", a.resources)
	m.UnlistedHandlePrefix("/openapi/", a.shown.OpenAPI)
	m.HandlePrefix("/openapi/v3/", a.shown.OpenAPI)
	m.Handle("/openapi/v2", a.shown.OpenAPI)
	m.Handle("/openapi/v3", a.shown.OpenAPI)
	if oldClients {
		m.UnlistedHandle(openapi.OldPath, a.shown.OpenAPI)
	}
	// The index lists the registered paths, and the paths of the current groups and versions.
	routes.Index{}.Install(routes.ListedPathProviders{generic, publish.Index{Handler: a.shown.Discovery}}, m)
}

// newCustom sets up the kinds that users define, outside of the versions of built-in kinds.
func newCustom(p *populated, builtin []discovery.Version, schemaChanged func(group string)) (*customresources.Server, error) {
	taken := map[schema.GroupVersion]bool{}
	for _, v := range builtin {
		taken[v.GroupVersion] = true
	}
	client := restclient.CopyConfig(p.loopback.config)
	client.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return places.Definitions(p.settings.EtcdPrefix, p.db.client.Client, p.db.values, next)
	})
	options := customresources.Options{
		Factory: p.stores.factory, Storage: p.places.StorageConfig, Client: client, LikeTheRelease: p.settings.likeTheRelease(),
		Equivalents: p.config.EquivalentResourceRegistry, Authorizer: p.config.Authorization.Authorizer,
		MaxRequestBodyBytes: p.config.MaxRequestBodyBytes,
		Builtin:             func(gv schema.GroupVersion) bool { return taken[gv] },
		OnChange:            func() { p.links.customChanged() },
		Gone:                p.admitter.gone,
		OnSchema:            schemaChanged,
		Webhooks:            p.stores.conversions,
		MayConvert:          p.settings.MayConvert,
		// Running and waiting conversions together take at most half of the places for requests.
		MaxConversions: max(1, min(p.settings.MaxRequestsInFlight, p.settings.MaxMutatingRequestsInFlight)/4),
	}
	if p.settings.sharesEtcd() {
		options.EstablishDelay = p.admitter.settle
	}
	return customresources.New(options)
}

// apiServices returns the group of the kind APIService, which registers aggregated servers (S22.1).
func apiServices(p *populated) *resources.Group {
	return &resources.Group{
		GroupVersion: aggregation.GroupVersion, Storage: aggregation.Storage(p.stores.factory, p.places.StorageConfig),
		Scheme: aggregatorscheme.Scheme, Codec: initialization.NewCodec(aggregatorscheme.Codecs),
		ParameterCodec: runtime.NewParameterCodec(aggregatorscheme.Scheme),
	}
}

// newAggregator makes the aggregator, which passes requests on to other servers.
func newAggregator(p *populated, builtin []discovery.Version, show *publish.Kinds) (*aggregation.Aggregator, error) {
	s := p.settings
	o := aggregation.Options{
		Loopback: p.loopback.config, Informers: p.loopback.informers,
		Resolver: p.loopback.services(s), Placed: s.addresses.Has,
		Self:              p.serving.self(),
		ClientCertificate: p.serving.toAggregated.CurrentCertKeyContent,
		MaxInFlight:       s.MaxRequestsInFlight, LongRunning: p.config.LongRunningFunc,
		Priority: priorities.Of,
		Show:     show.SetRemote, Document: show.OpenAPI.SetRemote, Gone: p.admitter.gone,
	}
	if s.DialWebhook != nil {
		o.Dial = &transport.DialHolder{Dial: s.DialWebhook}
	}
	for _, v := range builtin {
		o.Builtin = append(o.Builtin, v.GroupVersion)
	}
	aggregator, err := aggregation.New(o)
	if err != nil {
		return nil, err
	}
	p.serving.toAggregated.AddListener(certificateListener{aggregator})
	return aggregator, nil
}

// certificateListener gives an aggregator each new certificate.
type certificateListener struct{ aggregator *aggregation.Aggregator }

// Enqueue implements dynamiccertificates.Listener.
func (l certificateListener) Enqueue() { l.aggregator.ClientCertificateChanged() }

// customChanged gives the aggregator, discovery and OpenAPI the kinds that users define now.
func (a *api) customChanged() {
	versions := a.custom.Versions()
	var served []schema.GroupVersion
	for _, v := range versions {
		served = append(served, v.GroupVersion)
	}
	a.aggregator.SetCustom(served)
	a.shown.SetCustom(versions)
}
