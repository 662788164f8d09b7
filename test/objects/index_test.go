package objects

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// S22.25: the index lists the served paths, for users with permission to read it.
func TestTheIndexListsThePaths(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, impatient...)
	admin := s.HTTP(t, nil)
	list := func(path string) []string {
		t.Helper()
		var index struct{ Paths []string }
		if err := json.Unmarshal(admin.Get(path).Raw, &index); err != nil {
			t.Fatal(err)
		}
		return index.Paths
	}
	paths := list("/")
	if !slices.IsSorted(paths) {
		t.Errorf("not sorted: %q", paths)
	}
	for _, path := range []string{"/api", "/api/v1", "/apis", "/apis/", "/apis/apps", "/apis/apps/v1", "/apis/gatehouse.dev/v1alpha1", "/healthz/etcd", "/metrics", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"} {
		if !slices.Contains(paths, path) {
			t.Errorf("%s is missing", path)
		}
	}
	if other := list("/index.html"); !slices.Equal(paths, other) {
		t.Errorf("/index.html: %q", other)
	}
	s.HTTP(t, s.As("alice")).Refused(http.StatusForbidden, "Forbidden", "GET", "/", "")
	admin.Must(http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("index.example.com", "Widget", "widgets", "Namespaced", "v1"))
	harness.Eventually(t, "a custom version is in the index", func() error {
		if paths := list("/"); !slices.Contains(paths, "/apis/index.example.com") || !slices.Contains(paths, "/apis/index.example.com/v1") {
			return fmt.Errorf("%q", paths)
		}
		return nil
	})
}
