package access

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// The authorizer does not know which resources are namespaced: the server must not pass it a namespace in
// which the caller may do everything instead of the namespace of the object.
func TestNamespacesAreInNoNamespace(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	own, other := s.Namespace(t), s.Namespace(t)
	allow(t, s, own, "nadia", `{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}`)
	h := s.HTTP(t, s.As("nadia", "system:authenticated"))
	h.Must(http.StatusOK, "GET", "/api/v1/namespaces/"+own, "")
	inside := "/api/v1/namespaces/" + own + "/namespaces"
	for _, c := range []struct{ method, path, body string }{
		{"GET", inside, ""},
		{"POST", inside, `{"metadata":{"name":"nadias"}}`},
		{"GET", inside + "/" + other, ""},
		{"PUT", inside + "/" + other, `{"metadata":{"name":"` + other + `"}}`},
		{"DELETE", inside + "/" + other, ""},
		{"DELETE", inside, ""},
		{"PUT", inside + "/" + other + "/status", `{"metadata":{"name":"` + other + `"}}`},
		{"GET", "/api/v1/watch/namespaces/" + own + "/namespaces/" + other, ""},
		{"GET", "/api/v1/namespaces/" + own + "/nodes", ""},
		{"POST", "/api/v1/watch/namespaces/" + own + "/pods/p/exec", ""},
		{"GET", "/apis//v1/namespaces/" + own + "/configmaps", ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			s.HTTP(t, s.As("nadia", "system:authenticated")).Refused(http.StatusNotFound, metav1.StatusReasonNotFound, c.method, c.path, c.body, "Content-Type", "application/json")
		})
	}
	r := s.HTTP(t, nil).Must(http.StatusOK, "GET", "/api/v1/namespaces/"+other, "")
	want(t, "phase", r.Text("status", "phase"), "Active")
}

// Users with permission to bind a pod, or to patch an object's annotations, cannot change its initializers.
func TestInitializersAreNamedOrLeftAlone(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	const with = "?includeUninitialized=true"
	ns := "/api/v1/namespaces/" + s.Namespace(t)
	const pending = `"initializers":{"pending":[{"name":"one.example.com"},{"name":"two.example.com"}]}`

	for _, c := range []struct{ name, path string }{
		{"S11.41 a binding", ns + "/pods/p/binding"},
		{"S11.41 a binding by the old path", ns + "/bindings"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := s.HTTP(t, nil)
			h.Must(http.StatusCreated, "POST", ns+"/pods", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
			h.Must(http.StatusCreated, "POST", c.path, `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p","annotations":{"a":"b"},`+pending+`},"target":{"kind":"Node","name":"n"}}`)
			r := h.Must(http.StatusOK, "GET", ns+"/pods/p", "")
			want(t, "node", r.Text("spec", "nodeName"), "n")
			want(t, "annotations", r.At("metadata", "annotations"), any(map[string]any{"a": "b"}))
			h.Must(http.StatusOK, "DELETE", ns+"/pods/p", `{"gracePeriodSeconds":0}`)
		})
	}

	path := ns + "/configmaps"
	h.Must(http.StatusAccepted, "POST", path+with, `{"metadata":{"name":"c","annotations":{"a":"b"},`+pending+`}}`)
	for _, c := range []struct {
		name, patch string
		annotations any
	}{
		{"all annotations replaced", `{"metadata":{"annotations":{"$patch":"replace","c":"d"}}}`, map[string]any{"c": "d"}},
		{"all annotations removed", `{"metadata":{"annotations":null}}`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := s.HTTP(t, nil).Must(http.StatusOK, "PATCH", path+"/c", c.patch, "Content-Type", "application/strategic-merge-patch+json")
			want(t, "annotations", r.At("metadata", "annotations"), c.annotations)
			want(t, "first initializer", r.Text("metadata", "initializers", "pending", "0", "name"), "one.example.com")
		})
	}
	t.Run("a patch that makes no sense does not quote the object", func(t *testing.T) {
		status := s.HTTP(t, nil).Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "PATCH", path+"/c",
			`{"metadata":{"initializers":{"$patch":"forget"}}}`, "Content-Type", "application/strategic-merge-patch+json")
		if !strings.Contains(status.Message, "forget") || strings.Contains(status.Message, "resourceVersion") {
			t.Errorf("message %q", status.Message)
		}
	})
	t.Run("the annotation does not show in a table asked for with blanks", func(t *testing.T) {
		for _, p := range []string{path + "/c" + with, path + with + "&includeObject=Object"} {
			r := s.HTTP(t, nil).Must(http.StatusOK, "GET", p, "", "Accept", "application/json;as = Table;v=v1;g=meta.k8s.io")
			want(t, "kind", r.Text("kind"), "Table")
			if strings.Contains(string(r.Raw), "gatehouse.dev/") {
				t.Errorf("%s: %s", p, r.Raw)
			}
		}
	})
}
