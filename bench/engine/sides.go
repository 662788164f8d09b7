package engine

import (
	"context"
	"fmt"
	"io"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/metrics"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	gatehouse "github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// chain is what a server runs for a write.
type chain interface {
	admission.MutationInterface
	admission.ValidationInterface
}

// side makes a chain that acts on registrations, which have every field set that
// a server would have defaulted. What is observed keeps a server's metrics, too.
type side struct {
	name string
	make func(ctx context.Context, registrations []runtime.Object, observed bool) (chain, error)
}

var sides = []side{{"upstream", upstream}, {"gatehouse", ours}}

// namespaceObject is the one namespace there is.
var namespaceObject = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
	Name: "default", Labels: map[string]string{corev1.LabelMetadataName: "default"},
}}

// upstream is the chain of a server built on k8s.io/apiserver: its two plugins
// and its metrics.
func upstream(ctx context.Context, registrations []runtime.Object, observed bool) (chain, error) {
	client := fake.NewClientset(append([]runtime.Object{namespaceObject}, registrations...)...)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugins := admission.NewPlugins()
	mutating.Register(plugins)
	validating.Register(plugins)
	initialize := initializer.New(client, nil, factory, nil, feature.DefaultFeatureGate, nil, nil, nil)
	var decorators admission.Decorators
	if observed {
		decorators = admission.Decorators{admission.DecoratorFunc(metrics.WithControllerMetrics)}
	}
	made, err := plugins.NewFromPlugins([]string{mutating.PluginName, validating.PluginName}, noConfiguration{}, initialize, decorators)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("informer of %s: %w", kind, context.Cause(ctx))
		}
	}
	if !observed {
		return made.(chain), nil
	}
	return metrics.WithStepMetrics(made).(chain), nil
}

type noConfiguration struct{}

func (noConfiguration) ConfigFor(string) (io.Reader, error) { return nil, nil }

// ours is Gatehouse's chain of the same two plugins.
func ours(ctx context.Context, registrations []runtime.Object, observed bool) (chain, error) {
	refresher, err := snapshot.NewRefresher(snapshot.Options{Reader: fixed(registrations)})
	if err != nil {
		return nil, err
	}
	go refresher.Run(ctx)
	engine, err := gatehouse.New(gatehouse.Options{Snapshots: refresher, Namespaces: oneNamespace{}})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, engine.Close)
	if !observed {
		return admission.NewChainHandler(engine.MutatingWebhooks(), engine.ValidatingWebhooks()), nil
	}
	return gatehouse.Chain(
		gatehouse.Plugin{Name: gatehouse.MutatingWebhookName, Interface: engine.MutatingWebhooks()},
		gatehouse.Plugin{Name: gatehouse.ValidatingWebhookName, Interface: engine.ValidatingWebhooks()},
	).(chain), nil
}

// fixed are registrations that never change.
type fixed []runtime.Object

func (f fixed) Read(_ context.Context, since snapshot.Version) (snapshot.Registrations, error) {
	return snapshot.Registrations{Version: "1", Unchanged: since == "1", Revision: "1", Objects: f}, nil
}

type oneNamespace struct{}

func (oneNamespace) Cached(string) *corev1.Namespace { return namespaceObject }

func (oneNamespace) Live(context.Context, string) (*corev1.Namespace, error) {
	return namespaceObject, nil
}

// hook is a webhook to register.
type hook struct {
	mutating       bool
	url            string
	group          string
	resource       string
	reinvokeNeeded bool
}

// register makes configurations of up to a hundred hooks each.
func register(ca []byte, hooks []hook) []runtime.Object {
	const perConfiguration = 100
	var all []runtime.Object
	var m *admissionv1.MutatingWebhookConfiguration
	var v *admissionv1.ValidatingWebhookConfiguration
	for i, h := range hooks {
		w := webhook(ca, i, h)
		if h.mutating {
			if m == nil || len(m.Webhooks) == perConfiguration {
				m = &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metadata(len(all))}
				all = append(all, m)
			}
			m.Webhooks = append(m.Webhooks, w)
			continue
		}
		if v == nil || len(v.Webhooks) == perConfiguration {
			v = &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metadata(len(all))}
			all = append(all, v)
		}
		v.Webhooks = append(v.Webhooks, admissionv1.ValidatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
			MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
			SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions,
		})
	}
	return all
}

func metadata(i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: fmt.Sprintf("bench-%04d", i), UID: "5a4ee4cc-0000-4000-8000-000000000000", ResourceVersion: "1", Generation: 1,
	}
}

func webhook(ca []byte, i int, h hook) admissionv1.MutatingWebhook {
	fail, equivalent, none := admissionv1.Fail, admissionv1.Equivalent, admissionv1.SideEffectClassNone
	again, scope, timeout := admissionv1.NeverReinvocationPolicy, admissionv1.AllScopes, int32(10)
	if h.reinvokeNeeded {
		again = admissionv1.IfNeededReinvocationPolicy
	}
	return admissionv1.MutatingWebhook{
		Name:         fmt.Sprintf("h%d.bench.gatehouse.dev", i),
		ClientConfig: admissionv1.WebhookClientConfig{URL: &h.url, CABundle: ca},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{h.group}, APIVersions: []string{"v1"}, Resources: []string{h.resource}, Scope: &scope},
		}},
		FailurePolicy: &fail, MatchPolicy: &equivalent, SideEffects: &none, TimeoutSeconds: &timeout,
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		AdmissionReviewVersions: []string{"v1"}, ReinvocationPolicy: &again,
	}
}
