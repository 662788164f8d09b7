package envtest

import (
	"context"
	"encoding/base64"
	"net/http"
	"os"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// A test server does not wait for running requests: neither a hanging webhook nor a client that keeps its
// connection open delays its end. It leaves no directory behind.
func TestATestServerEndsAtOnce(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	s := harness.StartTest(t)
	hooks := harness.NewWebhookServer(t, nil)
	called, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	hook := hooks.Hook("/hang", func(http.ResponseWriter, *harness.Review) {
		close(called)
		<-release
	})
	bundle, err := base64.StdEncoding.DecodeString(hook.CABundle())
	if err != nil {
		t.Fatal(err)
	}
	configuration := judging()
	configuration.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new(hook.URL()), CABundle: bundle}
	configuration.Webhooks[0].TimeoutSeconds = new(int32(30))
	clients, err := kubernetes.NewForConfig(s.Admin)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := clients.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := clients.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{})
		written <- err
	}()
	<-called
	// Stop returns only after the process has ended, and nothing else ends the write.
	s.Stop(t)
	if err := <-written; err == nil {
		t.Error("the write was answered")
	}
	left, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		t.Errorf("%s is left behind", entry.Name())
	}
}
