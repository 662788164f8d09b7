package gatehousetest_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/gatehousetest"
)

// A test with a server.
func TestExampleStart(t *testing.T) {
	config := gatehousetest.Start(t)

	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// A test of a custom resource's schema.
func TestExampleManifests(t *testing.T) {
	gatehousetest.Start(t, gatehousetest.Own(), gatehousetest.Manifests("testdata/gadgets.yaml"))

	gatehousetest.Admitted(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "workshop"}})
	gatehousetest.Rejected(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "nowhere"}}, `"nowhere" not found`)
}
