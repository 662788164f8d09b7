package builtin

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/registrations"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/stores"
)

// Options are the kinds, and the inputs of their endpoints.
type Options struct {
	// Kinds are upstream's groups, in the order of discovery, and LegacyVersions their versions
	// that upstream no longer serves.
	Kinds          []stores.Group
	LegacyVersions []schema.GroupVersion
	// Registrations has the storage of the registrations, by version and path, and NotEnforced the
	// resources that configure admission and that this server does not enforce.
	Registrations map[string]map[string]rest.Storage
	NotEnforced   []string
	// Others are groups of this server that follow upstream's.
	Others []*resources.Group

	// Later handles fields of upstream's kinds that the emulated release does not have; nil if
	// there are none.
	Later *resources.Later

	// Models describe the kinds.
	Models              *openapi.Models
	Equivalents         runtime.EquivalentResourceRegistry
	Authorizer          authorizer.Authorizer
	MaxRequestBodyBytes int64
}

// builder makes the endpoints of the built-in kinds.
type builder struct {
	options Options
	// static finds the endpoints, all has them in order.
	static   resources.Static
	all      []*resources.Endpoint
	families map[string]*family
}

// family is a set of kinds with the same objects: the fields that a manager applied through one
// version must be understood when the object is written through another. The first write builds the
// converter, when the kinds are known.
type family struct {
	kinds     []schema.GroupVersionKind
	converter managedfields.TypeConverter
}

// Endpoints makes the endpoints of all groups, in their order.
func Endpoints(o Options) (resources.Static, []*resources.Endpoint, error) {
	b := &builder{options: o, static: resources.Static{}, families: map[string]*family{}}
	legacy := catalog.LegacyVersions()
	maps.DeleteFunc(legacy, func(gv, _ schema.GroupVersion) bool { return !slices.Contains(o.LegacyVersions, gv) })
	codec, registrationCodec := initialization.NewStoredCodec(initialization.Codecs(legacyscheme.Scheme)), registrations.Codec()
	addRegistrations := func(version string) error {
		if o.Registrations[version] == nil {
			return nil
		}
		gv := schema.GroupVersion{Group: registrations.Group, Version: version}
		_, err := b.add("registrations", &resources.Group{
			GroupVersion: gv, Storage: o.Registrations[version], Hub: registrations.Hub(gv),
			Scheme: registrations.Scheme, Codec: registrationCodec, ParameterCodec: runtime.NewParameterCodec(registrations.Scheme),
			Warnings: pluginsOff(o.NotEnforced),
		})
		return err
	}
	for _, g := range o.Kinds {
		for _, v := range g.Versions {
			added, err := b.add(familyOf(g.Name), &resources.Group{
				GroupVersion: v.GroupVersion, Storage: v.Storage, Scheme: legacyscheme.Scheme, Codec: codec,
				ParameterCodec: legacyscheme.ParameterCodec, Warnings: warningsOf(v, o.NotEnforced), ResetLike: legacy,
			})
			if err != nil {
				return nil, nil, err
			}
			for _, e := range added {
				e.Later = o.Later
				if v.Unadvertised {
					e.Discovery.ShortNames, e.Discovery.Categories = nil, nil
				}
			}
			// Resources of one version are listed together.
			if g.Name == registrations.Group {
				if err := addRegistrations(v.Version); err != nil {
					return nil, nil, err
				}
			}
		}
		if g.Name != registrations.Group {
			continue
		}
		// Upstream's versions come first, then the versions of Gatehouse only.
		for _, version := range []string{"v1beta1", "v1alpha1"} {
			if !slices.ContainsFunc(g.Versions, func(v stores.Version) bool { return v.Version == version }) {
				if err := addRegistrations(version); err != nil {
					return nil, nil, err
				}
			}
		}
	}
	for _, g := range o.Others {
		if _, err := b.add(g.GroupVersion.Group, g); err != nil {
			return nil, nil, err
		}
	}
	return b.static, b.all, nil
}

// rollback is a request to a controller.
const rollback = "deployments/rollback"

// warningsOf returns warnings, by path, for kinds of a version that upstream enforces or acts on
// and this server does not: a user who creates such an object must not rely on it.
func warningsOf(v stores.Version, notEnforced []string) map[string][]string {
	if v.Storage[rollback] != nil {
		return map[string][]string{rollback: {"the rollback is stored in the deployment's spec.rollbackTo, but this server runs no controller that performs it"}}
	}
	if v.Group != registrations.Group {
		return nil
	}
	return pluginsOff(notEnforced)
}

// pluginsOff returns warnings, by path, for registrations whose admission plugin is off.
func pluginsOff(notEnforced []string) map[string][]string {
	warnings := map[string][]string{}
	for _, resource := range notEnforced {
		warnings[resource] = []string{NotEnforced(resource)}
	}
	return warnings
}

// NotEnforced is the warning about a write of a registration whose admission plugin is off.
func NotEnforced(resource string) string {
	return resource + " are stored, but this server does not enforce them: their admission plugin is off"
}

// add makes the endpoints of one served version.
func (b *builder) add(name string, group *resources.Group) ([]*resources.Endpoint, error) {
	f := b.families[name]
	if f == nil {
		f = &family{}
		f.converter = resources.NewTypeConverter(sync.OnceValues(func() (managedfields.TypeConverter, error) {
			return b.options.Models.TypeConverter(group.Scheme, f.kinds)
		}))
		b.families[name] = f
	}
	group.TypeConverter = f.converter
	group.Equivalents = b.options.Equivalents
	group.Authorizer = b.options.Authorizer
	group.MaxRequestBodyBytes = b.options.MaxRequestBodyBytes
	list, err := group.Endpoints()
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		f.kinds = append(f.kinds, e.Kind)
	}
	b.static.Add(list)
	b.all = append(b.all, list...)
	return list, nil
}

// familyOf returns the group that names the family of a group. Some groups are aliases for the
// objects of another group.
func familyOf(group string) string {
	switch group {
	case "extensions":
		return "apps"
	case "events.k8s.io":
		return ""
	}
	return group
}
