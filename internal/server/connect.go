package server

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// connect gives parts of earlier phases the parts that were made after them. Some parts need each
// other: policies read params, which are objects of resources, and policies evaluate writes of
// resources. One of two such parts is made first, and connect gives it the other part. No part runs
// before connect.
func connect(a *assembly) {
	// Params are objects of resources, and writes of resources are evaluated with params.
	a.admitter.params.Serve(a.api.static, a.api.custom, a.api.custom, a.stores.place)
	// Mutating policies change objects by the schemas of their kinds.
	a.admitter.schemas.Serve(a.api.endpoints, a.api.custom)
	// An explanation is a resource, and explains requests for all resources.
	a.api.explanations.Serve(a.api.aggregator.Server, a.api.static, a.api.custom)
	// Reads from aggregated servers by the server's own client are bounded. The aggregator knows
	// these servers.
	a.loopback.reads.Follow(a.api.aggregator)

	*a.links = links{
		delegated: func(ctx context.Context, info *request.RequestInfo) bool {
			return a.api.aggregator.FindFor(ctx, info) != nil
		},
		manifestsChanged: a.admitter.refresher.Poke,
		read:             a.admitter.read,
		discarded: func(resource schema.GroupResource, obj runtime.Object) {
			if after, ok := a.afterDelete[resource]; ok {
				after(obj)
			}
		},
		judges:        a.admitter.judges,
		customChanged: a.api.customChanged,
		kindsChanged:  a.controllers.KindsChanged,
	}
}
