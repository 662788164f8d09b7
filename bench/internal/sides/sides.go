package sides

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/metrics"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/kubeapiserver/admission/exclusion"

	gatehouse "github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
)

// Chain is the admission chain of a server.
type Chain interface {
	admission.MutationInterface
	admission.ValidationInterface
}

// Options configure a chain in the same way for both sides.
type Options struct {
	// Registrations are webhook configurations. They must have every field set that a server would have defaulted;
	// for upstream, they must be of v1.
	Registrations []runtime.Object
	// Namespaces are the namespaces that a watch has delivered.
	Namespaces []*corev1.Namespace
	// Live reads a namespace that no watch has delivered. Nil means that there are none.
	Live func(name string) (*corev1.Namespace, error)
	// Authorizer answers the checks of match conditions. Nil means that there is none.
	Authorizer authorizer.Authorizer
	// Dial opens connections to webhooks. Nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Resolve returns the host:port of a service. Nil means its DNS name.
	Resolve func(namespace, name string, port int32) (string, error)
	// First, if set, is a plugin before the webhooks.
	First admission.Interface
	// Observed records the metrics of a server, and runs the mutating pass again when a webhook requests
	// reinvocation.
	Observed bool
	// Serial disables the calls that Gatehouse makes before the turn of a webhook.
	Serial bool
}

// Side creates a chain, which ends with the context.
type Side struct {
	Name string
	Make func(context.Context, Options) (Chain, error)
}

// All are the two sides.
var All = []Side{{"upstream", Upstream}, {"gatehouse", Gatehouse}}

const firstName = "First"

// Upstream starts the chain of a server built on k8s.io/apiserver: its two webhook plugins and its metrics.
func Upstream(ctx context.Context, o Options) (Chain, error) {
	objects := o.Registrations
	for _, n := range o.Namespaces {
		objects = append(objects[:len(objects):len(objects)], n)
	}
	client := fake.NewClientset(objects...)
	if o.Live != nil {
		client.PrependReactor("get", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
			found, err := o.Live(action.(clienttesting.GetAction).GetName())
			return true, found, err
		})
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	plugins := admission.NewPlugins()
	names := []string{mutating.PluginName, validating.PluginName}
	if o.First != nil {
		plugins.Register(firstName, func(io.Reader) (admission.Interface, error) { return o.First, nil })
		names = append([]string{firstName}, names...)
	}
	mutating.Register(plugins)
	validating.Register(plugins)
	initialize := admission.PluginInitializers{
		initializer.New(client, nil, factory, o.Authorizer, feature.DefaultFeatureGate, nil, nil, nil),
		webhookinitializer.NewPluginInitializer(o.authentication(), o.services()),
		exclude{},
	}
	var decorators admission.Decorators
	if o.Observed {
		decorators = admission.Decorators{admission.DecoratorFunc(metrics.WithControllerMetrics)}
	}
	made, err := plugins.NewFromPlugins(names, noConfiguration{}, initialize, decorators)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("informer of %s: %w", kind, context.Cause(ctx))
		}
	}
	if !o.Observed {
		return made.(Chain), nil
	}
	return metrics.WithStepMetrics(made).(Chain), nil
}

type noConfiguration struct{}

func (noConfiguration) ConfigFor(string) (io.Reader, error) { return nil, nil }

// exclude contains the resources that kube-apiserver excludes from webhooks.
type exclude struct{}

func (exclude) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsExcludedAdmissionResources); ok {
		wants.SetExcludedAdmissionResources(exclusion.Excluded())
	}
}

// authentication sets Dial in the clients that upstream creates.
func (o *Options) authentication() webhook.AuthenticationInfoResolverWrapper {
	if o.Dial == nil {
		return nil
	}
	return func(inner webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return dialing{inner, o.Dial}
	}
}

// dialing resolves clients with a custom dial function.
type dialing struct {
	webhook.AuthenticationInfoResolver
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

func (d dialing) ClientConfigFor(hostPort string) (*rest.Config, error) {
	return d.with(d.AuthenticationInfoResolver.ClientConfigFor(hostPort))
}

func (d dialing) ClientConfigForService(name, namespace string, port int) (*rest.Config, error) {
	return d.with(d.AuthenticationInfoResolver.ClientConfigForService(name, namespace, port))
}

func (d dialing) with(config *rest.Config, err error) (*rest.Config, error) {
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Dial = d.dial
	return config, nil
}

func (o *Options) services() webhook.ServiceResolver {
	if o.Resolve == nil {
		return nil
	}
	return resolver(o.Resolve)
}

type resolver func(namespace, name string, port int32) (string, error)

func (r resolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	endpoint, err := r(namespace, name, port)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: endpoint}, nil
}

// Gatehouse starts Gatehouse's chain of the same plugins.
func Gatehouse(ctx context.Context, o Options) (Chain, error) {
	refresher, err := snapshot.NewRefresher(snapshot.Options{Reader: fixed(o.Registrations)})
	if err != nil {
		return nil, err
	}
	go refresher.Run(ctx)
	options := gatehouse.Options{Snapshots: refresher, Namespaces: &namespaces{&o}, Dial: o.Dial, Serial: o.Serial, Reviews: emulation.JudgesReviews()}
	if o.Authorizer != nil {
		options.Authorizer = o.Authorizer
	}
	if o.Resolve != nil {
		options.Resolver = call.ResolverFunc(func(_ context.Context, namespace, name string, port int32) ([]string, error) {
			endpoint, err := o.Resolve(namespace, name, port)
			return []string{endpoint}, err
		})
	}
	engine, err := gatehouse.New(options)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, engine.Close)
	if !o.Observed {
		return admission.NewChainHandler(engine.MutatingWebhooks(), engine.ValidatingWebhooks()), nil
	}
	plugins := []gatehouse.Plugin{
		{Name: gatehouse.MutatingWebhookName, Interface: engine.MutatingWebhooks()},
		{Name: gatehouse.ValidatingWebhookName, Interface: engine.ValidatingWebhooks()},
	}
	if o.First != nil {
		plugins = append([]gatehouse.Plugin{{Name: firstName, Interface: o.First}}, plugins...)
	}
	return gatehouse.Chain(plugins...), nil
}

// fixed are registrations that never change.
type fixed []runtime.Object

func (f fixed) Read(_ context.Context, since snapshot.Version) (snapshot.Registrations, error) {
	return snapshot.Registrations{Version: "1", Unchanged: since == "1", Revision: "1", Objects: f}, nil
}

type namespaces struct{ o *Options }

func (n *namespaces) Cached(name string) *corev1.Namespace {
	for _, found := range n.o.Namespaces {
		if found.Name == name {
			return found
		}
	}
	return nil
}

func (n *namespaces) Live(_ context.Context, name string) (*corev1.Namespace, error) {
	if n.o.Live == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return n.o.Live(name)
}
