package server

import (
	"crypto/tls"
	"net/http"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/aggregation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/builtin"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/registrations"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/expressioncost"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/fresh"
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

// api is what clients can ask for: resources, and what tells which there are.
type api struct {
	// static are the resources that are always there, custom those that users define.
	static resources.Static
	custom *customresources.Server
	// conversions calls conversion webhooks.
	conversions *call.Caller
	discovery   *discovery.Handler
	mapper      meta.ResettableRESTMapper
	openapi     *openapi.Handler
	// types writes status.typeChecking of policies (D61).
	types *typechecking.Controller
	// aggregator passes requests on to other servers.
	aggregator *aggregation.Aggregator
	// resources handles requests for resources and for discovery, own those of them that are
	// for this server.
	resources, own http.Handler
	// kindsChanged is called when discovery shows other kinds.
	kindsChanged func()
	// legacy says that clients of 2017 find what they need.
	legacy bool
}

// ownScheme knows the kinds of gatehouse.dev, which come from several packages. It is read
// only.
var ownScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(replicasv1alpha1.AddToScheme(s))
	utilruntime.Must(tracesv1alpha1.AddToScheme(s))
	metav1.AddToGroupVersion(s, metav1.Unversioned)
	return s
}()

// apiParts are what the API is made of.
type apiParts struct {
	settings *settings
	serving  *serving
	self     *loopback
	// config is complete.
	config   *genericapiserver.Config
	admitter *admitter
	stores   *stores
	kinds    []catalog.Group
	etcd     *clientv3.Client
}

// newKinds makes the built-in kinds, and what is to run once requests are served.
func newKinds(s *settings, v *serving, self *loopback, config *genericapiserver.Config, st *stores) ([]catalog.Group, []catalog.Hook, error) {
	kinds, hooks, err := catalog.Build(catalog.Options{
		Storage: st.places, RESTOptions: st.factory, Loopback: self.config, Client: self.client, Informers: self.informers,
		Authenticator: config.Authentication.Authenticator, Audiences: config.Authentication.APIAudiences,
		Authorizer: config.Authorization.Authorizer, RuleResolver: config.RuleResolver,
		TokenIssuer: v.tokens.Generator, MaxTokenExpiration: v.tokens.MaxExpiration,
		ProxyTransport: proxyTransport(s), ServiceAddress: s.addresses.Of, ServiceRange: *s.serviceRange, NodePorts: s.NodePorts,
		EventTTL: s.EventTTL, Served: s.versions.Builtin, Version: config.EffectiveVersion.EmulationVersion(), Legacy: s.versions.Legacy,
	})
	if err != nil {
		return nil, nil, err
	}
	st.afterDelete = catalog.AfterDelete(kinds)
	return kinds, hooks, nil
}

// proxyTransport reaches pods and services, whose certificates no authority has signed: they are
// dialed by address.
func proxyTransport(s *settings) *http.Transport {
	return utilnet.SetTransportDefaults(&http.Transport{DialContext: s.DialWebhook, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})
}

