package objects

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// No manager owns a field that a write never stores: the status of an applied object, and the spec of an
// object applied to its status subresource. A second manager would get conflicts otherwise.
func TestNobodyOwnsWhatIsNotStored(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	ns := s.Namespace(t)
	resources := map[string]string{
		"Deployment": "deployments", "DaemonSet": "daemonsets", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets",
	}
	for version, kinds := range map[string][]string{
		"apps/v1":            {"Deployment", "DaemonSet", "ReplicaSet", "StatefulSet"},
		"apps/v1beta2":       {"Deployment", "DaemonSet", "ReplicaSet", "StatefulSet"},
		"apps/v1beta1":       {"Deployment", "StatefulSet"},
		"extensions/v1beta1": {"Deployment", "DaemonSet", "ReplicaSet"},
	} {
		for _, kind := range kinds {
			t.Run(version+" "+kind, func(t *testing.T) {
				h := s.HTTP(t, nil)
				name := fmt.Sprintf("o%d", len(h.Get("/apis/apps/v1/namespaces/"+ns+"/"+resources[kind]).At("items").([]any)))
				path := "/apis/" + version + "/namespaces/" + ns + "/" + resources[kind]
				object := func(version, label string, minReady, observed int) string {
					service := ""
					if kind == "StatefulSet" {
						service = "serviceName: s"
					}
					return toJSON(`
apiVersion: %s
kind: %s
metadata: {name: %s, labels: {%s: a}}
spec:
  %s
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec: {containers: [{name: main, image: example/main:1}], terminationGracePeriodSeconds: %d}
status: {observedGeneration: %d, %s: 1}
`, version, kind, name, label, service, minReady, observed, map[bool]string{true: "currentNumberScheduled", false: "replicas"}[kind == "DaemonSet"])
				}
				apply := func(path, manager, object string) *harness.Response {
					t.Helper()
					return h.Must(http.StatusOK, "PATCH", path+"?fieldManager="+manager, object, "Content-Type", applyPatch)
				}
				h.Must(http.StatusCreated, "PATCH", path+"/"+name+"?fieldManager=a", object(version, "one", 5, 7), "Content-Type", applyPatch)
				// Field managers are compared in the versions that they used.
				apply(path+"/"+name, "b", object(version, "two", 5, 8))
				apply("/apis/apps/v1/namespaces/"+ns+"/"+resources[kind]+"/"+name, "c", object("apps/v1", "three", 5, 9))
				apply(path+"/"+name+"/status", "d", object(version, "four", 6, 7))
				r := apply("/apis/apps/v1/namespaces/"+ns+"/"+resources[kind]+"/"+name+"/status", "e", object("apps/v1", "five", 9, 7))

				got := map[string][]string{}
				for i := range r.At("metadata", "managedFields").([]any) {
					manager := r.Text("metadata", "managedFields", fmt.Sprint(i), "manager")
					for _, field := range []string{"f:spec", "f:status"} {
						if r.At("metadata", "managedFields", fmt.Sprint(i), "fieldsV1", field) != nil {
							got[manager] = append(got[manager], field)
						}
					}
				}
				want := map[string][]string{"a": {"f:spec"}, "b": {"f:spec"}, "c": {"f:spec"}, "d": {"f:status"}, "e": {"f:status"}}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("owners (-want +got):\n%s", diff)
				}
			})
		}
	}
}
