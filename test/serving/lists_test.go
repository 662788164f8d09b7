package serving

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// A list of all objects is identical to the list with a selector that matches all objects, whatever the
// server caches from earlier lists. A list of 1,000 or more objects at any version waits for its turn, unless
// it has a selector.
func TestListsAreTheSameHoweverTheyAreRead(t *testing.T) {
	t.Parallel()
	// Without the long run, too few for a list that waits.
	objects := speed.Of(200, 1100)
	s := harness.Start(t)
	h := s.HTTP(t, nil)
	ns, other := s.Namespace(t), s.Namespace(t)
	path := func(ns, resource string) string { return "/api/v1/namespaces/" + ns + "/" + resource }
	create := func(path, body string) { h.Must(http.StatusCreated, "POST", path, body) }
	var group sync.WaitGroup
	for part := range 16 {
		group.Go(func() {
			for i := part; i < objects; i += 16 {
				if code, err := h.Try(harness.Context(t), "POST", path(ns, "configmaps"), fmt.Sprintf(`{"metadata":{"name":"c-%d"},"data":{"text":"<%d>"}}`, i, i)); err != nil || code != http.StatusCreated {
					t.Errorf("configmap %d: %d, %v", i, code, err)
				}
			}
		})
	}
	group.Wait()
	for i := range 20 {
		create(path(ns, "pods"), fmt.Sprintf(`{"metadata":{"name":"p-%d"},"spec":{"securityContext":{"runAsUser":%d},"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}`, i, i))
		create(path(other, "services"), fmt.Sprintf(`{"metadata":{"name":"s-%d"},"spec":{"ports":[{"port":%d}]}}`, i, i+1))
		create(path(other, "secrets"), fmt.Sprintf(`{"metadata":{"name":"s-%d"},"stringData":{"a":"b"}}`, i))
		create("/apis/autoscaling/v2/namespaces/"+other+"/horizontalpodautoscalers", fmt.Sprintf(
			`{"metadata":{"name":"h-%d"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"metrics":[{"type":"Resource","resource":{"name":"memory","target":{"type":"Utilization","averageUtilization":50}}}]}}`, i))
	}
	for _, resource := range []string{"configmaps", "pods"} {
		body := `{"metadata":{"name":"waits","initializers":{"pending":[{"name":"a.example.com"}]}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
		if resource == "configmaps" {
			body = `{"metadata":{"name":"waits","initializers":{"pending":[{"name":"a.example.com"}]}}}`
		}
		if code := h.Do("POST", path(ns, resource)+"?includeUninitialized=true", body).Code; code != http.StatusCreated && code != http.StatusAccepted {
			t.Fatalf("%s: %d", resource, code)
		}
	}
	compare := func(t *testing.T) {
		for _, list := range speed.Some(t, 3, []string{
			path(ns, "configmaps"), path(ns, "pods"), path(other, "configmaps"), "/api/v1/pods", path(other, "services"), path(other, "secrets"), "/api/v1/namespaces",
			"/apis/autoscaling/v1/horizontalpodautoscalers", "/apis/autoscaling/v2/horizontalpodautoscalers", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		}) {
			for _, query := range speed.Some(t, 3, []string{"resourceVersion=0", "resourceVersion=", "resourceVersion=0&includeUninitialized=true", "resourceVersion=0&limit=7", "limit=7", "resourceVersion=1&resourceVersionMatch=NotOlderThan"}) {
				for _, accept := range speed.Some(t, 2, []string{
					"application/json", "application/vnd.kubernetes.protobuf", "application/yaml", "application/json;pretty=1",
					"application/json;as=Table;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
				}) {
					var whole, selected []byte
					harness.Eventually(t, "no write comes between two lists", func() error {
						whole = h.Do("GET", list+"?"+query, "", "Accept", accept).Raw
						selected = h.Do("GET", list+"?labelSelector=!none&"+query, "", "Accept", accept).Raw
						if again := h.Do("GET", list+"?"+query, "", "Accept", accept).Raw; !bytes.Equal(whole, again) {
							return fmt.Errorf("the list changed: %s", cmp.Diff(string(whole), string(again)))
						}
						// A page of a list with a selector lacks the number of remaining objects.
						if query != "limit=7" && !bytes.Equal(whole, selected) {
							return fmt.Errorf("it is another one by a selector: %s", cmp.Diff(string(selected), string(whole)))
						}
						return nil
					})
				}
			}
		}
	}
	t.Run("as created", compare)
	h.Must(http.StatusOK, "PATCH", path(ns, "configmaps/c-7"), `{"data":{"text":"changed"}}`, "Content-Type", "application/merge-patch+json")
	h.Must(http.StatusOK, "DELETE", path(ns, "configmaps/c-8"), "")
	h.Must(http.StatusOK, "PATCH", path(ns, "pods/p-7"), `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/merge-patch+json")
	create(path(ns, "configmaps"), `{"metadata":{"name":"c-9-new"}}`)
	t.Run("after changes", compare)
}
