package aggregation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/util/responsewriter"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	openapiv2 "k8s.io/kube-aggregator/pkg/controllers/openapi/aggregator"
	openapiv3 "k8s.io/kube-aggregator/pkg/controllers/openapiv3/aggregator"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
)

const (
	// askAgain is how often a remote server is asked for its OpenAPI documents, as in
	// kube-apiserver.
	askAgain = time.Minute
	// firstRetry is how long after a failure the server is asked again; each further failure
	// doubles the time, up to askAgain.
	firstRetry = time.Second
)

// documents are the OpenAPI documents of remote servers (S22.15). A goroutine for each server asks
// for them, so that a slow server delays no other server.
type documents struct {
	publish func(openapi.Remote)

	mu struct {
		sync.Mutex
		// ctx is the context of run; nil before.
		ctx     context.Context
		sources map[schema.GroupVersion]*source
	}
	// order is held while publish is called.
	order   sync.Mutex
	running sync.WaitGroup
}

// source is one group version and the latest documents of its server.
type source struct {
	gv       schema.GroupVersion
	priority Priority
	proxy    *Proxy
	// changed has an element when the APIService has changed.
	changed chan struct{}
	stop    chan struct{}

	v2   *spec.Swagger
	etag string
	v3   map[string]openapi.RemoteDocument
}

func newDocuments(publish func(openapi.Remote)) *documents {
	d := &documents{publish: publish}
	d.mu.sources = map[schema.GroupVersion]*source{}
	return d
}

func (d *documents) add(service *apiregistrationv1.APIService, p *Proxy) {
	gv := schema.GroupVersion{Group: service.Spec.Group, Version: service.Spec.Version}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.mu.sources[gv]
	if s == nil {
		s = &source{gv: gv, proxy: p, changed: make(chan struct{}, 1), stop: make(chan struct{})}
		d.mu.sources[gv] = s
		d.start(s)
	}
	s.priority = Priority{Group: service.Spec.GroupPriorityMinimum, Version: service.Spec.VersionPriority}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (d *documents) remove(gv schema.GroupVersion) {
	d.mu.Lock()
	if s := d.mu.sources[gv]; s != nil {
		close(s.stop)
		delete(d.mu.sources, gv)
	}
	d.mu.Unlock()
	d.tell()
}

// run asks the remote servers until ctx ends.
func (d *documents) run(ctx context.Context) {
	d.mu.Lock()
	d.mu.ctx = ctx
	for _, s := range d.mu.sources {
		d.start(s)
	}
	d.mu.Unlock()
	<-ctx.Done()
	d.running.Wait()
}

// start asks a remote server for its documents until its APIService is removed or run ends; mu
// is held.
func (d *documents) start(s *source) {
	ctx := d.mu.ctx
	if ctx == nil || ctx.Err() != nil {
		return
	}
	d.running.Go(func() { d.follow(ctx, s) })
}

func (d *documents) follow(ctx context.Context, s *source) {
	defer utilruntime.HandleCrash()
	timer := time.NewTimer(askAgain)
	defer timer.Stop()
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.stop:
			return
		case <-s.changed:
			retry = firstRetry
		case <-timer.C:
		}
		if err := d.ask(s); err != nil {
			logger(ctx).V(1).Info("Could not read the OpenAPI documents of an aggregated server; will retry", "groupVersion", s.gv, "err", err, "after", retry)
			timer.Reset(retry)
			retry = min(2*retry, askAgain)
			continue
		}
		retry = firstRetry
		timer.Reset(askAgain)
	}
}

// ask reads the documents of a remote server, and publishes them if they have changed.
func (d *documents) ask(s *source) error {
	handler := s.proxy.always()
	v3, err := s.readV3(handler)
	if err != nil {
		return err
	}
	v2, etag, err := s.readV2(handler)
	if err != nil {
		return err
	}
	if v3 == nil && v2 != nil {
		if v3, err = s.converted(v2); err != nil {
			return err
		}
	}
	d.mu.Lock()
	same := s.etag == etag && maps.EqualFunc(s.v3, v3, func(a, b openapi.RemoteDocument) bool { return a.URL == b.URL })
	s.v2, s.etag, s.v3 = v2, etag, v3
	d.mu.Unlock()
	if !same {
		d.tell()
	}
	return nil
}

