package places

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// S22.16: objects of a group that another server had are never looked for in this etcd again.
func TestObjectsOfOtherServersAreNotLookedForHere(t *testing.T) {
	var remote []schema.GroupVersion
	elsewhere := Elsewhere(func() []schema.GroupVersion { return remote })
	places := Places{Root: "/registry"}
	prefix, read := places.Prefixes(elsewhere), places.Read(elsewhere)
	check := func(when, group, want string) {
		t.Helper()
		gr := schema.GroupResource{Group: group, Resource: "things"}
		if got := prefix(gr); got != want {
			t.Errorf("%s: the objects are at %q, want %q", when, got, want)
		}
		if got := read(gr); got != (want != "") {
			t.Errorf("%s: read from etcd: %t", when, got)
		}
	}
	check("no APIService", "a.example.com", "/registry/a.example.com/things/")
	remote = []schema.GroupVersion{{Group: "a.example.com", Version: "v1"}}
	check("an APIService", "a.example.com", "")
	check("the APIService of another group", "b.example.com", "/registry/b.example.com/things/")
	remote = nil
	check("a deleted APIService", "a.example.com", "")
	check("the deleted APIService of another group", "b.example.com", "/registry/b.example.com/things/")
}
