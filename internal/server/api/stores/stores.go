package stores

import (
	"fmt"
	"iter"
	"net"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	"k8s.io/kubernetes/pkg/printers"
	"k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
	admissionregistrationrest "k8s.io/kubernetes/pkg/registry/admissionregistration/rest"
	apiserverinternalrest "k8s.io/kubernetes/pkg/registry/apiserverinternal/rest"
	appsrest "k8s.io/kubernetes/pkg/registry/apps/rest"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorizationrest "k8s.io/kubernetes/pkg/registry/authorization/rest"
	autoscalingrest "k8s.io/kubernetes/pkg/registry/autoscaling/rest"
	batchrest "k8s.io/kubernetes/pkg/registry/batch/rest"
	certificatesrest "k8s.io/kubernetes/pkg/registry/certificates/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	corerest "k8s.io/kubernetes/pkg/registry/core/rest"
	discoveryrest "k8s.io/kubernetes/pkg/registry/discovery/rest"
	eventsrest "k8s.io/kubernetes/pkg/registry/events/rest"
	flowcontrolrest "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
	lifecyclerest "k8s.io/kubernetes/pkg/registry/lifecycle/rest"
	networkingrest "k8s.io/kubernetes/pkg/registry/networking/rest"
	noderest "k8s.io/kubernetes/pkg/registry/node/rest"
	policyrest "k8s.io/kubernetes/pkg/registry/policy/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	resourcerest "k8s.io/kubernetes/pkg/registry/resource/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	storagerest "k8s.io/kubernetes/pkg/registry/storage/rest"
	svmrest "k8s.io/kubernetes/pkg/registry/storagemigration/rest"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// Options are the settings and the parts of the server that the kinds need.
type Options struct {
	// Storage has the location of each resource in etcd; RESTOptions opens it.
	Storage     serverstorage.StorageFactory
	RESTOptions generic.RESTOptionsGetter
	// Loopback and Client reach the server itself, as a superuser.
	Loopback *restclient.Config
	Client   *kubernetes.Clientset
	// Informers are started by the server.
	Informers informers.SharedInformerFactory

	Authenticator authenticator.Request
	Audiences     authenticator.Audiences
	Authorizer    authorizer.Authorizer
	RuleResolver  authorizer.RuleResolver

	// TokenIssuer signs the tokens of service accounts, for MaxTokenExpiration at most; 0 means no
	// limit. Tokens that pods request for an hour are valid for MaxExtendedExpiration; 0 means an
	// hour.
	TokenIssuer                               serviceaccount.TokenGenerator
	MaxTokenExpiration, MaxExtendedExpiration time.Duration
	// ServiceRange is the range of cluster IPs; NodePorts the range of node ports.
	ServiceRange net.IPNet
	NodePorts    utilnet.PortRange
	// EventTTL is how long events are kept.
	EventTTL time.Duration

	// ProxyTransport reaches pods and services for clients of their subresource proxy;
	// ServiceAddress returns the addresses of services that run outside of the cluster, nil for
	// none.
	ProxyTransport http.RoundTripper
	ServiceAddress ServiceAddress

	// Served selects the served versions and resources of upstream's kinds; nil means Default.
	// Versions and resources that the emulated release does not have are not served. Exceptions are
	// later versions of served resources with LaterVersions, and versions that Served enables
	// explicitly with LaterAsked (S26.3).
	Served                    *serverstorage.ResourceConfig
	LaterVersions, LaterAsked bool
	// Legacy adds versions of catalog.Legacy.
	Legacy []schema.GroupVersion
}

// Group is one built-in API group.
type Group struct {
	Name string
	// Versions are the served versions, preferred first.
	Versions []Version
}

// Version is one served version of a group.
type Version struct {
	schema.GroupVersion
	// Storage maps paths such as "pods/status" to their storage.
	Storage map[string]rest.Storage
	// Unadvertised versions have no short names and no categories, so that
	// "deploy" means one resource and "all" lists each object once.
	Unadvertised bool
}

// Versions yields the versions of the named groups; without names, of all groups.
func Versions(groups []Group, names ...string) iter.Seq[Version] {
	return func(yield func(Version) bool) {
		for _, g := range groups {
			if len(names) > 0 && !slices.Contains(names, g.Name) {
				continue
			}
			for _, v := range g.Versions {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// Find returns the storage of a resource among groups; nil if there is none.
func Find(groups []Group, resource schema.GroupVersionResource) rest.Storage {
	for v := range Versions(groups) {
		if v.GroupVersion == resource.GroupVersion() {
			return v.Storage[resource.Resource]
		}
	}
	return nil
}

// Hook is a function of a group that runs once the server serves requests.
type Hook struct {
	Name string
	Run  genericapiserver.PostStartHookFunc
}

// repairInterval is how often the server checks for leaked cluster IPs and node ports.
const repairInterval = 3 * time.Minute

// Default is the configuration of upstream without flags. It names all versions that upstream has,
// whether they are served or not.
func Default() *serverstorage.ResourceConfig { return controlplane.DefaultAPIResourceConfigSource() }

// Build returns the built-in groups, in the order that discovery shows them, and the hooks that
// run after the start.
func Build(o Options) ([]Group, []Hook, error) {
	check := &firstCheck{known: func(name string) bool {
		_, err := o.Informers.Networking().V1().IPAddresses().Lister().Get(name)
		return err == nil
	}}
	providers, err := o.providers(check)
	if err != nil {
		return nil, nil, err
	}
	enabled := o.Served
	if enabled == nil {
		enabled = Default()
	}
	available, err := genericapiserver.NewResourceExpirationEvaluatorFromOptions(genericapiserver.ResourceExpirationEvaluatorOptions{
		CurrentVersion: emulation.Effective().EmulationVersion(), EmulationForwardCompatible: o.LaterVersions, RuntimeConfigEmulationForwardCompatible: o.LaterAsked,
	})
	if err != nil {
		return nil, nil, err
	}
	var groups []Group
	var hooks []Hook
	for _, p := range providers {
		info, err := p.NewRESTStorage(enabled, o.RESTOptions)
		if err != nil {
			return nil, nil, fmt.Errorf("kinds of group %q: %w", p.GroupName(), err)
		}
		if err := available.RemoveUnavailableKinds(p.GroupName(), catalog.Scheme, info.VersionedResourcesStorageMap, enabled); err != nil {
			return nil, nil, fmt.Errorf("kinds of group %q: %w", p.GroupName(), err)
		}
		group := Group{Name: p.GroupName()}
		for _, gv := range info.PrioritizedVersions {
			if storage := info.VersionedResourcesStorageMap[gv.Version]; len(storage) > 0 {
				group.Versions = append(group.Versions, Version{GroupVersion: gv, Storage: storage})
			}
		}
		if len(group.Versions) == 0 {
			continue
		}
		groups = append(groups, group)
		if h, ok := p.(genericapiserver.PostStartHookProvider); ok && !slices.Contains(unhooked, group.Name) {
			name, run, err := h.PostStartHook()
			if err != nil {
				return nil, nil, fmt.Errorf("kinds of group %q: %w", group.Name, err)
			}
			if group.Name == "" {
				run = check.hook(run)
			}
			hooks = append(hooks, Hook{Name: name, Run: run})
		}
	}
	removeOwn(groups)
	shareTables(groups)
	if groups, err = addLegacy(groups, o.RESTOptions, o.Legacy); err != nil {
		return nil, nil, err
	}
	answerForNodes(groups, o.Authorizer)
	proxyToAddresses(groups, o.ServiceAddress, o.ProxyTransport)
	letInitializersChange(groups)
	if err := refinePolicies(groups, o.Client.Discovery()); err != nil {
		return nil, nil, fmt.Errorf("admission policies: %w", err)
	}
	return groups, hooks, nil
}

// own are kinds that package registrations serves in upstream's place.
var own = []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}

func removeOwn(groups []Group) {
	for v := range Versions(groups, admissionregistration.GroupName) {
		for _, resource := range own {
			if s, ok := v.Storage[resource]; ok {
				s.Destroy()
				delete(v.Storage, resource)
			}
		}
	}
}

// shareTables gives all kinds the same printers of tables: each kind of upstream has its own copy
// of the printers of all kinds, 3 MB together.
func shareTables(groups []Group) {
	shared := printers.NewTableGenerator().With(internalversion.AddHandlers)
	for v := range Versions(groups) {
		for _, storage := range v.Storage {
			s := RegistryOf(storage)
			if s == nil {
				continue
			}
			c, _ := s.TableConvertor.(printerstorage.TableConvertor)
			if own, ok := c.TableGenerator.(*printers.HumanReadableGenerator); ok {
				// The storage of the status has the same printers.
				*own = *shared
			}
		}
	}
}

// unhooked are groups without their post-start hooks: the server makes the roles of RBAC, the
// priority classes and the objects of priority and fairness itself, because upstream's hooks wait a
// second first and do not end with the server.
var unhooked = []string{"rbac.authorization.k8s.io", "scheduling.k8s.io", "flowcontrol.apiserver.k8s.io"}

// providers is the table of groups. Where two groups have a resource of the same name, the bare
// name means the resource of the first group.
func (o *Options) providers(check *firstCheck) ([]controlplaneapiserver.RESTStorageProvider, error) {
	core, err := corerest.New(corerest.Config{
		GenericConfig: corerest.GenericConfig{
			StorageFactory:              o.Storage,
			EventTTL:                    o.EventTTL,
			LoopbackClientConfig:        check.client(o.Loopback),
			ServiceAccountIssuer:        o.TokenIssuer,
			ServiceAccountMaxExpiration: o.MaxTokenExpiration,
			ExtendExpiration:            o.MaxExtendedExpiration > 0,
			MaxExtendedExpiration:       o.MaxExtendedExpiration,
			APIAudiences:                o.Audiences,
			Informers:                   o.Informers,
		},
		Proxy: corerest.ProxyConfig{Transport: o.ProxyTransport, KubeletClientConfig: kubeletclient.KubeletClientConfig{
			Port:                  10250,
			PreferredAddressTypes: []string{"InternalIP", "ExternalIP", "Hostname"},
		}},
		Services: corerest.ServicesConfig{
			ClusterIPRange:   o.ServiceRange,
			NodePortRange:    o.NodePorts,
			IPRepairInterval: repairInterval,
		},
		EndpointSliceGetter: endpointSlices{o.Client},
		Authorizer:          o.Authorizer,
	}, o.Authorizer)
	if err != nil {
		return nil, fmt.Errorf("kinds of the core group: %w", err)
	}
	return append([]controlplaneapiserver.RESTStorageProvider{core}, o.namedGroups()...), nil
}

// namedGroups are the groups without the core group.
func (o *Options) namedGroups() []controlplaneapiserver.RESTStorageProvider {
	return []controlplaneapiserver.RESTStorageProvider{
		appsrest.StorageProvider{},
		eventsrest.RESTStorageProvider{TTL: o.EventTTL},
		authenticationrest.RESTStorageProvider{Authenticator: o.Authenticator, APIAudiences: o.Audiences},
		authorizationrest.RESTStorageProvider{Authorizer: o.Authorizer, RuleResolver: o.RuleResolver},
		autoscalingrest.RESTStorageProvider{},
		batchrest.RESTStorageProvider{},
		certificatesrest.RESTStorageProvider{Authorizer: o.Authorizer},
		networkingrest.RESTStorageProvider{},
		policyrest.RESTStorageProvider{},
		rbacrest.RESTStorageProvider{Authorizer: o.Authorizer},
		storagerest.RESTStorageProvider{},
		svmrest.RESTStorageProvider{},
		admissionregistrationrest.RESTStorageProvider{Authorizer: o.Authorizer, DiscoveryClient: o.Client.Discovery()},
		schedulingrest.RESTStorageProvider{},
		coordinationrest.RESTStorageProvider{},
		noderest.RESTStorageProvider{},
		discoveryrest.StorageProvider{},
		flowcontrolrest.RESTStorageProvider{InformerFactory: o.Informers},
		resourcerest.RESTStorageProvider{NamespaceClient: o.Client.CoreV1().Namespaces(), Authorizer: o.Authorizer},
		apiserverinternalrest.StorageProvider{},
		lifecyclerest.RESTStorageProvider{},
	}
}
