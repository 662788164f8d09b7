package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	webv1 "github.com/gatehouse-dev/gatehouse/examples/operator/api/v1"
)

// start runs the operator on the API server of an envtest until the end of the test.
func start(t *testing.T) client.Client {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip(`needs the programs of envtest: KUBEBUILDER_ASSETS="$(gatehouse envtest path)" go test ./examples/operator`)
	}
	ctrl.SetLogger(logr.Discard())
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("config", "crd")},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{filepath.Join("config", "webhook")}},
	}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	hooks := environment.WebhookInstallOptions
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := setup(manager); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- manager.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the webhooks are served", func(context.Context) (bool, error) {
		return manager.GetWebhookServer().StartedChecker()(nil) == nil, nil
	})
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func eventually(t *testing.T, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestOperator(t *testing.T) {
	c := start(t)
	ctx := t.Context()
	site := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}, Spec: webv1.WebsiteSpec{Image: "shop:1"}}

	t.Run("the webhook sets what is not set", func(t *testing.T) {
		if err := c.Create(ctx, site); err != nil {
			t.Fatal(err)
		}
		if site.Spec.Replicas == nil || *site.Spec.Replicas != 1 {
			t.Errorf("replicas %v, want 1", site.Spec.Replicas)
		}
	})
	t.Run("the controller runs a deployment", func(t *testing.T) {
		eventually(t, "status", func(ctx context.Context) (bool, error) {
			err := c.Get(ctx, client.ObjectKeyFromObject(site), site)
			return site.Status.Deployment == "shop", err
		})
		deployment := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(site), deployment); err != nil {
			t.Fatal(err)
		}
		if !metav1.IsControlledBy(deployment, site) || deployment.Spec.Template.Spec.Containers[0].Image != "shop:1" {
			t.Errorf("got %+v", deployment)
		}
	})
	t.Run("the webhook refuses too many servers", func(t *testing.T) {
		site.Spec.Replicas = new(int32(maxReplicas + 1))
		if err := c.Update(ctx, site); err == nil || !strings.Contains(err.Error(), "spec.replicas 11 is more than 10") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the schema refuses a website without an image", func(t *testing.T) {
		bad := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bad"}}
		bad.Spec.Replicas = new(int32(-1))
		if err := c.Create(ctx, bad); err == nil || !strings.Contains(err.Error(), "spec.replicas") {
			t.Errorf("got %v", err)
		}
	})
}
