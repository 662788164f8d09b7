package controllers

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/replies"
)

// collectors is how many objects the collector checks at the same time, as in a
// kube-controller-manager.
const collectors = 20

// collectGarbage deletes the objects whose owners are absent, and carries out the propagation
// policies of deletions.
func collectGarbage(ctx context.Context, t *term, client kubernetes.Interface) (func(context.Context), error) {
	config := t.config("generic-garbage-collector")
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return certain{everything{next}} })
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, objects, t.mapper, garbagecollector.DefaultIgnoredResources(), t.monitors, t.started)
	c, err := garbagecollector.NewComposedGarbageCollector(ctx, client, objects, t.mapper, graph)
	if err != nil {
		return nil, err
	}
	kinds := &steady{ServerResourcesInterface: client.Discovery()}
	return together(
		func(ctx context.Context) { c.Run(ctx, collectors, lookAgain) },
		func(ctx context.Context) {
			t.everyKind(ctx, func(ctx context.Context) { c.Sync(ctx, kinds, lookAgain) })
		},
	), nil
}

// everything makes reads include objects that are not initialized (S11.36): other clients do not
// see such an object, but it exists. Creates do not wait until their object is initialized
// (S11.26).
type everything struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (e everything) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || req.Method == http.MethodPost {
		req = req.Clone(req.Context())
		query := req.URL.Query()
		query.Set("includeUninitialized", "true")
		req.URL.RawQuery = query.Encode()
	}
	return e.RoundTripper.RoundTrip(req)
}

// certain makes the collector treat an object as absent only when the response names the object.
// Other responses with the code 404 mean that the resource is not served: because its CRD or its
// APIService is being made anew, because this version is switched off, or because another server
// has not seen it yet. An owner may exist all the same, and the collector would delete its
// dependents. Such a response becomes 503, and the collector asks again.
type certain struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c certain) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(req)
	if err != nil || response.StatusCode != http.StatusNotFound {
		return response, err
	}
	status, err := replies.Status(response)
	if err != nil {
		return nil, err
	}
	if status == nil || status.Details == nil || status.Details.Name != path.Base(req.URL.Path) {
		response.StatusCode, response.Status = http.StatusServiceUnavailable, "503 Service Unavailable"
		response.Header = http.Header{"Content-Type": {"text/plain"}}
		response.Body = io.NopCloser(bytes.NewReader([]byte("the resource is not served: " + req.URL.Path)))
		response.ContentLength = -1
	}
	return response, nil
}

// together runs several functions at the same time, and returns when all have.
func together(list ...func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		var running sync.WaitGroup
		for _, f := range list {
			running.Go(func() {
				defer utilruntime.HandleCrash()
				f(ctx)
			})
		}
		running.Wait()
	}
}
