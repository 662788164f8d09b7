package lazyinformer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// asMetadata is the Accept header of metadata clients.
func asMetadata(list string) string {
	return "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata" + list + ";g=meta.k8s.io;v=v1,application/json"
}

const widgetObject = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"%s","namespace":"ns","uid":"u-%s","labels":{"a":"b"},
	"finalizers":["f"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}],"deletionTimestamp":"2026-01-02T03:04:05Z"},"spec":{"x":1}}`

// custom makes the widgets of a transport custom objects.
func custom(t *Transport) {
	t.Custom = func(gr schema.GroupResource) bool { return gr.Resource == "widgets" }
}

func TestMetadataOfCustomObjectsIsReadFromEtcd(t *testing.T) {
	transport, etcd, next := newTransport(t)
	custom(transport)
	const root = "/registry/example.com/widgets/"
	var names []string
	for i := range 7 {
		name := fmt.Sprint("w", i)
		names = append(names, name)
		if _, err := etcd.Put(t.Context(), root+"ns/"+name, fmt.Sprintf(widgetObject, name, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []string{"", "3", "7", "500"} {
		t.Run("limit "+limit, func(t *testing.T) {
			var got []string
			token, revision := "", ""
			for {
				req := request(t, t.Context(), "GET", "/apis/example.com/v1/widgets?resourceVersion=0&limit="+limit+"&continue="+token)
				req.Header.Set("Accept", asMetadata("List"))
				response, err := transport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				list := &metav1.PartialObjectMetadataList{}
				if err := json.NewDecoder(response.Body).Decode(list); err != nil || list.Kind != "PartialObjectMetadataList" {
					t.Fatalf("%v: %+v", err, list)
				}
				if revision != "" && list.ResourceVersion != revision {
					t.Errorf("the pages are of revisions %s and %s", revision, list.ResourceVersion)
				}
				revision = list.ResourceVersion
				for _, one := range list.Items {
					got = append(got, one.Name)
					if string(one.UID) != "u-"+one.Name || one.Namespace != "ns" || one.ResourceVersion == "" || one.DeletionTimestamp == nil ||
						!slices.Equal(one.Finalizers, []string{"f"}) || len(one.OwnerReferences) != 1 || one.OwnerReferences[0].Name != "p" {
						t.Errorf("got %+v", one)
					}
				}
				// Objects that are stored meanwhile are not in the next pages.
				if _, err := etcd.Put(t.Context(), root+"ns/z", fmt.Sprintf(widgetObject, "z", "z")); err != nil {
					t.Fatal(err)
				}
				if token = list.Continue; token == "" {
					break
				}
			}
			if !slices.Equal(got, names) {
				t.Errorf("got %q, want %q", got, names)
			}
			if _, err := etcd.Delete(t.Context(), root+"ns/z"); err != nil {
				t.Fatal(err)
			}
		})
	}
	if next.count.Load() > 0 {
		t.Error("the server was asked")
	}
	req := request(t, t.Context(), "GET", "/apis/example.com/v1/widgets")
	if response, err := transport.RoundTrip(req); err != nil || response.StatusCode != http.StatusTeapot {
		t.Errorf("a list of whole objects: %v, %v", response, err)
	}
	if _, err := etcd.Put(t.Context(), root+"ns/broken", "{"); err != nil {
		t.Fatal(err)
	}
	req = request(t, t.Context(), "GET", "/apis/example.com/v1/widgets")
	req.Header.Set("Accept", asMetadata("List"))
	if response, err := transport.RoundTrip(req); err != nil || response.StatusCode != http.StatusInternalServerError {
		t.Errorf("with an object that cannot be read: %v, %v", response, err)
	}
}

func TestMetadataOfCustomObjectsIsWatchedInEtcd(t *testing.T) {
	transport, etcd, next := newTransport(t)
	custom(transport)
	const key = "/registry/example.com/widgets/ns/w"
	put := func() int64 {
		t.Helper()
		response, err := etcd.Put(t.Context(), key, fmt.Sprintf(widgetObject, "w", "w"))
		if err != nil {
			t.Fatal(err)
		}
		return response.Header.Revision
	}
	watch := func(revision int64) *bufio.Scanner {
		t.Helper()
		req := request(t, t.Context(), "GET", fmt.Sprint("/apis/example.com/v1/widgets?watch=true&timeoutSeconds=1&resourceVersion=", revision))
		req.Header.Set("Accept", asMetadata(""))
		response, err := transport.RoundTrip(req)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", response, err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return bufio.NewScanner(response.Body)
	}
	before := put()
	events := watch(before - 1)
	after := put()
	deleted, err := etcd.Delete(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		kind     string
		revision int64
	}{{"ADDED", before}, {"MODIFIED", after}, {"DELETED", deleted.Header.Revision}} {
		if !events.Scan() {
			t.Fatal(events.Err())
		}
		var got struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		if err := json.Unmarshal(events.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got.Type != want.kind || got.Object.Name != "w" || got.Object.UID != "u-w" || got.Object.ResourceVersion != fmt.Sprint(want.revision) {
			t.Errorf("got %s, want %s at %d", events.Bytes(), want.kind, want.revision)
		}
	}
	if _, err := etcd.Put(t.Context(), key, "{"); err != nil {
		t.Fatal(err)
	}
	if !events.Scan() || !strings.Contains(events.Text(), `"type":"ERROR"`) || !strings.Contains(events.Text(), `"code":500`) || events.Scan() {
		t.Errorf("of an object that cannot be read: %s", events.Text())
	}
	now := put()
	if _, err := etcd.Compact(t.Context(), now, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	events = watch(before)
	if !events.Scan() || !strings.Contains(events.Text(), `"code":410`) || events.Scan() {
		t.Errorf("of what etcd has forgotten: %s", events.Text())
	}
	if next.count.Load() > 0 {
		t.Error("the server was asked")
	}
}

// S11.59: a server must see the objects that are not initialized, to tend them: their kinds are
// listed and watched through the server.
func TestObjectsThatAreNotInitializedAreSeenByTheServer(t *testing.T) {
	const key, text = "/registry/example.com/widgets/ns/w", `{"metadata":{"name":"w","annotations":{"` + initializers.Annotation + `":"{}"}}}`
	list := func(transport *Transport, query string) *http.Response {
		t.Helper()
		req := request(t, t.Context(), "GET", "/apis/example.com/v1/widgets?"+query)
		req.Header.Set("Accept", asMetadata("List"))
		response, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	transport, etcd, _ := newTransport(t)
	custom(transport)
	empty, err := etcd.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	watch := func() *http.Response {
		t.Helper()
		req := request(t, t.Context(), "GET", fmt.Sprint("/apis/example.com/v1/widgets?watch=true&resourceVersion=", empty.Header.Revision))
		req.Header.Set("Accept", asMetadata(""))
		response, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	events := bufio.NewScanner(watch().Body)
	if _, err := etcd.Put(t.Context(), key, text); err != nil {
		t.Fatal(err)
	}
	if !events.Scan() || !strings.Contains(events.Text(), `"code":410`) || events.Scan() {
		t.Errorf("the watch that was there: %s", events.Text())
	}
	if got := list(transport, "").StatusCode; got != http.StatusTeapot {
		t.Errorf("the list: %d", got)
	}
	if got := watch().StatusCode; got != http.StatusTeapot {
		t.Errorf("the next watch: %d", got)
	}
	// A list that began without such an object is restarted.
	other := &Transport{Next: transport.Next, Etcd: transport.Etcd, Prefix: transport.Prefix}
	custom(other)
	if _, err := etcd.Put(t.Context(), "/registry/example.com/widgets/ns/a", `{"metadata":{"name":"a"}}`); err != nil {
		t.Fatal(err)
	}
	first := &metav1.PartialObjectMetadataList{}
	if err := json.NewDecoder(list(other, "limit=1").Body).Decode(first); err != nil || len(first.Items) != 1 {
		t.Fatalf("%v: %+v", err, first)
	}
	if got := list(other, "limit=1&continue="+first.Continue).StatusCode; got != http.StatusGone {
		t.Errorf("the second page: %d", got)
	}
	if got := list(other, "limit=1").StatusCode; got != http.StatusTeapot {
		t.Errorf("the list from the beginning: %d", got)
	}
}
