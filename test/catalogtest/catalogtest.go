package catalogtest

import (
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/kubeapiserver"

	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/stores"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage"
	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// Version contains the endpoints of a group version.
type Version struct {
	schema.GroupVersion
	Endpoints []*resources.Endpoint
}

// Build returns the endpoints of every built-in kind, in the order of the catalogue, and closes their storage
// at the end of the test. Endpoints that need a server, such as token reviews, cannot be used.
func Build(tb testing.TB) []Version {
	tb.Helper()
	client := etcdtest.Start(tb)
	o := options.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil))
	o.StorageConfig.Transport.ServerList = client.Endpoints()
	config := kubeapiserver.NewStorageFactoryConfigEffectiveVersion(compatibility.NewEffectiveVersionFromString("1.37.2", "", ""))
	config.APIResourceConfig = controlplane.DefaultAPIResourceConfigSource()
	configs, err := config.Complete(o).New()
	if err != nil {
		tb.Fatal(err)
	}
	factory := storage.NewFactory(configs, client, nil)
	tb.Cleanup(factory.Close)

	loopback := &restclient.Config{Host: "https://localhost"}
	api := kubernetes.NewForConfigOrDie(loopback)
	authorizer := authorizerfactory.NewAlwaysAllowAuthorizer()
	groups, _, err := stores.Build(stores.Options{
		Storage: configs, RESTOptions: factory, Loopback: loopback, Client: api,
		Informers: informers.NewSharedInformerFactory(api, 0), Authorizer: authorizer,
		ServiceRange: net.IPNet{IP: net.IPv4(10, 0, 0, 0).To4(), Mask: net.CIDRMask(24, 32)},
		NodePorts:    utilnet.PortRange{Base: 30000, Size: 2768}, EventTTL: time.Hour,
		Legacy: slices.Collect(maps.Keys(catalog.LegacyVersions())),
	})
	if err != nil {
		tb.Fatal(err)
	}
	codec := initialization.NewCodec(legacyscheme.Codecs)
	equivalents := runtime.NewEquivalentResourceRegistryWithIdentity(configs.ResourcePrefix)
	var versions []Version
	for _, g := range groups {
		for _, v := range g.Versions {
			for _, s := range v.Storage {
				tb.Cleanup(s.Destroy)
			}
			made := &resources.Group{
				GroupVersion: v.GroupVersion, Storage: v.Storage, Scheme: legacyscheme.Scheme, Codec: codec,
				ParameterCodec: legacyscheme.ParameterCodec, Equivalents: equivalents, Authorizer: authorizer,
				TypeConverter: managedfields.NewDeducedTypeConverter(),
			}
			endpoints, err := made.Endpoints()
			if err != nil {
				tb.Fatal(err)
			}
			versions = append(versions, Version{GroupVersion: v.GroupVersion, Endpoints: endpoints})
		}
	}
	return versions
}
