package admission

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/dispatch"
)

// Options configure an Engine.
type Options struct {
	// Snapshots has the current webhook configurations, policies, bindings and initializers; it
	// must be set. If it is a *snapshot.Refresher, the caller must run Run.
	Snapshots Snapshots
	// Namespaces finds namespaces; it must be set.
	Namespaces Namespaces
	// Authorizer is the variable authorizer of match conditions, and authorizes writes of
	// uninitialized objects (S11.17). If it is nil, conditions that use the variable fail, and no
	// user may write an uninitialized object.
	Authorizer authorizer.UnconditionalAuthorizer
	// Params has the param objects of admission policies. If it is nil, no kind is known, and a
	// policy with a paramKind fails.
	Params Params
	// Schemas has the schemas of the kinds that mutating admission policies change. If it is nil, a
	// mutation of type ApplyConfiguration fails.
	Schemas Schemas
	// Registrations, if set, reads the current initializers. The engine reads them when a client
	// writes an InitializerConfiguration through this server, because all initializers together
	// must have an order. A server that does not store InitializerConfigurations leaves
	// Registrations nil.
	Registrations snapshot.Reader
	// Configuration has the credentials of each webhook plugin. If it is nil, every plugin is
	// anonymous.
	Configuration *Configuration
	// ExternalCertFile and ExternalKeyFile are PEM files with a client certificate and its key.
	// They are read again when they change. The engine presents the certificate to the external
	// hooks (v1alpha1) for which the configuration has no user (S12.13). Set both or neither.
	ExternalCertFile, ExternalKeyFile string
	// Resolver finds the endpoints of webhooks behind services. If it is nil, the engine dials the
	// DNS name of the service (S8.3).
	Resolver call.Resolver
	// Dial opens connections to webhooks. The address is an endpoint that the resolver
	// returned, or the host and port of the URL. Nil means TCP (S8.10).
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Wrap, if set, wraps the transport to each webhook server, for example so that a test can
	// answer in place of webhooks. The wrapper must not send a request twice.
	Wrap func(http.RoundTripper) http.RoundTripper
	// Breaker selects the failures that count against a webhook server. After several of them in a
	// row, the engine skips the server until it answers again. The zero value counts failures to
	// connect.
	Breaker call.Breaker
	// MaxInFlight limits the concurrent calls of a plugin to one webhook server; further calls
	// wait. Zero means 200.
	MaxInFlight int
	// StepAside, if set, is called with the context of a request that has waited for webhooks for
	// 100 ms, or is about to call a webhook whose last call took that long. The engine calls the
	// returned function when the request continues. A host that limits concurrent requests need not
	// count the request in between.
	StepAside func(context.Context) (back func())
	// Reviews makes the engine call webhooks for the Kubernetes reviews among the virtual resources
	// of S2.41, as in Kubernetes before 1.37 (S26.4).
	Reviews bool
	// InitializerTimeout is the timeout of an initializer in plans. Zero means 5 s.
	InitializerTimeout time.Duration
	// Serial makes the engine call every mutating webhook only in its turn. Without Serial, a
	// webhook that declares no side effects and may be reinvoked can be called earlier. Verdicts
	// are the same in both cases. Serial is for tests that compare the calls of two servers.
	Serial bool
	// Skips records in traces the reasons why webhooks were not called.
	Skips bool
	// Observer, if set, receives one trace for every run of a plugin in which a rule matched,
	// unless Traced is in the server's chain of handlers: the done function of Traced then receives
	// one trace for the whole request. The request waits for Observer, which must not change the
	// trace. Several requests may call it concurrently.
	Observer func(*trace.Trace)
}

// Engine is the dynamic part of admission: it runs the webhooks, policies and initializers of
// users. It creates its plugins, which share its connections to webhooks. It is safe for concurrent
// use.
type Engine struct {
	options      Options
	publisher    *trace.Publisher
	callers      []pluginCaller
	initializers *initializerPlugin
	mutating     mutatingPlugin
	validating   validatingPlugin
	external     validatingPlugin

	mutatingPolicies   mutatingPlugin
	validatingPolicies validatingPlugin
}

// pluginCaller calls the webhooks of one plugin.
type pluginCaller struct {
	plugin string
	source registration.Source
	*call.Caller
}