// newAPI makes the resources, and what describes them.
func newAPI(p apiParts) (*api, error) {
	s, authorizer := p.settings, p.config.Authorization.Authorizer
	models := openapi.NewModels(
		openapi.Reflect(&v1alpha1.InitializerConfigurationList{}, &v1alpha1.ExternalAdmissionHookConfigurationList{}, &replicasv1alpha1.RegistrationStateList{},
			&replicasv1alpha1.AdmissionExplanation{}, &replicasv1alpha1.AdmissionServerList{}, &tracesv1alpha1.AdmissionTraceList{}),
		legacyscheme.Scheme, registrations.Scheme, customresources.Scheme(), ownScheme, aggregation.Scheme)
	described := schemas.NewDescribed(p.self.client.Discovery(), models)
	wrong := &problems.Reporter{
		Engine: p.admitter.engine, Current: p.admitter.refresher.Current, Namespaces: p.admitter.namespaces,
		Costs: expressioncost.New(described, p.self.mapper),
	}
	registrationStorage, err := registrations.Storage(p.stores.factory, p.stores.places.StorageConfig, p.admitter.inForce.Hold, wrong.Warn)
	if err != nil {
		return nil, err
	}
	for _, version := range s.versions.Off {
		delete(registrationStorage, version)
	}
	registrations.HoldPolicies(p.kinds, p.admitter.inForce.Hold, wrong.Warn)
	// Without a ring no traces are kept.
	var ring *traces.Ring
	if s.AdmissionTraceBytes >= 0 {
		ring = traces.NewRing(s.AdmissionTraceBytes)
	}
	explanations := explain.New(explain.Options{Authorizer: authorizer, Engine: p.admitter.engine, Chain: p.admitter.plugins, Locate: p.admitter.manifests.Locate})
	own := &resources.Group{
		GroupVersion: replicasv1alpha1.SchemeGroupVersion, Hub: replicasv1alpha1.SchemeGroupVersion,
		Scheme: ownScheme, Codec: initialization.NewCodec(initialization.Codecs(ownScheme)), ParameterCodec: runtime.NewParameterCodec(ownScheme),
		Storage: map[string]rest.Storage{
			replicas.Resource: replicas.NewStates(p.etcd, s.EtcdPrefix, s.ownKey("replicas"), fresh.RegistrationsMark(s.EtcdPrefix)).WithProblems(wrong.Of).WithCosts(wrong.CostsOf),
			replicas.Servers:  replicas.NewAdmissionServers(p.etcd, s.ownKey("replicas")),
			explain.Resource:  explanations,
			traces.Resource:   traces.NewStorage(ring, trace.RecordOptions{RedactPatches: s.AdmissionTraceRedact}),
		},
	}
	a := &api{mapper: p.self.mapper, legacy: s.versions.OldClients}
	var builtinEndpoints []*resources.Endpoint
	if a.static, builtinEndpoints, err = builtin.Endpoints(builtin.Options{
		Kinds: p.kinds, LegacyVersions: s.versions.Legacy, Registrations: registrationStorage, NotEnforced: s.notEnforced,
		Others: []*resources.Group{own, apiServices(p)}, Models: models, Equivalents: p.config.EquivalentResourceRegistry,
		Authorizer: authorizer, MaxRequestBodyBytes: p.config.MaxRequestBodyBytes,
	}); err != nil {
		return nil, err
	}
	shown := versions(builtinEndpoints)
	definitions := discovery.Version{GroupVersion: apiextensionsv1.SchemeGroupVersion}
	a.types = typechecking.New(typechecking.Options{
		Schemas: described, Kinds: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(p.self.client.Discovery())),
		Builtin: legacyscheme.Scheme.IsGroupRegistered,
	})
	if err := a.addCustom(p, append(slices.Clip(shown), definitions)); err != nil {
		return nil, err
	}
	endpoints, err := a.custom.DefinitionEndpoints()
	if err != nil {
		return nil, err
	}
	a.static.Add(endpoints)
	definitions.Resources = discovery.Resources(endpoints)
	shown = prioritized(append(shown, definitions))
	if a.discovery, err = discovery.New(p.config.ExternalAddress, shown); err != nil {
		return nil, err
	}
	if err := a.newAggregator(p, shown); err != nil {
		return nil, err
	}
	a.openapi = openapi.New(openapi.Options{
		Models: models, Endpoints: append(builtinEndpoints, endpoints...), Version: "v" + KubernetesVersion, Custom: a.custom,
	})
	explanations.Serve(a.aggregator.Server, a.static, a.custom)
	p.admitter.params.Serve(a.static, a.custom, a.custom, p.stores.place)
	p.admitter.schemas.Serve(append(builtinEndpoints, endpoints...), a.custom)
	// A request for a resource goes to the first source that has it.
	sources := []resources.Source{a.static, a.custom}
	a.own = through(&resources.Handler{
		Sources:   sources,
		Admission: p.admitter.chain, Initializers: s.runs(admission.InitializersName), Authorizer: authorizer,
		Counting: controllers.Counts, NotFound: http.HandlerFunc(a.discover),
	}, revision.Handler, ring.Handler)
	a.resources = a.aggregator.Handler(a.own)
	return a, nil
}

