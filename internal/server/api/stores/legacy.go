package stores

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/apis/apps"
	deploymentstorage "k8s.io/kubernetes/pkg/registry/apps/deployment/storage"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// rollback is the path where apps/v1beta1 and extensions/v1beta1 accept a DeploymentRollback.
// Upstream still has the storage for it.
const rollback = "deployments/rollback"

// addLegacy adds the wanted versions that upstream no longer serves.
func addLegacy(groups []Group, options generic.RESTOptionsGetter, wanted []schema.GroupVersion) ([]Group, error) {
	if len(wanted) == 0 {
		return groups, nil
	}
	storages := map[schema.GroupVersion]map[string]rest.Storage{}
	for v := range Versions(groups) {
		storages[v.GroupVersion] = v.Storage
	}
	for _, l := range catalog.Legacy {
		if !slices.Contains(wanted, l.Version) {
			continue
		}
		storage := map[string]rest.Storage{}
		for path, s := range storages[l.From] {
			resource, subresource, _ := strings.Cut(path, "/")
			if !slices.Contains(l.Resources, resource) {
				continue
			}
			if subresource == "scale" && l.Version.Group != l.From.Group {
				s = scaleAs{s.(scaleStorage), l.From}
			}
			storage[path] = s
		}
		if l.Version.Version == "v1beta1" {
			s, err := deploymentstorage.NewStorage(sharing{options, storage["deployments"].(*deploymentstorage.REST).Store})
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", rollback, l.Version, err)
			}
			storage[rollback] = rollbackREST{s.Rollback}
		}
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Name == l.Version.Group })
		if i < 0 {
			groups = append(groups, Group{Name: l.Version.Group})
			i = len(groups) - 1
		}
		groups[i].Versions = append(groups[i].Versions, Version{GroupVersion: l.Version, Storage: storage, Unadvertised: true})
	}
	return groups, nil
}

// sharing returns the storage of a store instead of opening one.
type sharing struct {
	generic.RESTOptionsGetter
	store *registry.Store
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (s sharing) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	o, err := s.RESTOptionsGetter.GetRESTOptions(resource, example)
	o.Decorator = func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object,
		func() runtime.Object, apistorage.AttrFunc, apistorage.IndexerFuncs, *cache.Indexers,
	) (apistorage.Interface, factory.DestroyFunc, error) {
		return s.store.Storage.Storage, func() {}, nil
	}
	return o, err
}

// rollbackREST writes the rollback of a DeploymentRollback into the deployment, as the server of
// Kubernetes 1.7 did; a deployment controller carries it out.
type rollbackREST struct {
	*deploymentstorage.RollbackREST
}

// Create implements rest.NamedCreater.
func (r rollbackREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc,
	options *metav1.CreateOptions,
) (runtime.Object, error) {
	if o, ok := obj.(*apps.DeploymentRollback); ok {
		if _, reserved := o.UpdatedAnnotations[initializers.Annotation]; reserved {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("updatedAnnotations[%s] is reserved: write metadata.initializers of the deployment instead", initializers.Annotation))
		}
	}
	return r.RollbackREST.Create(ctx, name, obj, validate, options)
}
