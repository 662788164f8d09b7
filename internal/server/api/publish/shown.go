package publish

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/customresources"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/priorities"
)

// Kinds publishes the served kinds. All fields must be set.
type Kinds struct {
	Discovery *discovery.Handler
	OpenAPI   *openapi.Handler
	// Mapper asks discovery again after Reset.
	Mapper meta.ResettableRESTMapper
	// Changed is called when the kinds in Discovery change.
	Changed func()
}

// SetCustom publishes the kinds that users define.
func (k *Kinds) SetCustom(versions []customresources.Version) {
	shown := []discovery.Version{}
	documented := []openapi.CustomVersion{}
	for _, v := range versions {
		shown = append(shown, discovery.Version{GroupVersion: v.GroupVersion, Resources: v.Resources})
		documented = append(documented, openapi.CustomVersion{GroupVersion: v.GroupVersion, Tag: v.Tag})
	}
	if err := k.Discovery.SetCustom(Prioritized(shown)); err != nil {
		klog.ErrorS(err, "Could not update the discovery of custom resources")
	}
	k.OpenAPI.SetCustom(documented)
	k.Mapper.Reset()
	k.Changed()
}

// SetRemote publishes the kinds of aggregated servers.
func (k *Kinds) SetRemote(versions []discovery.Version) {
	if err := k.Discovery.SetRemote(versions); err != nil {
		klog.ErrorS(err, "Could not update the discovery of aggregated servers")
	}
	k.Mapper.Reset()
	k.Changed()
}

// Prioritized sets the priorities of the versions of this server in discovery.
func Prioritized(versions []discovery.Version) []discovery.Version {
	for i := range versions {
		p := priorities.Of(versions[i].GroupVersion)
		versions[i].GroupPriority, versions[i].VersionPriority = p.Group, p.Version
	}
	return versions
}

// Index lists the current paths of discovery.
type Index struct{ *discovery.Handler }

// ListedPaths implements routes.ListedPathProvider.
func (i Index) ListedPaths() []string { return i.Paths() }
