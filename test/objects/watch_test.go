package objects

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/api/v1/namespaces/" + s.Namespace(t) + "/configmaps"
	h.Must(http.StatusCreated, "POST", path, configMap("before", "app", "web"))
	version := h.Get(path).Text("metadata", "resourceVersion")

	all := h.Watch(path + "?watch=1&resourceVersion=" + version)
	state := h.Watch(path + "?watch=1&resourceVersion=0")
	labelled := h.Watch(path + "?watch=1&labelSelector=app=web&resourceVersion=" + version)
	one := h.Watch(path + "?watch=1&resourceVersion=" + version + "&fieldSelector=" + url.QueryEscape("metadata.name=a"))

	h.Must(http.StatusCreated, "POST", path, configMap("a"))
	h.Must(http.StatusOK, "PATCH", path+"/a", `{"metadata":{"labels":{"app":"web"}}}`, "Content-Type", "application/merge-patch+json")
	h.Must(http.StatusOK, "PATCH", path+"/before", `{"data":{"x":"y"}}`, "Content-Type", "application/merge-patch+json")
	h.Must(http.StatusOK, "PATCH", path+"/a", `{"metadata":{"labels":{"app":null}}}`, "Content-Type", "application/merge-patch+json")
	h.Must(http.StatusOK, "DELETE", path+"/a", "")
	h.Must(http.StatusOK, "DELETE", path+"/before", "")

	for _, c := range []struct {
		name   string
		stream *harness.Stream
		want   []string
	}{
		{"all", all, []string{"ADDED a", "MODIFIED a", "MODIFIED before", "MODIFIED a", "DELETED a", "DELETED before"}},
		{"state first", state, []string{"ADDED before", "ADDED a", "MODIFIED a", "MODIFIED before", "MODIFIED a", "DELETED a", "DELETED before"}},
		{"label selector", labelled, []string{"ADDED a", "MODIFIED before", "DELETED a", "DELETED before"}},
		{"one name", one, []string{"ADDED a", "MODIFIED a", "MODIFIED a", "DELETED a"}},
	} {
		var got []string
		for range c.want {
			got = append(got, line(c.stream.Next()))
		}
		want(t, c.name, got, c.want)
	}

	t.Run("resume", func(t *testing.T) {
		h := s.HTTP(t, nil)
		resumed := h.Watch(path + "?watch=1&resourceVersion=" + version)
		want(t, "first", line(resumed.Next()), "ADDED a")
		second := resumed.Next()
		later := h.Watch(path + "?watch=1&resourceVersion=" + fmt.Sprint(harness.At(second.Object, "metadata", "resourceVersion")))
		want(t, "third", line(later.Next()), "MODIFIED before")
	})
	t.Run("ends at its timeout", func(t *testing.T) {
		h := s.HTTP(t, nil)
		w := h.Watch(path + "?watch=1&timeoutSeconds=1&resourceVersion=" + h.Get(path).Text("metadata", "resourceVersion"))
		if e, err := w.Read(); err == nil {
			t.Errorf("unexpected event %s", line(e))
		}
	})
}

func TestWatchList(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/api/v1/namespaces/" + s.Namespace(t) + "/configmaps"
	for _, name := range []string{"a", "b"} {
		h.Must(http.StatusCreated, "POST", path, configMap(name))
	}
	w := h.Watch(path + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	seen := map[string]bool{}
	var end harness.Event
	for end = w.Next(); end.Type == "ADDED"; end = w.Next() {
		seen[line(end)] = true
	}
	want(t, "initial events", seen, map[string]bool{"ADDED a": true, "ADDED b": true})
	want(t, "then", end.Type, "BOOKMARK")
	want(t, "annotation", harness.At(end.Object, "metadata", "annotations", "k8s.io/initial-events-end"), any("true"))
	h.Must(http.StatusCreated, "POST", path, configMap("c"))
	// Further bookmarks may arrive at any time.
	next := w.Next()
	for next.Type == "BOOKMARK" {
		next = w.Next()
	}
	want(t, "afterwards", line(next), "ADDED c")
}
