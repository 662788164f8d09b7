package objects

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// defineThings creates the CRD of things in a group.
func defineThings(h *harness.HTTP, group string) {
	h.Must(http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", toJSON(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.`+group+`}
spec:
  group: `+group+`
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
`))
}

// A client that has created a CRD finds it in discovery with its next request.
func TestDefinitionsAreDiscoveredAtOnce(t *testing.T) {
	t.Parallel()
	h := harness.Shared(t).HTTP(t, nil)
	for i := range 10 {
		group := fmt.Sprintf("at-once-%d.discovery.example.com", i)
		defineThings(h, group)
		path := []string{"/apis/" + group + "/v1", "/apis/" + group, "/apis"}[i%3]
		wanted := []string{`"things"`, `"v1"`, `"` + group + `"`}[i%3]
		if answer := h.Do("GET", path, ""); answer.Code != http.StatusOK || !strings.Contains(string(answer.Raw), wanted) {
			t.Errorf("GET %s right after the definition of %s: %d %s", path, group, answer.Code, answer.Raw)
		}
	}
}

// A client that has created a CRD can create objects with its next request.
func TestDefinitionsAreServedAtOnce(t *testing.T) {
	t.Parallel()
	h := harness.Shared(t).HTTP(t, nil)
	for i := range 10 {
		group := fmt.Sprintf("served-%d.discovery.example.com", i)
		defineThings(h, group)
		h.Must(http.StatusCreated, "POST", "/apis/"+group+"/v1/namespaces/default/things", toJSON(`
apiVersion: `+group+`/v1
kind: Thing
metadata: {name: one}
`))
	}
}
