package main

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	webv1 "github.com/gatehouse-dev/gatehouse/examples/operator/api/v1"
)

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

func run() error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	if err := setup(manager); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return scheme, webv1.AddToScheme(scheme)
}

// setup adds the controller and the webhooks to a manager.
func setup(manager ctrl.Manager) error {
	if err := (&reconciler{Client: manager.GetClient()}).setup(manager); err != nil {
		return err
	}
	return setupWebhooks(manager)
}
