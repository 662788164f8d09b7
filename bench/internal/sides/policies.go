package sides

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	_ "unsafe" // for go:linkname

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	gatehouse "github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
)

// ParamKind is a kind of params.
type ParamKind struct {
	schema.GroupVersionKind
	Resource   string
	Namespaced bool
}

// PolicyOptions configure the plugins of admission policies in the same way for both sides.
type PolicyOptions struct {
	// Policies and their bindings must have every field set that a server would have defaulted.
	Policies []runtime.Object
	// Kinds are the kinds of params; Params are their objects. Objects of custom kinds are unstructured.
	Kinds  []ParamKind
	Params []runtime.Object
	// Namespaces and Live are as in Options.
	Namespaces []*corev1.Namespace
	Live       func(name string) (*corev1.Namespace, error)
	Authorizer authorizer.Authorizer
	// Schemas are the schemas of the kinds that mutating policies change.
	Schemas mutation.Schemas
	// First, if set, is a plugin before the mutating policies.
	First admission.Interface
}

// UpstreamValidatingPolicies starts upstream's plugin, which ends with the context. It reads the policies within a
// second, and evaluates them in the order of Gatehouse (D46).
func UpstreamValidatingPolicies(ctx context.Context, o PolicyOptions) (admission.ValidationInterface, error) {
	plugin := &validating.Plugin{Plugin: generic.NewPlugin(
		admission.NewHandler(admission.Connect, admission.Create, admission.Delete, admission.Update),
		func(f informers.SharedInformerFactory, _ kubernetes.Interface, client dynamic.Interface, mapper meta.RESTMapper) generic.Source[validating.PolicyHook] {
			registrations := f.Admissionregistration().V1()
			return inOrder[*validating.Policy, *validating.PolicyBinding, validating.PolicyEvaluator]{generic.NewPolicySource(
				registrations.ValidatingAdmissionPolicies().Informer(), registrations.ValidatingAdmissionPolicyBindings().Informer(),
				validating.NewValidatingAdmissionPolicyAccessor, validating.NewValidatingAdmissionPolicyBindingAccessor,
				compileValidating, f, client, mapper,
			)}
		},
		func(a authorizer.UnconditionalAuthorizer, m *matching.Matcher, _ kubernetes.Interface) generic.Dispatcher[validating.PolicyHook] {
			return validating.NewDispatcher(a, generic.NewPolicyMatcher(m))
		},
	)}
	plugin.SetEnabled(true)
	initialize, start := o.initializer(ctx)
	initialize.Initialize(plugin)
	if err := plugin.ValidateInitialization(); err != nil {
		return nil, err
	}
	return plugin, start()
}

// UpstreamMutatingPolicies starts a chain with upstream's plugin, which ends with the context. The plugin reads the
// policies within a second, and evaluates them in the order of Gatehouse (D46). An error of a mutation is always
// treated as an error of the policy, even if upstream returns it as the answer to the request (D52). evaluated is
// called with the kind in which a policy sees the request; it may be nil.
func UpstreamMutatingPolicies(ctx context.Context, o PolicyOptions, evaluated func(schema.GroupVersionKind)) (admission.MutationInterface, error) {
	plugin := &mutating.Plugin{Plugin: generic.NewPlugin(
		admission.NewHandler(admission.Create, admission.Update, admission.Connect),
		func(f informers.SharedInformerFactory, _ kubernetes.Interface, client dynamic.Interface, mapper meta.RESTMapper) generic.Source[mutating.PolicyHook] {
			registrations := f.Admissionregistration().V1()
			return inOrder[*mutating.Policy, *mutating.PolicyBinding, mutating.PolicyEvaluator]{generic.NewPolicySource(
				registrations.MutatingAdmissionPolicies().Informer(), registrations.MutatingAdmissionPolicyBindings().Informer(),
				mutating.NewMutatingAdmissionPolicyAccessor, mutating.NewMutatingAdmissionPolicyBindingAccessor,
				func(p *mutating.Policy) mutating.PolicyEvaluator { return watched(compileMutating(p), evaluated) }, f, client, mapper,
			)}
		},
		func(a authorizer.UnconditionalAuthorizer, m *matching.Matcher, _ kubernetes.Interface) generic.Dispatcher[mutating.PolicyHook] {
			return mutating.NewDispatcher(a, m, converters{o.Schemas})
		},
	)}
	initialize, start := o.initializer(ctx)
	plugins := admission.NewPlugins()
	names := []string{mutating.PluginName}
	plugins.Register(mutating.PluginName, func(io.Reader) (admission.Interface, error) { return plugin, nil })
	if o.First != nil {
		plugins.Register(firstName, func(io.Reader) (admission.Interface, error) { return o.First, nil })
		names = append([]string{firstName}, names...)
	}
	made, err := plugins.NewFromPlugins(names, noConfiguration{}, initialize, nil)
	if err != nil {
		return nil, err
	}
	return made.(admission.MutationInterface), start()
}

