package lazyinformer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// server records the requests that reach it.
type server struct {
	count atomic.Int32
	last  atomic.Pointer[http.Request]
}

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	s.count.Add(1)
	s.last.Store(req)
	return &http.Response{StatusCode: http.StatusTeapot, Body: http.NoBody}, nil
}

func newTransport(t *testing.T) (*Transport, *clientv3.Client, *server) {
	etcd := etcdtest.Start(t)
	next := &server{}
	return &Transport{Next: next, Etcd: etcd.Client, Prefix: func(gr schema.GroupResource) string {
		switch gr {
		case schema.GroupResource{Resource: "pods"}:
			return "/registry/pods/"
		case schema.GroupResource{Group: "example.com", Resource: "widgets"}:
			return "/registry/example.com/widgets/"
		}
		return ""
	}}, etcd.Client, next
}

func request(t *testing.T, ctx context.Context, method, path string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "https://server"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestOnlyListsOfEmptyCollectionsAreAnswered(t *testing.T) {
	transport, etcd, _ := newTransport(t)
	if _, err := etcd.Put(t.Context(), "/registry/pods/ns/p", "x"); err != nil {
		t.Fatal(err)
	}
	const widgets = "/apis/example.com/v1/widgets"
	for _, tc := range []struct {
		name, method, path, accept string
		want                       string
	}{
		{"a collection with an object", "GET", "/api/v1/pods", "", ""},
		{"an empty collection", "GET", widgets + "?limit=500", "", `{"metadata":{"resourceVersion":"R"},"items":[]}`},
		{"metadata only", "GET", widgets, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
			`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"R"},"items":[]}`},
		{"of one namespace", "GET", "/apis/example.com/v1/namespaces/ns/widgets", "", ""},
		{"an object", "GET", widgets + "/w", "", ""},
		{"a write", "DELETE", widgets, "", ""},
		{"a resource that is not in etcd", "GET", "/api/v1/componentstatuses", "", ""},
		{"no resource", "GET", "/apis/example.com/v1", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := request(t, t.Context(), tc.method, tc.path)
			req.Header.Set("Accept", tc.accept)
			response, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" {
				if response.StatusCode != http.StatusTeapot {
					t.Errorf("the server was not asked: %d", response.StatusCode)
				}
				return
			}
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			now, err := etcd.Get(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			if want := strings.Replace(tc.want, "R", strconv.FormatInt(now.Header.Revision, 10), 1); string(body) != want {
				t.Errorf("got %s, want %s", body, want)
			}
		})
	}
}

// A watch of an empty collection reaches the server when the first object is stored, and
// begins right before that.
func TestAWatchBeginsWithTheFirstObject(t *testing.T) {
	transport, etcd, next := newTransport(t)
	answered := make(chan error)
	go func() {
		_, err := transport.RoundTrip(request(t, t.Context(), "GET", "/api/v1/pods?watch=true&resourceVersion=1"))
		answered <- err
	}()
	// Writes of other resources are not reported.
	if _, err := etcd.Put(t.Context(), "/registry/podsecurity/x", "x"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-answered:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	put, err := etcd.Put(t.Context(), "/registry/pods/ns/p", "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	want := url.Values{"watch": {"true"}, "resourceVersion": {strconv.FormatInt(put.Header.Revision-1, 10)}}
	got := next.last.Load().URL.Query()
	// The object may have been stored before the watch.
	if got.Encode() != want.Encode() && got.Get("resourceVersion") != "1" {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAWatchThatNobodyWantsAnyMoreEnds(t *testing.T) {
	transport, _, next := newTransport(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	response, err := transport.RoundTrip(request(t, ctx, "GET", "/api/v1/pods?watch=true&resourceVersion=1"))
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return // It ended before the collection was counted.
	}
	if body, err := io.ReadAll(response.Body); err != nil || len(body) > 0 || response.StatusCode != http.StatusOK {
		t.Errorf("got %d %q, %v", response.StatusCode, body, err)
	}
	if next.count.Load() > 0 {
		t.Error("it was sent")
	}
}

func TestAwaitWaitsForTheFirstObjectOfAny(t *testing.T) {
	_, etcd, _ := newTransport(t)
	awaited := make(chan error)
	go func() { awaited <- Await(t.Context(), etcd, "/registry/a/", "/registry/b/") }()
	if _, err := etcd.Put(t.Context(), "/registry/c/x", "x"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-awaited:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	if _, err := etcd.Put(t.Context(), "/registry/b/x", "x"); err != nil {
		t.Fatal(err)
	}
	if err := <-awaited; err != nil {
		t.Error(err)
	}
	// Existing objects end the wait at once.
	if err := Await(t.Context(), etcd, "/registry/a/", "/registry/b/"); err != nil {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := Await(ended, etcd, "/registry/a/"); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v", err)
	}
}
