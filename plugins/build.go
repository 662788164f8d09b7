package plugins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	quota "k8s.io/apiserver/pkg/quota/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/pkg/quota/v1/install"
	"sigs.k8s.io/yaml"
)

// Options are the dependencies of plugins. Configuration, MakeAccount and Stored are optional.
type Options struct {
	// Client reaches the API server whose requests the plugins admit.
	Client kubernetes.Interface
	// Informers has the objects that plugins read. A plugin requests its informers during its construction; the
	// caller starts the factory. Plugins that were not constructed cause no watches.
	Informers informers.SharedInformerFactory
	// Authorizer authorizes users.
	Authorizer authorizer.Authorizer
	// Mapper knows the resources of kinds, custom ones included.
	Mapper meta.RESTMapper
	// Version is the Kubernetes release that the plugins emulate.
	Version compatibility.EffectiveVersion
	// Stopped is closed when no more requests arrive.
	Stopped <-chan struct{}
	// Configuration returns the configuration of a plugin as it was written, nil if the plugin has none. A nil
	// Configuration means that no plugin has one.
	Configuration func(plugin string) ([]byte, error)
	// MakeAccount creates the service account "default" of a namespace without one, and returns it. The plugin
	// ServiceAccount calls it for a pod that comes before the controller has created the account. Nil means
	// that the plugin waits for the account, up to two seconds, as in kube-apiserver.
	MakeAccount func(ctx context.Context, namespace string) (*corev1.ServiceAccount, error)
	// Stored maps resources that are other names of stored resources to the stored ones. Plugins compare groups
	// and resources, and treat a request through the other name as a request for the stored resource.
	Stored map[schema.GroupVersionResource]schema.GroupVersionResource
}

// New constructs a plugin for [admission.Chain]. The plugin declares the requests that concern it, and predicts
// its verdict where it can. The error is one sentence: the plugin is unknown, needs a configuration, or cannot
// read its configuration.
func New(name string, o Options) (apiadmission.Interface, error) {
	p, ok := Lookup(name)
	if !ok {
		return nil, errors.New("it is unknown")
	}
	if !p.makesAccounts || o.MakeAccount == nil {
		made, err := p.make(o)
		if err != nil {
			return nil, err
		}
		return wrap(p, made, made, o.Stored), nil
	}
	client := o.Client
	o.Client = defaultAccounts{client, o.MakeAccount}
	made, err := p.make(o)
	if err != nil {
		return nil, err
	}
	o.Client = defaultAccounts{client, newAccount}
	trial, err := p.make(o)
	if err != nil {
		return nil, err
	}
	return wrap(p, made, trial, o.Stored), nil
}

// make constructs upstream's plugin, without a wrapper.
func (p *Plugin) make(o Options) (apiadmission.Interface, error) {
	configuration, err := p.configuration(o)
	if err != nil {
		return nil, err
	}
	factory := liveFactory{o.Informers, livePods{o.Client}}
	initializers := apiadmission.PluginInitializers{
		initializer.New(o.Client, nil, factory, o.Authorizer, utilfeature.DefaultFeatureGate, o.Version, o.Stopped, o.Mapper),
	}
	quotas := &quotaInitializer{factory: factory}
	registry := apiadmission.NewPlugins()
	p.register(registry)
	made, err := registry.InitPlugin(p.Name, configuration, append(initializers, quotas))
	if quotas.err != nil {
		return nil, quotas.err
	}
	if err != nil {
		return nil, withoutName(p.Name, err)
	}
	return made, nil
}

// withoutName removes the name of the plugin from an error of k8s.io/apiserver. Callers add the name in their
// own words.
func withoutName(name string, err error) error {
	for _, opening := range []string{"couldn't init admission plugin %q: ", "failed to initialize admission plugin %q: "} {
		if rest, ok := strings.CutPrefix(err.Error(), fmt.Sprintf(opening, name)); ok {
			return errors.New(rest)
		}
	}
	return err
}

// configuration returns the configuration of the plugin, nil when it has none.
func (p *Plugin) configuration(o Options) (io.Reader, error) {
	var data []byte
	if o.Configuration != nil {
		var err error
		if data, err = o.Configuration(p.Name); err != nil {
			return nil, err
		}
	}
	switch {
	case data == nil && p.NeedsConfiguration:
		return nil, errors.New("it needs a configuration, and the admission configuration file (--admission-control-config-file) has none for it")
	case data == nil:
		return nil, nil
	case !p.TakesConfiguration:
		return nil, errors.New("it takes no configuration, and the admission configuration file has one for it")
	case p.check != nil:
		if err := p.check(data); err != nil {
			return nil, err
		}
	}
	return bytes.NewReader(data), nil
}

// checkNodeSelectors checks the configuration of PodNodeSelector. Upstream ignores the parts that
// it cannot read.
func checkNodeSelectors(data []byte) error {
	var content struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if err := yaml.UnmarshalStrict(data, &content); err != nil {
		return err
	}
	for _, namespace := range slices.Sorted(maps.Keys(content.Selectors)) {
		if _, err := labels.ConvertSelectorToLabelsMap(content.Selectors[namespace]); err != nil {
			return fmt.Errorf("podNodeSelectorPluginConfig.%s: %w", namespace, err)
		}
	}
	return nil
}

// quotaInitializer gives a plugin the evaluators of usage. It creates them only for a plugin that needs them,
// because they need informers.
type quotaInitializer struct {
	factory informers.SharedInformerFactory
	err     error
}

// Initialize implements admission.PluginInitializer.
func (i *quotaInitializer) Initialize(plugin apiadmission.Interface) {
	wants, ok := plugin.(initializer.WantsQuotaConfiguration)
	if !ok {
		return
	}
	var configuration quota.Configuration
	if configuration, i.err = install.NewQuotaConfigurationForAdmission(i.factory, nil); i.err == nil {
		wants.SetQuotaConfiguration(configuration)
	}
}
