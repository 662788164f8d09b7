package lazyinformer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
)

// Etcd is the part of a client of etcd that a Transport needs.
type Etcd interface {
	clientv3.KV
	clientv3.Watcher
}

// Prefix returns the prefix of the keys of a resource, ending in a slash; empty when the resource
// is not stored in etcd, or unknown.
type Prefix func(schema.GroupResource) string

// Transport sends the requests of informers, and delays the watches of empty collections. It is
// safe for concurrent use.
type Transport struct {
	Next   http.RoundTripper
	Etcd   Etcd
	Prefix Prefix
	// Values decrypts stored objects; nil when nothing is encrypted.
	Values *encryption.Transformers
	// Custom reports whether the metadata of a resource's objects may be read from etcd, for
	// clients that want only metadata. Nil means that there is no such resource.
	Custom func(schema.GroupResource) bool
	// Whole returns the kind of a resource whose objects are sent to clients of whole objects as
	// they are stored; empty for all other resources. Nil means that there is no such resource.
	Whole func(schema.GroupResource) string

	// tended has the prefixes of resources whose objects must be read through a server.
	tended sync.Map
}

// RoundTrip implements http.RoundTripper. For the watch of an empty collection, it
// returns when the first object is stored there. When the request's context ends before that, the
// watch ends without an event.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	prefix := ""
	gr, ok := collection(req)
	if ok {
		prefix = t.Prefix(gr)
	}
	if prefix == "" {
		return t.Next.RoundTrip(req)
	}
	ctx := req.Context()
	if _, tended := t.tended.Load(prefix); !tended {
		if as := t.formOf(req, gr); as != nil {
			query := req.URL.Query()
			if query.Get("watch") != "true" {
				return t.list(req, gr, prefix, as)
			}
			if after, err := strconv.ParseInt(query.Get("resourceVersion"), 10, 64); err == nil && after > 0 {
				return t.watch(req, gr, prefix, after, as), nil
			}
		}
	}
	found, err := t.Etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil || found.Count > 0 {
		// If etcd does not answer, the server returns the better error.
		return t.Next.RoundTrip(req)
	}
	query := req.URL.Query()
	if query.Get("watch") != "true" {
		return empty(req, found.Header.Revision), nil
	}
	first, err := t.first(ctx, prefix, found.Header.Revision)
	if err != nil {
		if ctx.Err() != nil {
			// The informer would log an error, and the end of the context is not an error.
			return answer(req, "application/json;stream=watch", nil), nil
		}
		return t.Next.RoundTrip(req)
	}
	// Nothing happened before this revision, which etcd may have compacted by now.
	query.Set("resourceVersion", strconv.FormatInt(first-1, 10))
	again := req.Clone(ctx)
	again.URL.RawQuery = query.Encode()
	return t.Next.RoundTrip(again)
}

// errEnded means that etcd ended a watch.
var errEnded = errors.New("the watch ended")

// first waits until an object is stored below prefix after a revision, and returns the revision
// of that write.
func (t *Transport) first(ctx context.Context, prefix string, after int64) (int64, error) {
	// A member of etcd without a leader receives no writes.
	watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer stop()
	for response := range t.Etcd.Watch(watching, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithFilterDelete()) {
		if err := response.Err(); err != nil {
			return 0, err
		}
		if len(response.Events) > 0 {
			return response.Events[0].Kv.ModRevision, nil
		}
	}
	return 0, errEnded
}

// Await waits until one of some resources has an object. It returns the error of the context, or
// of etcd.
func Await(ctx context.Context, etcd Etcd, prefixes ...string) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	t := &Transport{Etcd: etcd}
	results := make(chan error, len(prefixes))
	for _, prefix := range prefixes {
		go func() {
			found, err := etcd.Get(waiting, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err == nil && found.Count == 0 {
				_, err = t.first(waiting, prefix, found.Header.Revision)
			}
			results <- err
		}()
	}
	err := <-results
	stop()
	for range len(prefixes) - 1 {
		<-results
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// collection returns the resource that a request lists or watches in all namespaces.
func collection(req *http.Request) (schema.GroupResource, bool) {
	if req.Method != http.MethodGet {
		return schema.GroupResource{}, false
	}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case len(parts) == 3 && parts[0] == "api":
		return schema.GroupResource{Resource: parts[2]}, true
	case len(parts) == 4 && parts[0] == "apis":
		return schema.GroupResource{Group: parts[1], Resource: parts[3]}, true
	}
	return schema.GroupResource{}, false
}

// empty is the response to a list without objects at a revision.
func empty(req *http.Request, revision int64) *http.Response {
	// Clients for one kind need no kind in the answer.
	kind := ""
	if strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		kind = `"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1",`
	}
	return answer(req, "application/json", fmt.Appendf(nil, `{%s"metadata":{"resourceVersion":"%d"},"items":[]}`, kind, revision))
}

func answer(req *http.Request, contentType string, body []byte) *http.Response {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header:        http.Header{"Content-Type": {contentType}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       req,
	}
}

// Clients returns clients whose informers list first and then watch. A Transport delays watches,
// and an informer that got its first objects by a watch would wait for ever.
func Clients(k kubernetes.Interface, m metadata.Interface) (kubernetes.Interface, metadata.Interface) {
	return listing{k}, listingMetadata{m}
}

type listing struct{ kubernetes.Interface }

// IsWatchListSemanticsUnSupported is asked by informers.
func (listing) IsWatchListSemanticsUnSupported() bool { return true }

type listingMetadata struct{ metadata.Interface }

// IsWatchListSemanticsUnSupported is asked by informers.
func (listingMetadata) IsWatchListSemanticsUnSupported() bool { return true }
