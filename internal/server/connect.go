package server

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// connect gives parts of earlier phases the parts that were made after them. Some parts need
// each other: policies read params, which are objects of resources, and writes of resources are
// judged by policies. One of two such parts is made first, and connect gives it the other part.
// No part runs before connect.
func connect(a *assembly) {
	a.links.made = a
	// Params are objects of resources, and writes of resources are judged by params.
	a.admitter.params.Serve(a.api.static, a.api.custom, a.api.custom, a.stores.place)
	// Mutating policies change objects by the schemas of their kinds.
	a.admitter.schemas.Serve(a.api.endpoints, a.api.custom)
	// An explanation is a resource, and explains requests for all resources.
	a.api.explanations.Serve(a.api.aggregator.Server, a.api.static, a.api.custom)
	// What the server reads of aggregated servers through its own client is bounded, and the
	// aggregator knows these servers.
	a.loopback.reads.Follow(a.api.aggregator)
}

// links are the calls from a part to a part that is made after it.
type links struct {
	// made is set by connect.
	made *assembly
}

// delegated reports whether a request goes to another server: the handlers in front of the API
// do not count it among those of this server.
func (l *links) delegated(req *http.Request, _ *request.RequestInfo) bool {
	return l.made.api.aggregator.Find(req) != nil
}

// manifestsChanged has the registrations compiled again, those of manifest files included.
func (l *links) manifestsChanged() { l.made.admitter.refresher.Poke() }

// read counts a read of the registrations, and announces which of them the engine cannot use.
func (l *links) read(r snapshot.Read) {
	admission.CountRead(r)
	a := l.made.admitter
	a.announcer.Observe(r)
	l.made.admitter.counted.Observe(r)
	if r.Snapshot != nil {
		a.announcer.Skip(a.engine.Skipped(r.Snapshot))
	}
}

// discarded calls the function of afterDelete for an object that was deleted before it was
// initialized. That function comes from the kind of the object, and kinds are made after
// stores.
func (l *links) discarded(resource schema.GroupResource, obj runtime.Object) {
	if after, ok := l.made.afterDelete[resource]; ok {
		after(obj)
	}
}

// customChanged gives the aggregator, discovery and OpenAPI the kinds that users define now.
func (l *links) customChanged() {
	a := l.made.api
	versions := a.custom.Versions()
	var served []schema.GroupVersion
	for _, v := range versions {
		served = append(served, v.GroupVersion)
	}
	a.aggregator.SetCustom(served)
	a.shown.SetCustom(versions)
}

// kindsChanged has the controllers work on the kinds that are served now. The controllers are
// made after the API.
func (l *links) kindsChanged() { l.made.controllers.KindsChanged() }
