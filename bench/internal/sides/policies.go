package sides

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/feature"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	gatehouse "github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// ParamKind is a kind that params can have.
type ParamKind struct {
	schema.GroupVersionKind
	Resource   string
	Namespaced bool
}

// PolicyOptions are what the plugin of admission policies is made of. Both sides act on
// the same ones.
type PolicyOptions struct {
	// Policies and their bindings must have every field set that a server would have
	// defaulted.
	Policies []runtime.Object
	// Kinds are those that params can have; Params are their objects. Those of custom kinds are
	// unstructured.
	Kinds  []ParamKind
	Params []runtime.Object
	// Namespaces and Live are those of Options.
	Namespaces []*corev1.Namespace
	Live       func(name string) (*corev1.Namespace, error)
	Authorizer authorizer.Authorizer
}

// UpstreamValidatingPolicies makes upstream's plugin, which ends with the context. It has
// the policies a second later.
func UpstreamValidatingPolicies(ctx context.Context, o PolicyOptions) (admission.ValidationInterface, error) {
	objects := slices.Clone(o.Policies)
	for _, n := range o.Namespaces {
		objects = append(objects, n)
	}
	known := runtime.NewScheme()
	if err := scheme.AddToScheme(known); err != nil {
		return nil, err
	}
	lists := map[schema.GroupVersionResource]string{}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, k := range o.Kinds {
		scope := meta.RESTScope(meta.RESTScopeRoot)
		if k.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		resource := k.GroupVersion().WithResource(k.Resource)
		mapper.AddSpecific(k.GroupVersionKind, resource, resource, scope)
		if !known.Recognizes(k.GroupVersionKind) {
			lists[resource] = k.Kind + "List"
		}
	}
	for _, p := range o.Params {
		if known.Recognizes(p.GetObjectKind().GroupVersionKind()) {
			objects = append(objects, p)
		}
	}
	client := fake.NewClientset(objects...)
	if o.Live != nil {
		client.PrependReactor("get", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
			found, err := o.Live(action.(clienttesting.GetAction).GetName())
			return true, found, err
		})
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin, err := validating.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	initialize := admission.PluginInitializers{
		initializer.New(client, dynamicfake.NewSimpleDynamicClientWithCustomListKinds(known, lists, o.Params...), factory, o.Authorizer,
			feature.DefaultFeatureGate, nil, ctx.Done(), mapper),
		exclude{},
	}
	initialize.Initialize(plugin)
	if err := plugin.ValidateInitialization(); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("informer of %s: %w", kind, context.Cause(ctx))
		}
	}
	return plugin, nil
}

// GatehouseValidatingPolicies makes Gatehouse's plugin.
func GatehouseValidatingPolicies(ctx context.Context, o PolicyOptions) (admission.ValidationInterface, error) {
	refresher, err := snapshot.NewRefresher(snapshot.Options{Reader: fixed(o.Policies)})
	if err != nil {
		return nil, err
	}
	go refresher.Run(ctx)
	engine, err := gatehouse.New(gatehouse.Options{
		Snapshots: refresher, Namespaces: &namespaces{&Options{Namespaces: o.Namespaces, Live: o.Live}}, Authorizer: o.Authorizer, Params: params{&o},
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, engine.Close)
	return engine.ValidatingPolicies(), nil
}

// params are objects that never change.
type params struct{ o *PolicyOptions }

func (p params) Scope(_ context.Context, kind schema.GroupVersionKind) (namespaced, served bool, err error) {
	i := slices.IndexFunc(p.o.Kinds, func(k ParamKind) bool { return k.GroupVersionKind == kind })
	return i >= 0 && p.o.Kinds[i].Namespaced, i >= 0, nil
}

func (p params) Get(_ context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error) {
	for _, obj := range p.o.Params {
		if m, err := meta.Accessor(obj); err == nil && obj.GetObjectKind().GroupVersionKind() == kind && m.GetNamespace() == namespace && m.GetName() == name {
			return obj, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, name)
}

func (p params) List(_ context.Context, kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]runtime.Object, error) {
	var list []runtime.Object
	for _, obj := range p.o.Params {
		if m, err := meta.Accessor(obj); err == nil && obj.GetObjectKind().GroupVersionKind() == kind && m.GetNamespace() == namespace && selector.Matches(labels.Set(m.GetLabels())) {
			list = append(list, obj)
		}
	}
	return list, nil
}