// New returns an Engine. It reads the kubeconfig files in the configuration and starts nothing. The
// error names the missing option or the unusable file (S8.19).
func New(o Options) (*Engine, error) {
	if o.Snapshots == nil {
		return nil, errors.New("admission: Options.Snapshots is nil")
	}
	if o.Namespaces == nil {
		return nil, errors.New("admission: Options.Namespaces is nil")
	}
	if o.Configuration == nil {
		o.Configuration = &Configuration{}
	}
	trace.Register()
	e := &Engine{options: o, publisher: &trace.Publisher{Observer: o.Observer}}
	e.initializers = newInitializerPlugin(&o, e.publisher)
	for _, p := range []struct {
		plugin *judging
		source registration.Source
		runner func(registration.Source) (runner, error)
	}{
		{&e.mutating.judging, registration.Mutating, e.hooks},
		{&e.validating.judging, registration.Validating, e.hooks},
		{&e.external.judging, registration.External, e.hooks},
		{&e.mutatingPolicies.judging, registration.MutatingPolicies, e.policies},
		{&e.validatingPolicies.judging, registration.ValidatingPolicies, e.policies},
	} {
		run, err := p.runner(p.source)
		if err != nil {
			e.Close()
			return nil, err
		}
		*p.plugin = judging{source: p.source, snapshots: o.Snapshots, run: run, reviews: o.Reviews}
	}
	return e, nil
}

// Initializers returns the plugin that gives new objects the initializers of
// InitializerConfigurations, and controls later changes of the list (S11). It takes part in both
// passes. The server is responsible for creates that wait, for expiry, and for hiding uninitialized
// objects from readers.
func (e *Engine) Initializers() admission.Interface { return e.initializers }

// MutatingWebhooks returns the plugin that runs the webhooks of MutatingWebhookConfigurations, in
// the mutating pass. Every call returns the same plugin.
func (e *Engine) MutatingWebhooks() admission.MutationInterface { return &e.mutating }

// ValidatingWebhooks returns the plugin that runs the webhooks of ValidatingWebhookConfigurations,
// in the validating pass.
func (e *Engine) ValidatingWebhooks() admission.ValidationInterface { return &e.validating }

// ExternalHooks returns the plugin that runs the webhooks of ExternalAdmissionHookConfigurations,
// in the validating pass (S12.9).
func (e *Engine) ExternalHooks() admission.ValidationInterface { return &e.external }

// hooks returns the runner of the webhooks of a source, with its own credentials and connections
// (S8.20).
func (e *Engine) hooks(source registration.Source) (runner, error) {
	plugin := source.Descriptor().Plugin
	var credentials *call.Credentials
	if file := e.options.Configuration.KubeConfigFile(plugin); file != "" {
		var err error
		if credentials, err = call.LoadCredentials(file); err != nil {
			return nil, fmt.Errorf("kubeconfig of plugin %s: %w", plugin, err)
		}
	}
	if plugin == GenericWebhookName && (e.options.ExternalCertFile != "" || e.options.ExternalKeyFile != "") {
		var err error
		if credentials, err = credentials.WithClientCertificate(e.options.ExternalCertFile, e.options.ExternalKeyFile); err != nil {
			return nil, fmt.Errorf("plugin %s: %w", plugin, err)
		}
	}
	caller, err := call.New(call.Options{
		Resolver:    e.options.Resolver,
		Credentials: credentials,
		Dial:        e.options.Dial,
		Wrap:        e.options.Wrap,
		Breaker:     e.options.Breaker,
		MaxInFlight: e.options.MaxInFlight,
		Observe:     circuits(plugin),
	})
	if err != nil {
		return nil, err
	}
	e.callers = append(e.callers, pluginCaller{plugin, source, caller})
	dispatcher := dispatch.New(dispatch.Options{
		Source:          source,
		Publisher:       e.publisher,
		Caller:          caller,
		NamespaceLabels: e.namespaceLabels,
		Authorizer:      e.options.Authorizer,
		Serial:          e.options.Serial,
		Skips:           e.options.Skips,
		StepAside:       e.options.StepAside,
	})
	return dispatcher.Run, nil
}

// circuits returns a function that counts and logs changes of the circuits of a plugin's webhook
// servers.
func circuits(plugin string) func(call.Circuit) {
	observe := trace.Circuits(plugin)
	return func(c call.Circuit) { observe(trace.Circuit(c)) }
}

// Close closes idle connections to webhooks. Running calls continue; later calls fail.
func (e *Engine) Close() {
	for _, c := range e.callers {
		c.Close()
	}
}

// namespaceLabels implements S2.14 and S2.15.
func (e *Engine) namespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	ns, err := e.namespace(ctx, name)
	if err != nil {
		return nil, err
	}
	return ns.Labels, nil
}
