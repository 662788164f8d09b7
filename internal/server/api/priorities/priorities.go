package priorities

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/aggregation"
)

// first is the priority of the group apiregistration.k8s.io, which has no APIService: it is the
// first group in discovery (S22.3).
var first = aggregation.Priority{Group: 20001, Version: 1}

// ofDefinitions is the priority of the group versions of CustomResourceDefinitions (S22.4).
var ofDefinitions = aggregation.Priority{Group: 1000, Version: 100}

// priorities are the priorities of the built-in group versions (S22.3): upstream's, and, for
// versions that upstream no longer serves, the numbers they had.
var priorities = func() map[schema.GroupVersion]aggregation.Priority {
	all := map[schema.GroupVersion]aggregation.Priority{
		{Group: "apps", Version: "v1"}:                    {Group: 17800, Version: 15},
		{Group: "apps", Version: "v1beta2"}:               {Group: 17800, Version: 9},
		{Group: "apps", Version: "v1beta1"}:               {Group: 17800, Version: 1},
		{Group: "autoscaling", Version: "v2"}:             {Group: 17500, Version: 30},
		{Group: "autoscaling", Version: "v1"}:             {Group: 17500, Version: 15},
		{Group: "batch", Version: "v1"}:                   {Group: 17400, Version: 15},
		{Group: "networking.k8s.io", Version: "v1"}:       {Group: 17200, Version: 15},
		{Group: "networking.k8s.io", Version: "v1beta1"}:  {Group: 17200, Version: 9},
		{Group: "extensions", Version: "v1beta1"}:         {Group: 17150, Version: 1},
		{Group: "policy", Version: "v1"}:                  {Group: 17100, Version: 15},
		{Group: "storage.k8s.io", Version: "v1"}:          {Group: 16800, Version: 15},
		{Group: "storage.k8s.io", Version: "v1beta1"}:     {Group: 16800, Version: 9},
		{Group: "storage.k8s.io", Version: "v1alpha1"}:    {Group: 16800, Version: 1},
		{Group: "scheduling.k8s.io", Version: "v1"}:       {Group: 16600, Version: 15},
		{Group: "scheduling.k8s.io", Version: "v1alpha3"}: {Group: 16600, Version: 3},
		{Group: "node.k8s.io", Version: "v1"}:             {Group: 16300, Version: 15},
		{Group: "resource.k8s.io", Version: "v1"}:         {Group: 16200, Version: 21},
		{Group: "resource.k8s.io", Version: "v1beta2"}:    {Group: 16200, Version: 15},
		{Group: "resource.k8s.io", Version: "v1beta1"}:    {Group: 16200, Version: 9},
		{Group: "resource.k8s.io", Version: "v1alpha3"}:   {Group: 16200, Version: 1},
		{Group: "lifecycle.k8s.io", Version: "v1alpha1"}:  {Group: 15700, Version: 1},
		{Group: "gatehouse.dev", Version: "v1alpha1"}:     {Group: 15000, Version: 1},
	}
	for gv, p := range controlplane.DefaultGenericAPIServicePriorities() {
		if _, ok := all[gv]; !ok {
			all[gv] = aggregation.Priority{Group: p.Group, Version: p.Version}
		}
	}
	return all
}()

// Of returns the priority of a group version that the server has itself, built in or
// defined by users.
func Of(gv schema.GroupVersion) aggregation.Priority {
	if gv.Group == aggregation.GroupVersion.Group {
		return first
	}
	if p, ok := priorities[gv]; ok {
		return p
	}
	return ofDefinitions
}
