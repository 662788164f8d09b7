package server

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/fresh"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/quotas"
)

// newPlugin makes the admission plugins of the engine, by name; the others are in package
// policies. To add one, add a row here, and its place in the recommended order to
// admission.Recommended.
var newPlugin = map[string]func(pluginParts) (apiadmission.Interface, error){
	admission.NamespaceLifecycleName: newNamespaceLifecycle,
	admission.InitializersName:       func(p pluginParts) (apiadmission.Interface, error) { return p.engine.Initializers(), nil },
	admission.MutatingPolicyName:     func(p pluginParts) (apiadmission.Interface, error) { return p.engine.MutatingPolicies(), nil },
	admission.MutatingWebhookName:    func(p pluginParts) (apiadmission.Interface, error) { return p.engine.MutatingWebhooks(), nil },
	admission.ValidatingPolicyName:   func(p pluginParts) (apiadmission.Interface, error) { return p.engine.ValidatingPolicies(), nil },
	admission.GenericWebhookName:     func(p pluginParts) (apiadmission.Interface, error) { return p.engine.ExternalHooks(), nil },
	admission.ValidatingWebhookName:  func(p pluginParts) (apiadmission.Interface, error) { return p.engine.ValidatingWebhooks(), nil },
}

// pluginParts are what plugins are made of.
type pluginParts struct {
	settings   *settings
	self       *loopback
	authorizer authorizer.Authorizer
	engine     *admission.Engine
	namespaces *fresh.Namespaces
	creations  *namespaces.Creations
	fences     *quotas.Fences
	// configuration is what plugins are configured with.
	configuration *admission.Configuration
	// makeAccount makes the service account of a namespace; nil if no controller of this
	// server does.
	makeAccount func(ctx context.Context, namespace string) (*corev1.ServiceAccount, error)
	// drained is closed when no more requests come.
	drained <-chan struct{}
}

// build makes the plugins that the settings name, in their order.
func (p pluginParts) build() ([]admission.Plugin, error) {
	var list []admission.Plugin
	for _, name := range p.settings.plugins {
		build := newPlugin[name]
		if build == nil {
			build = compiledIn(name)
		}
		plugin, err := build(p)
		if err != nil {
			return nil, fmt.Errorf("admission plugin %s: %w", name, err)
		}
		list = append(list, admission.Plugin{Name: name, Interface: plugin})
	}
	if !p.settings.runs(admission.InitializersName) {
		list = slices.Insert(list, 0, admission.Plugin{Name: admission.InitializersName, Interface: initializers.Off{}})
	}
	return list, nil
}

func newNamespaceLifecycle(p pluginParts) (apiadmission.Interface, error) {
	lifecycle := admission.NewNamespaceLifecycle(p.namespaces)
	return predicted{p.creations.Counting(lifecycle), lifecycle}, nil
}

// predicted is a plugin, with what predicts its verdicts.
type predicted struct {
	apiadmission.MutationInterface
	admission.Predictor
}
