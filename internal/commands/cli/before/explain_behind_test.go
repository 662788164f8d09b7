package before

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
)

// S22.30: a request for the group of a server that announces explanations is explained by that server. When the
// server does not explain it, the plan of the main server has the reason.
func TestExplainAsksTheServerOfTheGroup(t *testing.T) {
	for _, tt := range []struct {
		name, group, announced string
		refuses                bool
		asked                  []string
		note                   string
	}{
		{"a server that explains", "gallery.example.com", "gallery.example.com/v1", false, []string{"gallery.example.com/v1"}, ""},
		{"one that refuses", "gallery.example.com", "gallery.example.com/v1", true, []string{"gallery.example.com/v1", "gatehouse.dev/v1alpha1"}, "effects of the server of gallery.example.com/v1: it does not explain the request: no role"},
		{"one of another group", "gallery.example.com", "museum.example.com/v1", false, []string{"gatehouse.dev/v1alpha1"}, ""},
		{"none", "gallery.example.com", "", false, []string{"gatehouse.dev/v1alpha1"}, ""},
		{"a path in place of a group", "gallery.example.com", "gallery.example.com/../v1", false, []string{"gatehouse.dev/v1alpha1"}, ""},
		{"a built-in group", "apps", "apps/v1", false, []string{"gatehouse.dev/v1alpha1"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked []string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				at, resource, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/"), "/admission")
				switch {
				case resource == "servers":
					fmt.Fprintf(w, `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AdmissionServerList","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"},"reports":%q}]}`, tt.announced)
				case resource == "explanations":
					asked = append(asked, at)
					if tt.refuses && at != "gatehouse.dev/v1alpha1" {
						w.WriteHeader(http.StatusForbidden)
						_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","code":403,"reason":"Forbidden","message":"no role"}`)
						return
					}
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, `{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AdmissionExplanation","status":{"plan":{"request":{}}}}`)
				default:
					http.NotFound(w, r)
				}
			}))
			t.Cleanup(s.Close)
			q := &offline.Request{
				Operation: "CREATE", Name: "one",
				Kind:   &offline.Kind{Kind: schema.GroupVersionKind{Group: tt.group, Version: "v1", Kind: "Painting"}, Resource: schema.GroupVersionResource{Group: tt.group, Version: "v1", Resource: "paintings"}},
				Object: &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "one"}}},
			}
			e, _, err := (&explainOptions{}).server(&rest.Config{Host: s.URL}, &offline.Kinds{})(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(asked, tt.asked) {
				t.Errorf("asked %q, want %q", asked, tt.asked)
			}
			if notes := strings.Join(e.Status.Plan.Notes, "; "); notes != tt.note {
				t.Errorf("the notes are %q, want %q", notes, tt.note)
			}
		})
	}
}
