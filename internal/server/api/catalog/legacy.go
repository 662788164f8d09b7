package catalog

import "k8s.io/apimachinery/pkg/runtime/schema"

// Legacy lists the versions that upstream's storage still understands and kube-apiserver no longer serves: the workload
// kinds as the examples of Kubernetes 1.15 use them. A server serves the versions that its flags name (S9.8). They
// share the storage of the group they moved to. An object written through one version is therefore read through the
// others, and a webhook's rule on one version also matches the others when its matchPolicy is Equivalent.
var Legacy = []struct {
	Version   schema.GroupVersion
	From      schema.GroupVersion
	Resources []string
}{
	{
		Version:   schema.GroupVersion{Group: "apps", Version: "v1beta2"},
		From:      schema.GroupVersion{Group: "apps", Version: "v1"},
		Resources: []string{"controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"},
	},
	{
		Version:   schema.GroupVersion{Group: "apps", Version: "v1beta1"},
		From:      schema.GroupVersion{Group: "apps", Version: "v1"},
		Resources: []string{"controllerrevisions", "deployments", "statefulsets"},
	},
	{
		Version:   schema.GroupVersion{Group: "extensions", Version: "v1beta1"},
		From:      schema.GroupVersion{Group: "apps", Version: "v1"},
		Resources: []string{"daemonsets", "deployments", "replicasets"},
	},
}

// LegacyVersions maps each version that upstream no longer serves to the version whose storage it
// shares.
func LegacyVersions() map[schema.GroupVersion]schema.GroupVersion {
	from := map[schema.GroupVersion]schema.GroupVersion{}
	for _, l := range Legacy {
		from[l.Version] = l.From
	}
	return from
}

// StoredVersions maps the resources of the versions that upstream no longer serves to the stored
// resources.
func StoredVersions() map[schema.GroupVersionResource]schema.GroupVersionResource {
	stored := map[schema.GroupVersionResource]schema.GroupVersionResource{}
	for _, l := range Legacy {
		for _, resource := range l.Resources {
			stored[l.Version.WithResource(resource)] = l.From.WithResource(resource)
		}
	}
	return stored
}
