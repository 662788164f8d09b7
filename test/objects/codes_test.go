package objects

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	ns := s.Namespace(t)
	admin := s.HTTP(t, nil)
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	admin.Must(http.StatusCreated, "POST", path, configMap("there"))
	anonymous := s.WithToken("")
	nobody := s.WithToken("no-such-token")
	carol := s.WithToken("carol-token")
	const yamlType, protobuf = "application/yaml", "application/vnd.kubernetes.protobuf"

	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		code                     int
		reason                   metav1.StatusReason
	}{
		{"400 truncated JSON", "POST", path, `{"apiVersion":"v1","kind":`, nil, 400, metav1.StatusReasonBadRequest},
		{"400 empty body", "POST", path, ``, nil, 400, metav1.StatusReasonBadRequest},
		{"400 no object", "POST", path, `[]`, nil, 400, metav1.StatusReasonBadRequest},
		{"400 a text", "POST", path, `"x"`, nil, 400, metav1.StatusReasonBadRequest},
		{"400 wrong type of a field", "POST", path, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":7}}`, nil, 400, metav1.StatusReasonBadRequest},
		{"400 wrong kind", "POST", path, pod("p"), nil, 400, metav1.StatusReasonBadRequest},
		{"400 unknown kind", "POST", path, `{"apiVersion":"v1","kind":"Nonsense","metadata":{"name":"n"}}`, nil, 400, metav1.StatusReasonBadRequest},
		{"400 unknown version", "POST", path, `{"apiVersion":"v9","kind":"ConfigMap","metadata":{"name":"n"}}`, nil, 400, metav1.StatusReasonBadRequest},
		{"400 another namespace", "POST", path, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n","namespace":"elsewhere"}}`, nil, 400, metav1.StatusReasonBadRequest},
		{"400 truncated YAML", "POST", path, "apiVersion: v1\nkind: [", []string{"Content-Type", yamlType}, 400, metav1.StatusReasonBadRequest},
		{"400 YAML with a tab", "POST", path, "apiVersion: v1\n\tkind: ConfigMap", []string{"Content-Type", yamlType}, 400, metav1.StatusReasonBadRequest},
		{"400 garbage as protobuf", "POST", path, "k8s\x00garbage", []string{"Content-Type", protobuf}, 400, metav1.StatusReasonBadRequest},
		{"400 JSON as protobuf", "POST", path, configMap("x"), []string{"Content-Type", protobuf}, 400, metav1.StatusReasonBadRequest},
		{"400 bad limit", "GET", path + "?limit=many", ``, nil, 400, metav1.StatusReasonBadRequest},
		{"400 bad selector", "GET", path + "?labelSelector=" + "%3D%3D", ``, nil, 400, metav1.StatusReasonBadRequest},
		{"400 bad timeout", "GET", path + "?timeout=soon", ``, nil, 400, metav1.StatusReasonBadRequest},
		{"400 bad delete options", "DELETE", path + "/there", `{"gracePeriodSeconds":"x"}`, nil, 400, metav1.StatusReasonBadRequest},
		{"404 unknown group", "GET", "/apis/example.com/v1/things", ``, nil, 404, metav1.StatusReasonNotFound},
		{"404 unknown version", "GET", "/apis/apps/v7/deployments", ``, nil, 404, metav1.StatusReasonNotFound},
		{"404 unknown resource", "GET", "/api/v1/things", ``, nil, 404, metav1.StatusReasonNotFound},
		{"404 unknown subresource", "GET", path + "/there/parts", ``, nil, 404, metav1.StatusReasonNotFound},
		{"404 cluster resource in a namespace", "GET", "/api/v1/namespaces/" + ns + "/nodes", ``, nil, 404, metav1.StatusReasonNotFound},
		{"404 unknown object", "GET", path + "/nothing", ``, nil, 404, metav1.StatusReasonNotFound},
		{"404 create in an unknown namespace", "POST", "/api/v1/namespaces/nowhere/configmaps", configMap("c"), nil, 404, metav1.StatusReasonNotFound},
		{"405 create without a namespace", "POST", "/api/v1/configmaps", configMap("c"), nil, 405, metav1.StatusReasonMethodNotAllowed},
		{"405 delete all nodes by name", "POST", "/api/v1/namespaces/" + ns, `{}`, nil, 405, metav1.StatusReasonMethodNotAllowed},
		{"405 put to a collection", "PUT", path, configMap("c"), nil, 405, metav1.StatusReasonMethodNotAllowed},
		{"405 unknown method", "FETCH", path, ``, nil, 405, metav1.StatusReasonMethodNotAllowed},
		{"405 list of token reviews", "GET", "/apis/authentication.k8s.io/v1/tokenreviews", ``, nil, 405, metav1.StatusReasonMethodNotAllowed},
		{"406 unknown type wanted", "GET", path, ``, []string{"Accept", "text/csv"}, 406, metav1.StatusReasonNotAcceptable},
		{"406 unknown transformation wanted", "GET", path, ``, []string{"Accept", "application/json;as=Poem;v=v1;g=meta.k8s.io"}, 406, metav1.StatusReasonNotAcceptable},
		{"409 exists", "POST", path, configMap("there"), nil, 409, metav1.StatusReasonAlreadyExists},
		{"413 body too large", "POST", path, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n"},"data":{"k":"` + strings.Repeat("x", 4<<20) + `"}}`, nil, 413, metav1.StatusReasonRequestEntityTooLarge},
		{"415 unknown type", "POST", path, `x`, []string{"Content-Type", "text/plain"}, 415, metav1.StatusReasonUnsupportedMediaType},
		{"415 unparsable type", "POST", path, configMap("n"), []string{"Content-Type", "a/b/c;;"}, 415, metav1.StatusReasonUnsupportedMediaType},
		{"422 name with a control character", "POST", path, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a\u0007b"}}`, nil, 422, metav1.StatusReasonInvalid},
		{"422 name with a slash", "POST", path, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a/b"}}`, nil, 422, metav1.StatusReasonInvalid},
		{"422 null", "POST", path, `null`, nil, 422, metav1.StatusReasonInvalid},
		{"422 no name", "POST", path, `{"apiVersion":"v1","kind":"ConfigMap"}`, nil, 422, metav1.StatusReasonInvalid},
		{"422 name too long", "POST", path, configMap(strings.Repeat("a", 254)), nil, 422, metav1.StatusReasonInvalid},
		{"422 bad label", "POST", path, configMap("n", "a b", "c"), nil, 422, metav1.StatusReasonInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.HTTP(t, nil).Refused(c.code, c.reason, c.method, c.path, c.body, c.headers...)
		})
	}
	t.Run("404 unknown path", func(t *testing.T) {
		for _, path := range []string{"/nothing/at/all", "/apis/example.com", "/apis/example.com/v1", "/api/v2"} {
			s.HTTP(t, nil).Must(http.StatusNotFound, "GET", path, "")
		}
	})
	t.Run("401 unknown token", func(t *testing.T) {
		s.HTTP(t, nobody).Refused(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "GET", path, "")
	})
	t.Run("401 nobody", func(t *testing.T) {
		s.HTTP(t, anonymous).Refused(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "GET", path, "")
	})
	t.Run("403", func(t *testing.T) {
		status := s.HTTP(t, carol).Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "GET", path+"/there", "")
		want(t, "message", status.Message, fmt.Sprintf(`configmaps "there" is forbidden: User "carol" cannot get resource "configmaps" in API group "" in the namespace %q`, ns))
	})
	t.Run("refusals in the form that is wanted", func(t *testing.T) {
		r := s.HTTP(t, nil).Do("GET", path+"/nothing", "", "Accept", yamlType)
		want(t, "type", r.Header.Get("Content-Type"), yamlType)
		want(t, "kind", r.Text("kind"), "Status")
	})
	want(t, "stored", names(admin.Get(path)), []string{"kube-root-ca.crt", "there"}[1:])
}

// TestHistory watches from a version older than the watch cache, which etcd still has.
func TestHistory(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/api/v1/namespaces/" + s.Namespace(t) + "/configmaps"
	h.Must(http.StatusCreated, "POST", path, `{"metadata":{"name":"a"}}`)
	r := h.Must(http.StatusOK, "GET", path+"?watch=1&resourceVersion=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da", "")
	want(t, "event", r.Text("type")+" "+r.Text("object", "metadata", "name"), "ADDED a")
}
