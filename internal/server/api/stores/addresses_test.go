package stores

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
)

// An IPAddress that exists is a conflict for the first check of addresses, as soon as the informer
// has it.
func TestTheFirstCheckLooksAgain(t *testing.T) {
	exists := func(resource, name string) *metav1.Status {
		s := apierrors.NewAlreadyExists(schema.GroupResource{Group: "networking.k8s.io", Resource: resource}, name).Status()
		return &s
	}
	var answer *metav1.Status
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		data, err := runtime.Encode(catalog.Codecs.LegacyCodec(corev1.SchemeGroupVersion), answer)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(answer.Code))
		_, _ = w.Write(data)
	}))
	defer server.Close()
	var asked []string
	check := &firstCheck{known: func(name string) bool {
		asked = append(asked, name)
		return len(asked) == 3
	}}
	client, err := kubernetes.NewForConfig(check.client(&restclient.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	create := func() error {
		_, err := client.NetworkingV1().IPAddresses().Create(t.Context(), &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.1"}}, metav1.CreateOptions{})
		return err
	}
	answer = exists("ipaddresses", "10.0.0.1")
	if err := create(); !apierrors.IsConflict(err) || len(asked) != 3 || asked[0] != "10.0.0.1" {
		t.Errorf("%v after it was looked for: %q", err, asked)
	}
	answer = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "another conflict"}
	if err := create(); !apierrors.IsConflict(err) || err.Error() != "another conflict" {
		t.Errorf("another conflict: %v", err)
	}
	answer = exists("configmaps", "c")
	if _, err := client.CoreV1().ConfigMaps("ns").Create(t.Context(), &corev1.ConfigMap{}, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("another resource: %v", err)
	}
	answer = exists("ipaddresses", "10.0.0.1")
	if err := check.hook(func(genericapiserver.PostStartHookContext) error { return err })(genericapiserver.PostStartHookContext{}); err != nil {
		t.Fatal(err)
	}
	if err := create(); !apierrors.IsAlreadyExists(err) {
		t.Errorf("after the first check: %v", err)
	}
	if len(asked) != 3 {
		t.Errorf("it was looked for again: %q", asked)
	}
}
