package objects

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// A resourceVersion that is not a number is a client error, in every read.
func TestReadsRefuseAResourceVersionThatIsNoNumber(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	ns := s.Namespace(t)
	h := s.HTTP(t, nil)
	widgets := "/apis/" + define(t, s, ns) + "/v1/namespaces/" + ns + "/widgets"
	h.Must(http.StatusCreated, "POST", widgets, toJSON(`{apiVersion: %s, kind: Widget, metadata: {name: there}, spec: {color: red}}`,
		strings.Join(strings.Split(widgets, "/")[2:4], "/")))
	configMaps := "/api/v1/namespaces/" + ns + "/configmaps"
	h.Must(http.StatusCreated, "POST", configMaps, configMap("there"))
	for _, c := range []struct{ name, path string }{
		{"get of a built-in kind", configMaps + "/there?"},
		{"get of what is not there", configMaps + "/nothing?"},
		{"get of a subresource", "/api/v1/namespaces/" + ns + "/status?"},
		{"get of a kind without a cache", "/api/v1/namespaces/" + ns + "/events/nothing?"},
		{"get of a custom kind", widgets + "/there?"},
		{"get of a custom subresource", widgets + "/there/status?"},
		{"get of a definition", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nothing?"},
		{"get of a registration", registrationsPath("v1", validating) + "/nothing?"},
		{"list of a built-in kind", configMaps + "?"},
		{"list of a custom kind", widgets + "?"},
		{"watch of a built-in kind", configMaps + "?watch=1&"},
		{"watch of one object", configMaps + "?watch=1&fieldSelector=metadata.name%3Dthere&"},
		{"watch of a kind without a cache", "/api/v1/namespaces/" + ns + "/events?watch=1&"},
		{"watch of a custom kind", widgets + "?watch=1&"},
	} {
		for _, version := range []string{"abc", "-1", "1.5", "99999999999999999999"} {
			t.Run(c.name+", "+version, func(t *testing.T) {
				status := s.HTTP(t, nil).Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "GET", c.path+"resourceVersion="+version, "")
				if want := `resourceVersion: Invalid value: "` + version + `"`; !strings.Contains(status.Message, want) {
					t.Errorf("no %q in %q", want, status.Message)
				}
			})
		}
	}
	t.Run("as tables", func(t *testing.T) {
		for _, path := range []string{configMaps + "/there?", widgets + "?watch=1&"} {
			r := s.HTTP(t, nil).Do("GET", path+"resourceVersion=abc", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
			want(t, path, r.Code, http.StatusBadRequest)
		}
	})
	want(t, "what is there is still read", h.Get(configMaps+"/there?resourceVersion=0").Text("metadata", "name"), "there")
}
