package resources

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// S27.9: the size of a body in YAML includes its expanded aliases. Other bodies, and bodies of connections, are not
// changed.
func TestAliasesInBodies(t *testing.T) {
	const most = 10_000
	aliases := "a: &a " + strings.Repeat("x", 1000) + "\nb: [" + strings.Repeat("*a,", 20) + "*a]"
	long := strings.Repeat("- x\n", most)
	objects := &Endpoint{Storage: listing{}, Scope: &handlers.RequestScope{MaxRequestBodyBytes: most}}
	proxy := &Endpoint{Storage: connecting{}, Scope: objects.Scope}
	for _, c := range []struct {
		name        string
		at          *Endpoint
		verb        string
		contentType string
		body        string
		refused     bool
	}{
		{"a create", objects, "create", "application/yaml", aliases, true},
		{"an update", objects, "update", "Application/YAML ; charset=utf-8", aliases, true},
		{"options of a deletion", objects, "delete", "application/yaml", aliases, true},
		{"an apply", objects, "patch", "application/apply-patch+yaml", aliases, true},
		{"an apply with parameters that occur twice", objects, "patch", "application/apply-patch+yaml;a=1;a=2", aliases, true},
		{"a long body", objects, "create", "application/yaml", long, true},
		{"few aliases", objects, "create", "application/yaml", "a: &a 1\nb: *a", false},
		{"JSON", objects, "create", "application/json", aliases, false},
		{"a connection", proxy, "create", "application/yaml", aliases, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(c.body))
			req.Header.Set("Content-Type", c.contentType)
			err := c.at.refuses(&request.RequestInfo{Verb: c.verb}, req)
			if apierrors.IsRequestEntityTooLargeError(err) != c.refused || (err != nil) != c.refused {
				t.Fatalf("%v", err)
			}
			if body, err := io.ReadAll(req.Body); !c.refused && (err != nil || string(body) != c.body) {
				t.Errorf("the handler reads %d bytes, %v", len(body), err)
			}
		})
	}
}

// S11.22: k8s.io/apiserver decides the type of a patch by the text before the semicolon of its media type, and so does
// the check of the reserved annotation.
func TestReservedAnnotationInPatches(t *testing.T) {
	e := &Endpoint{Storage: listing{}, Scope: &handlers.RequestScope{Serializer: scheme.Codecs, MaxRequestBodyBytes: 10_000},
		PatchTypes: []string{string(types.ApplyYAMLPatchType), string(types.StrategicMergePatchType)}}
	for _, mediaType := range e.PatchTypes {
		for _, parameters := range []string{"", ";charset=utf-8", ";a=1;a=2", ";;", "; =\""} {
			body := `{"metadata":{"annotations":{"` + initializers.Annotation + `":"{}"}}}`
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/", strings.NewReader(body))
			req.Header.Set("Content-Type", mediaType+parameters)
			answer := httptest.NewRecorder()
			e.patch(nil, nil)(answer, req)
			if text := answer.Body.String(); answer.Code != http.StatusBadRequest || !strings.Contains(text, "is reserved") {
				t.Errorf("%s%s: %d %s", mediaType, parameters, answer.Code, text)
			}
		}
	}
}