// discover answers requests for discovery. What was defined a moment ago is in the answer: a
// client that creates a definition looks for it there next, and would look again only after a
// pause.
func (a *api) discover(w http.ResponseWriter, req *http.Request) {
	path, others := strings.CutPrefix(req.URL.Path, "/apis")
	group, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if ctx := req.Context(); others && a.custom.Arriving(group) {
		inflight.Aside(ctx, func() { a.custom.AwaitArrivals(ctx, group) })
	}
	a.discovery.ServeHTTP(w, req)
}

// follow lets somebody know when discovery shows other kinds. It is called before
// anything runs.
func (a *api) follow(changed func()) { a.kindsChanged = changed }

// install adds the API to what the server has besides: health checks, metrics, version.
func (a *api) install(generic *genericapiserver.GenericAPIServer) {
	m := generic.Handler.NonGoRestfulMux
	for _, prefix := range []string{"/api", "/apis"} {
		m.Handle(prefix, a.resources)
	}
	m.UnlistedHandlePrefix("/api/", a.resources)
	m.HandlePrefix("/apis/", a.resources)
	m.UnlistedHandlePrefix("/openapi/", a.openapi)
	m.HandlePrefix("/openapi/v3/", a.openapi)
	m.Handle("/openapi/v2", a.openapi)
	m.Handle("/openapi/v3", a.openapi)
	if a.legacy {
		m.UnlistedHandle(openapi.OldPath, a.openapi)
	}
	// The index has all paths that are listed, and those of the groups and versions of now.
	routes.Index{}.Install(routes.ListedPathProviders{generic, index{a.discovery}}, m)
}

// index lists the paths of discovery.
type index struct{ *discovery.Handler }

// ListedPaths implements routes.ListedPathProvider.
func (i index) ListedPaths() []string { return i.Paths() }

// addCustom sets up the kinds that users define, outside of the versions of built-in
// kinds.
func (a *api) addCustom(p apiParts, builtin []discovery.Version) error {
	taken := map[schema.GroupVersion]bool{}
	for _, v := range builtin {
		taken[v.GroupVersion] = true
	}
	var err error
	if a.conversions, err = customresources.NewCaller(call.Options{
		Resolver:    p.self.services(p.settings),
		Dial:        p.settings.DialWebhook,
		Breaker:     p.settings.breaker,
		MaxInFlight: p.settings.AdmissionWebhookMaxInFlight,
	}); err != nil {
		return err
	}
	options := customresources.Options{
		Factory: p.stores.factory, Storage: p.stores.places.StorageConfig, Client: p.self.config,
		Equivalents: p.config.EquivalentResourceRegistry, Authorizer: p.config.Authorization.Authorizer,
		MaxRequestBodyBytes: p.config.MaxRequestBodyBytes,
		Builtin:             func(gv schema.GroupVersion) bool { return taken[gv] },
		OnChange:            a.customChanged,
		OnSchema:            a.types.SchemaChanged,
		Webhooks:            a.conversions,
		// With those that wait for it, a webhook takes half of the places at most.
		MaxConversions: max(1, min(p.settings.MaxRequestsInFlight, p.settings.MaxMutatingRequestsInFlight)/4),
	}
	if p.settings.sharesEtcd() {
		options.EstablishDelay = p.admitter.settle
	}
	a.custom, err = customresources.New(options)
	return err
}

// customChanged tells discovery, OpenAPI and plugins what users define now.
func (a *api) customChanged() {
	shown := []discovery.Version{}
	documented := []openapi.CustomVersion{}
	var versions []schema.GroupVersion
	for _, v := range a.custom.Versions() {
		versions = append(versions, v.GroupVersion)
		shown = append(shown, discovery.Version{GroupVersion: v.GroupVersion, Resources: v.Resources, Aggregated: v.Aggregated})
		documented = append(documented, openapi.CustomVersion{GroupVersion: v.GroupVersion, Tag: v.Tag})
	}
	a.aggregator.SetCustom(versions)
	if err := a.discovery.SetCustom(prioritized(shown)); err != nil {
		klog.ErrorS(err, "Could not update the discovery of custom resources")
	}
	a.openapi.SetCustom(documented)
	a.mapper.Reset()
	a.kindsChanged()
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
