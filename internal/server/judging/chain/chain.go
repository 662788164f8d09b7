package chain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/compatibility"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/fresh"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/quotas"
)

// newPlugin makes the admission plugins of the engine, by name; the others are in package
// plugins. To add one, add a row here, and its place in the recommended order to
// admission.Recommended.
var newPlugin = map[string]func(Options) (apiadmission.Interface, error){
	admission.NamespaceLifecycleName: newNamespaceLifecycle,
	admission.InitializersName:       func(o Options) (apiadmission.Interface, error) { return o.Engine.Initializers(), nil },
	admission.MutatingPolicyName:     func(o Options) (apiadmission.Interface, error) { return o.Engine.MutatingPolicies(), nil },
	admission.MutatingWebhookName:    func(o Options) (apiadmission.Interface, error) { return o.Engine.MutatingWebhooks(), nil },
	admission.ValidatingPolicyName:   func(o Options) (apiadmission.Interface, error) { return o.Engine.ValidatingPolicies(), nil },
	admission.GenericWebhookName:     func(o Options) (apiadmission.Interface, error) { return o.Engine.ExternalHooks(), nil },
	admission.ValidatingWebhookName:  func(o Options) (apiadmission.Interface, error) { return o.Engine.ValidatingWebhooks(), nil },
}

// Options are what plugins are made of. All must be set, but for MakeAccount.
type Options struct {
	// Names are the plugins that run, in their order.
	Names      []string
	Engine     *admission.Engine
	Authorizer authorizer.Authorizer
	// Client, Informers and Mapper reach the server itself.
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	Mapper    meta.RESTMapper
	// Namespaces reads namespaces, and Creations counts the creates in each.
	Namespaces *fresh.Namespaces
	Creations  *namespaces.Creations
	// Fences keep quotas exact.
	Fences *quotas.Fences
	// Configuration is what plugins are configured with, and Version the release that they
	// behave as.
	Configuration *admission.Configuration
	Version       compatibility.EffectiveVersion
	// MakeAccount makes the service account of a namespace; nil if no controller of this
	// server does.
	MakeAccount func(ctx context.Context, namespace string) (*corev1.ServiceAccount, error)
	// Drained is closed when no more requests come.
	Drained <-chan struct{}
}

// New makes the plugins that the options name, in their order.
func New(o Options) ([]admission.Plugin, error) {
	var list []admission.Plugin
	for _, name := range o.Names {
		build := newPlugin[name]
		if build == nil {
			build = compiledIn(name)
		}
		plugin, err := build(o)
		if err != nil {
			return nil, fmt.Errorf("admission plugin %s: %w", name, err)
		}
		list = append(list, admission.Plugin{Name: name, Interface: plugin})
	}
	if !slices.Contains(o.Names, admission.InitializersName) {
		list = slices.Insert(list, 0, admission.Plugin{Name: admission.InitializersName, Interface: initializers.Off{}})
	}
	return list, nil
}

func newNamespaceLifecycle(o Options) (apiadmission.Interface, error) {
	lifecycle := admission.NewNamespaceLifecycle(o.Namespaces)
	return predicted{o.Creations.Counting(lifecycle), lifecycle}, nil
}

// predicted is a plugin, with what predicts its verdicts.
type predicted struct {
	apiadmission.MutationInterface
	admission.Predictor
}