// Functions that compile policies, which upstream does not export.
//
//go:linkname compileValidating k8s.io/apiserver/pkg/admission/plugin/policy/validating.compilePolicy
func compileValidating(*validating.Policy) validating.Validator

//go:linkname compileMutating k8s.io/apiserver/pkg/admission/plugin/policy/mutating.compilePolicy
func compileMutating(*mutating.Policy) mutating.PolicyEvaluator

// initializer returns the initializers that upstream's plugins need. The goroutines of start end with the context.
func (o *PolicyOptions) initializer(ctx context.Context) (wants admission.PluginInitializers, start func() error) {
	objects := slices.Clone(o.Policies)
	for _, n := range o.Namespaces {
		objects = append(objects, n)
	}
	known := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(known))
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
			// Clients return objects of built-in kinds without apiVersion and kind.
			p = p.DeepCopyObject()
			p.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
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
	return admission.PluginInitializers{
			initializer.New(client, dynamicfake.NewSimpleDynamicClientWithCustomListKinds(known, lists, o.Params...), factory, o.Authorizer,
				feature.DefaultFeatureGate, nil, ctx.Done(), mapper),
			exclude{},
		}, func() error {
			factory.Start(ctx.Done())
			for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
				if !synced {
					return fmt.Errorf("informer of %s: %w", kind, context.Cause(ctx))
				}
			}
			return nil
		}
}

// inOrder sorts policies, bindings and params, which upstream evaluates in the random order of a map.
type inOrder[P, B runtime.Object, E any] struct {
	generic.Source[generic.PolicyHook[P, B, E]]
}

func (s inOrder[P, B, E]) Hooks() []generic.PolicyHook[P, B, E] {
	hooks := slices.Clone(s.Source.Hooks())
	slices.SortFunc(hooks, func(a, b generic.PolicyHook[P, B, E]) int { return byName(a.Policy, b.Policy) })
	for i := range hooks {
		hooks[i].Bindings = slices.SortedFunc(slices.Values(hooks[i].Bindings), byName)
		if hooks[i].ParamInformer != nil {
			hooks[i].ParamInformer = orderedInformer{hooks[i].ParamInformer}
		}
	}
	return hooks
}

// byName compares objects by namespace and name.
func byName[O runtime.Object](a, b O) int {
	left, right := accessor(a), accessor(b)
	return cmp.Or(strings.Compare(left.GetNamespace(), right.GetNamespace()), strings.Compare(left.GetName(), right.GetName()))
}

func accessor(o runtime.Object) metav1.Object {
	m, err := meta.Accessor(o)
	if err != nil {
		panic(err)
	}
	return m
}

type orderedInformer struct{ informers.GenericInformer }

func (i orderedInformer) Lister() cache.GenericLister {
	return orderedLister{i.GenericInformer.Lister()}
}

type orderedLister struct{ cache.GenericLister }

func (l orderedLister) List(selector labels.Selector) ([]runtime.Object, error) {
	return ordered(l.GenericLister.List(selector))
}

func (l orderedLister) ByNamespace(name string) cache.GenericNamespaceLister {
	return orderedNamespace{l.GenericLister.ByNamespace(name)}
}

type orderedNamespace struct{ cache.GenericNamespaceLister }

func (l orderedNamespace) List(selector labels.Selector) ([]runtime.Object, error) {
	return ordered(l.GenericNamespaceLister.List(selector))
}

func ordered(list []runtime.Object, err error) ([]runtime.Object, error) {
	return slices.SortedFunc(slices.Values(list), byName), err
}

// converters return the type converters of Gatehouse's schemas. Upstream would read them from the OpenAPI documents
// of a server (D51).
type converters struct{ schemas mutation.Schemas }

func (c converters) GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	if converter := c.schemas.TypeConverter(kind); converter != nil {
		return converter
	}
	return noSchemas
}

func (converters) Run(context.Context) {}

// noSchemas knows no kind.
var noSchemas = func() managedfields.TypeConverter {
	converter, err := managedfields.NewTypeConverter(nil, false)
	if err != nil {
		panic(err)
	}
	return converter
}()

// watched wraps a policy of upstream, so that its mutations return the errors of Gatehouse.
func watched(e mutating.PolicyEvaluator, evaluated func(schema.GroupVersionKind)) mutating.PolicyEvaluator {
	if evaluated == nil {
		evaluated = func(schema.GroupVersionKind) {}
	}
	if e.Matcher != nil {
		e.Matcher = watchedMatcher{e.Matcher, evaluated}
	}
	for i := range e.Mutators {
		e.Mutators[i] = watchedPatcher{e.Mutators[i], evaluated}
	}
	return e
}

