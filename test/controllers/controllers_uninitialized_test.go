package controllers

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// podInitializer configures an initializer for pods whose controller does not run.
const podInitializer = `{"metadata":{"name":"pods"},"initializers":[{"name":"nobody.example.com",
	"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]}]}`

// S11.62: a controller creates only the missing objects, and no more if their initializer does not act in
// time. S11.63: it may remove its finalizer from such an object.
func TestControllersCountWhatIsNotInitialized(t *testing.T) {
	t.Parallel()
	const template = `"template":{"metadata":{"labels":{"app":"NAME"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	const selected = `"selector":{"matchLabels":{"app":"NAME"}},`
	s := harness.Start(t, "--controllers", "+deployment,+replicaset,+replicationcontroller,+statefulset,+daemonset,+job", "--fake-nodes", "1", "--initializer-timeout", "1s")
	h, ns := s.HTTP(t, nil), s.Namespace(t)
	h.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations", podInitializer)
	// Administrators choose Fail once the initializer is known to work.
	h.Must(http.StatusOK, "PATCH", "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations/pods",
		`{"initializers":[{"name":"nobody.example.com","failurePolicy":"Fail"}]}`, "Content-Type", "application/strategic-merge-patch+json")
	client := harness.Client(t, s.Admin)
	objects := harness.Dynamic(t, s.Admin)
	pods := func(t *testing.T, owner types.UID) []corev1.Pod {
		t.Helper()
		raw, err := client.CoreV1().RESTClient().Get().Namespace(ns).Resource("pods").Param("includeUninitialized", "true").Do(harness.Context(t)).Get()
		if err != nil {
			t.Fatal(err)
		}
		var owned []corev1.Pod
		for _, p := range raw.(*corev1.PodList).Items {
			if ref := metav1.GetControllerOf(&p); ref != nil && (ref.UID == owner || owner == "") {
				owned = append(owned, p)
			}
		}
		return owned
	}
	for _, tc := range speed.Some(t, 2, []struct {
		name, group, version, resource, kind, spec string
		// seen is the path of the field with the number of pods that the controller observes.
		seen []string
		want int64
	}{
		{"replicasets", "apps", "v1", "replicasets", "ReplicaSet", `"replicas":2,` + selected, []string{"status", "replicas"}, 2},
		{"replicationcontrollers", "", "v1", "replicationcontrollers", "ReplicationController", `"replicas":1,"selector":{"app":"NAME"},`, []string{"status", "replicas"}, 1},
		{"statefulsets", "apps", "v1", "statefulsets", "StatefulSet", `"serviceName":"none",` + selected, []string{"status", "replicas"}, 1},
		{"daemonsets", "apps", "v1", "daemonsets", "DaemonSet", selected, []string{"status", "currentNumberScheduled"}, 1},
		{"jobs", "batch", "v1", "jobs", "Job", ``, []string{"status", "active"}, 1},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			body := `{"apiVersion":"` + schema.GroupVersion{Group: tc.group, Version: tc.version}.String() + `","kind":"` + tc.kind +
				`","metadata":{"name":"NAME"},"spec":{` + tc.spec + template + `}}`
			if tc.kind == "Job" {
				body = `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"NAME"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`
			}
			owner := &unstructured.Unstructured{}
			if err := owner.UnmarshalJSON([]byte(replaceName(body, tc.name))); err != nil {
				t.Fatal(err)
			}
			kind := objects.Resource(schema.GroupVersionResource{Group: tc.group, Version: tc.version, Resource: tc.resource}).Namespace(ns)
			made, err := kind.Create(harness.Context(t), owner, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the controller knows its pods", func() error {
				now, err := kind.Get(harness.Context(t), tc.name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if seen, _, _ := unstructured.NestedInt64(now.Object, tc.seen...); seen != tc.want {
					return fmt.Errorf("it knows %d, and %d are there", seen, len(pods(t, made.GetUID())))
				}
				return nil
			})
			// The initializer of each pod has timed out before the checks.
			harness.Eventually(t, "no initializer is waited for any more", func() error {
				if n := h.Metrics().Value("gatehouse_initializers_uninitialized_objects", `resource="pods"`); n != 0 {
					return fmt.Errorf("%v are followed", n)
				}
				return nil
			})
			if got := int64(len(pods(t, made.GetUID()))); got != tc.want {
				t.Errorf("%d pods, want %d", got, tc.want)
			}
			if err := kind.Delete(harness.Context(t), tc.name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the pods went with their owner", func() error {
				if left := pods(t, made.GetUID()); len(left) > 0 {
					return fmt.Errorf("%d are there, the first with finalizers %v", len(left), left[0].Finalizers)
				}
				return nil
			})
		})
	}
}

func replaceName(text, name string) string { return strings.ReplaceAll(text, "NAME", name) }
