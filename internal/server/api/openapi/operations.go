package openapi

import (
	"fmt"
	"strings"

	"github.com/emicklei/go-restful/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// operations describes the operations of the endpoints of one group version: their paths,
// parameters, bodies and responses. It runs upstream's installer and keeps the routes that the
// installer adds.
func operations(gv schema.GroupVersion, list []*resources.Endpoint) ([]common.RouteContainer, error) {
	scope := list[0].Scope
	storage := make(map[string]rest.Storage, len(list))
	for _, e := range list {
		storage[e.Discovery.Name] = e.Storage
	}
	// Options such as ListOptions have version v1 in every group whose scheme has them there, as in
	// kube-apiserver.
	var optionsVersion *schema.GroupVersion
	v1 := schema.GroupVersion{Version: "v1"}
	if _, err := scope.Creater.New(v1.WithKind("ListOptions")); err == nil {
		optionsVersion = &v1
	}
	group := &endpoints.APIGroupVersion{
		Storage:                    storage,
		Root:                       root(gv),
		GroupVersion:               gv,
		OptionsExternalVersion:     optionsVersion,
		Serializer:                 scope.Serializer,
		ParameterCodec:             scope.ParameterCodec,
		Typer:                      scope.Typer,
		Creater:                    scope.Creater,
		Convertor:                  scope.Convertor,
		Defaulter:                  scope.Defaulter,
		UnsafeConvertor:            scope.UnsafeConvertor,
		TypeConverter:              managedfields.NewDeducedTypeConverter(),
		EquivalentResourceRegistry: runtime.NewEquivalentResourceRegistry(),
	}
	container := restful.NewContainer()
	if _, _, err := group.InstallREST(container); err != nil {
		return nil, fmt.Errorf("operations of %s: %w", gv, err)
	}
	return adapt(container.RegisteredWebServices()...), nil
}

func root(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api"
	}
	return "/apis"
}

// rootOperations describes the paths that belong to no group version, by the
// name of the document they are in.
func rootOperations(serializer runtime.NegotiatedSerializer, groups []string) map[string]func() []common.RouteContainer {
	addresses := discovery.DefaultAddresses{}
	all := map[string]func() []common.RouteContainer{
		"api": func() []common.RouteContainer {
			return adapt(discovery.NewLegacyRootAPIHandler(addresses, serializer, "/api").WebService())
		},
		"apis": func() []common.RouteContainer {
			return adapt(discovery.NewRootAPIsHandler(addresses, serializer).WebService())
		},
		"version": func() []common.RouteContainer {
			container := restful.NewContainer()
			routes.Version{Version: &version.Info{}}.Install(container)
			return adapt(container.RegisteredWebServices()...)
		},
	}
	for _, g := range groups {
		if g != "" {
			all["apis/"+g] = func() []common.RouteContainer {
				return adapt(discovery.NewAPIGroupHandler(serializer, metav1.APIGroup{Name: g}).WebService())
			}
		}
	}
	return all
}

func adapt(services ...*restful.WebService) []common.RouteContainer {
	list := make([]common.RouteContainer, 0, len(services))
	for _, s := range services {
		list = append(list, container{&restfuladapter.WebServiceAdapter{WebService: s}})
	}
	return list
}

// container adds the parameter includeUninitialized to the routes of upstream's installer.
type container struct{ common.RouteContainer }

// includeUninitialized is the parameter of S11.26, S11.31 and S11.33.
var includeUninitialized = restful.QueryParameter("includeUninitialized",
	"If set and not 'false', uninitialized objects are included, which have metadata.initializers. "+
		"A create with it does not wait until the object is initialized.").DataType("boolean")

// showsUninitialized lists the actions that take the parameter.
var showsUninitialized = map[any]bool{"get": true, "list": true, "watch": true, "watchlist": true, "post": true}

func (c container) Routes() []common.Route {
	list := c.RouteContainer.Routes()
	for _, r := range list {
		route := r.(*restfuladapter.RouteAdapter).Route
		if showsUninitialized[route.Metadata[endpoints.RouteMetaAction]] && !ofSubresource(route.Path) {
			route.ParameterDocs = append(route.ParameterDocs[:len(route.ParameterDocs):len(route.ParameterDocs)], includeUninitialized)
		}
	}
	return list
}

// ofSubresource reports whether something follows the name of the object in a path.
func ofSubresource(path string) bool {
	_, after, found := strings.Cut(path, "/{name}")
	return found && after != ""
}

// operationID names an operation and its tags as kube-apiserver does.
func operationID(r common.Route) (string, []string, error) {
	return apiopenapi.GetOperationIDAndTags(r.(*restfuladapter.RouteAdapter).Route)
}