type watchedMatcher struct {
	matchconditions.Matcher
	evaluated func(schema.GroupVersionKind)
}

func (m watchedMatcher) Match(ctx context.Context, a *admission.VersionedAttributes, params runtime.Object, authz authorizer.UnconditionalAuthorizer) matchconditions.MatchResult {
	m.evaluated(a.VersionedKind)
	return m.Matcher.Match(ctx, a, params, authz)
}

type watchedPatcher struct {
	patch.Patcher
	evaluated func(schema.GroupVersionKind)
}

func (p watchedPatcher) Patch(ctx context.Context, r patch.Request, budget int64) (runtime.Object, error) {
	p.evaluated(r.VersionedAttributes.VersionedKind)
	object, err := p.Patcher.Patch(ctx, r, budget)
	var status *apierrors.StatusError
	if errors.As(err, &status) && status.ErrStatus.Details != nil && len(status.ErrStatus.Details.Causes) > 0 {
		err = errors.New(status.ErrStatus.Details.Causes[0].Message)
	}
	if err != nil {
		return nil, kindError(r.VersionedAttributes.VersionedKind, err)
	}
	u, ok := object.(*unstructured.Unstructured)
	if _, custom := r.VersionedAttributes.VersionedObject.Object().(*unstructured.Unstructured); !ok || !custom {
		return object, nil
	}
	// Upstream checks the kind at the end of the plugin, or does not check it.
	if got, want := u.GroupVersionKind(), r.VersionedAttributes.VersionedKind; got != want {
		return nil, changedKind(want, got)
	}
	raw, there := u.Object["metadata"]
	if !there {
		return object, nil
	}
	metadata, ok := raw.(map[string]any)
	if !ok {
		return nil, errors.New("it leaves the object without metadata")
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(metadata, &metav1.ObjectMeta{}); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return object, nil
}

func changedKind(from, to schema.GroupVersionKind) error {
	return fmt.Errorf("it changes the object from %s to %s", from, to)
}

var (
	unknownKind = regexp.MustCompile(`^no kind "(.*)" is registered for version "(.*)" in scheme`)
	missingKind = regexp.MustCompile(`^Object 'Kind' is missing in '(?s)(.*)'$`)
	noVersion   = regexp.MustCompile(`^no version "(.*)" has been registered in scheme`)
)

// kindError returns Gatehouse's error about an object that cannot be decoded because of its kind.
func kindError(kind schema.GroupVersionKind, err error) error {
	if m := unknownKind.FindStringSubmatch(err.Error()); m != nil {
		return changedKind(kind, schema.FromAPIVersionAndKind(m[2], m[1]))
	}
	if m := missingKind.FindStringSubmatch(err.Error()); m != nil {
		content := &unstructured.Unstructured{}
		if json.Unmarshal([]byte(m[1]), &content.Object) == nil {
			return changedKind(kind, content.GroupVersionKind())
		}
	}
	if m := noVersion.FindStringSubmatch(err.Error()); m != nil {
		return changedKind(kind, schema.FromAPIVersionAndKind(m[1], kind.Kind))
	}
	return err
}

// GatehouseMutatingPolicies starts a chain with Gatehouse's plugin.
func GatehouseMutatingPolicies(ctx context.Context, o PolicyOptions) (admission.MutationInterface, error) {
	engine, err := o.engine(ctx)
	if err != nil {
		return nil, err
	}
	plugins := []gatehouse.Plugin{{Name: gatehouse.MutatingPolicyName, Interface: engine.MutatingPolicies()}}
	if o.First != nil {
		plugins = append([]gatehouse.Plugin{{Name: firstName, Interface: o.First}}, plugins...)
	}
	return gatehouse.Chain(plugins...), nil
}

// GatehouseValidatingPolicies starts Gatehouse's plugin.
func GatehouseValidatingPolicies(ctx context.Context, o PolicyOptions) (admission.ValidationInterface, error) {
	engine, err := o.engine(ctx)
	if err != nil {
		return nil, err
	}
	return engine.ValidatingPolicies(), nil
}

// engine starts an engine, which ends with the context.
func (o *PolicyOptions) engine(ctx context.Context) (*gatehouse.Engine, error) {
	refresher, err := snapshot.NewRefresher(snapshot.Options{Reader: fixed(o.Policies)})
	if err != nil {
		return nil, err
	}
	go refresher.Run(ctx)
	engine, err := gatehouse.New(gatehouse.Options{
		Snapshots: refresher, Namespaces: &namespaces{&Options{Namespaces: o.Namespaces, Live: o.Live}}, Authorizer: o.Authorizer,
		Params: params{o}, Schemas: o.Schemas,
	})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, engine.Close)
	return engine, nil
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