// tell publishes the latest documents of all servers.
func (d *documents) tell() {
	d.order.Lock()
	defer d.order.Unlock()
	d.mu.Lock()
	sources := make([]source, 0, len(d.mu.sources))
	for _, s := range d.mu.sources {
		sources = append(sources, *s)
	}
	d.mu.Unlock()
	slices.SortFunc(sources, func(a, b source) int {
		return cmp.Or(cmp.Compare(b.priority.Group, a.priority.Group), cmp.Compare(a.gv.Group, b.gv.Group),
			cmp.Compare(b.priority.Version, a.priority.Version), cmp.Compare(a.gv.Version, b.gv.Version))
	})
	all := openapi.Remote{V3: map[string]openapi.RemoteDocument{}}
	for _, s := range sources {
		if s.v2 != nil {
			all.V2 = append(all.V2, s.v2)
			all.Tag += s.gv.String() + " " + s.etag + "\n"
		}
		for name, document := range s.v3 {
			if _, taken := all.V3[name]; !taken {
				all.V3[name] = document
			}
		}
	}
	d.publish(all)
}

// readV3 returns the documents about the group version, nil when the server has no v3.
func (s *source) readV3(handler http.Handler) (map[string]openapi.RemoteDocument, error) {
	downloader := openapiv3.NewDownloader()
	list, status, err := downloader.OpenAPIV3Root(handler)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI v3: %w", err)
	}
	if status == http.StatusNotFound {
		return nil, nil
	}
	found := map[string]openapi.RemoteDocument{}
	// Paths of other group versions in a server's document are left out.
	for _, name := range []string{s.path(), strings.TrimSuffix(s.path(), "/"+s.gv.Version)} {
		if item, ok := list.Paths[name]; ok {
			found[name] = openapi.RemoteDocument{URL: item.ServerRelativeURL, Handler: s.proxy}
		}
	}
	return found, nil
}

// readV2 returns the part of the v2 document about the group version, nil when the server has none.
func (s *source) readV2(handler http.Handler) (*spec.Swagger, string, error) {
	downloader := openapiv2.NewDownloader()
	document, etag, status, err := downloader.Download(handler, s.etag)
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("OpenAPI v2: %w", err)
	case status == http.StatusNotModified:
		return s.v2, s.etag, nil
	case status == http.StatusNotFound || document == nil:
		return nil, "", nil
	}
	return aggregator.FilterSpecByPathsWithoutSideEffects(document, []string{"/" + s.path() + "/"}), etag, nil
}

// converted converts a v2 document to v3, for servers that have no v3.
func (s *source) converted(v2 *spec.Swagger) (map[string]openapi.RemoteDocument, error) {
	const root = "/openapi/v3"
	service, routes := handler3.NewOpenAPIService(), mux.NewPathRecorderMux("converted")
	if err := service.RegisterOpenAPIV3VersionedService(root, routes); err != nil {
		return nil, fmt.Errorf("OpenAPI v3: %w", err)
	}
	service.UpdateGroupVersion(s.path(), openapiconv.ConvertV2ToV3(v2))
	req, err := http.NewRequest(http.MethodGet, root, nil)
	if err != nil {
		return nil, err
	}
	w := responsewriter.NewInMemoryResponseWriter()
	routes.ServeHTTP(w, req)
	var list handler3.OpenAPIV3Discovery
	if err := json.Unmarshal(w.Data(), &list); err != nil {
		return nil, fmt.Errorf("OpenAPI v3 of a v2 document: %w", err)
	}
	return map[string]openapi.RemoteDocument{s.path(): {URL: list.Paths[s.path()].ServerRelativeURL, Handler: routes}}, nil
}

// path is the name of the group version's v3 document.
func (s *source) path() string {
	if s.gv.Group == "" {
		return "api/" + s.gv.Version
	}
	return "apis/" + s.gv.String()
}
