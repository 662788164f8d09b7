package aggregation

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// Priority is the priority of a group version in discovery: groups and then versions with higher
// numbers come first.
type Priority struct{ Group, Version int32 }

// first is the priority of the group apiregistration.k8s.io, which has no APIService: it is the
// first group in discovery (S22.3).
var first = Priority{Group: 20001, Version: 1}

// ofDefinitions is the priority of the group versions of CustomResourceDefinitions (S22.4).
var ofDefinitions = Priority{Group: 1000, Version: 100}

// priorities are the priorities of the built-in group versions (S22.3): upstream's, and, for
// versions that upstream no longer serves, the numbers they had.
var priorities = func() map[schema.GroupVersion]Priority {
	all := map[schema.GroupVersion]Priority{
		{Group: "apps", Version: "v1"}:                    {17800, 15},
		{Group: "apps", Version: "v1beta2"}:               {17800, 9},
		{Group: "apps", Version: "v1beta1"}:               {17800, 1},
		{Group: "autoscaling", Version: "v2"}:             {17500, 30},
		{Group: "autoscaling", Version: "v1"}:             {17500, 15},
		{Group: "batch", Version: "v1"}:                   {17400, 15},
		{Group: "networking.k8s.io", Version: "v1"}:       {17200, 15},
		{Group: "networking.k8s.io", Version: "v1beta1"}:  {17200, 9},
		{Group: "extensions", Version: "v1beta1"}:         {17150, 1},
		{Group: "policy", Version: "v1"}:                  {17100, 15},
		{Group: "storage.k8s.io", Version: "v1"}:          {16800, 15},
		{Group: "storage.k8s.io", Version: "v1beta1"}:     {16800, 9},
		{Group: "storage.k8s.io", Version: "v1alpha1"}:    {16800, 1},
		{Group: "scheduling.k8s.io", Version: "v1"}:       {16600, 15},
		{Group: "scheduling.k8s.io", Version: "v1alpha3"}: {16600, 3},
		{Group: "node.k8s.io", Version: "v1"}:             {16300, 15},
		{Group: "resource.k8s.io", Version: "v1"}:         {16200, 21},
		{Group: "resource.k8s.io", Version: "v1beta2"}:    {16200, 15},
		{Group: "resource.k8s.io", Version: "v1beta1"}:    {16200, 9},
		{Group: "resource.k8s.io", Version: "v1alpha3"}:   {16200, 1},
		{Group: "lifecycle.k8s.io", Version: "v1alpha1"}:  {15700, 1},
		{Group: "gatehouse.dev", Version: "v1alpha1"}:     {15000, 1},
	}
	for gv, p := range controlplane.DefaultGenericAPIServicePriorities() {
		if _, ok := all[gv]; !ok {
			all[gv] = Priority{Group: p.Group, Version: p.Version}
		}
	}
	return all
}()

// PriorityOf returns the priority of a group version that the server has itself, built in or
// defined by users.
func PriorityOf(gv schema.GroupVersion) Priority {
	if gv.Group == groupName {
		return first
	}
	if p, ok := priorities[gv]; ok {
		return p
	}
	return ofDefinitions
}
