package server

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/initializers"
	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/server/fresh"
	"github.com/gatehouse-dev/gatehouse/server/inflight"
	"github.com/gatehouse-dev/gatehouse/server/namespaces"
	"github.com/gatehouse-dev/gatehouse/server/replicas"
)

// judge is the server's admission: the engine, the snapshot it works from, and
// the chain of plugins that every write goes through.
type judge struct {
	engine    *admission.Engine
	refresher *snapshot.Refresher
	chain     apiadmission.Interface
	// plugins are those of the chain, in order.
	plugins []admission.Plugin
	// creations are those that the chain has let pass.
	creations *namespaces.Creations
	// maxStaleness is how long after the beginning of a read requests may be judged
	// by it.
	maxStaleness time.Duration
	// initializers tells whether the plugin of that name is in the chain.
	initializers bool
}

// newJudge builds the chain that the options ask for.
func (a *assembly) newJudge(etcd clientv3.KV, authorize authorizer.Authorizer) (*judge, error) {
	o := a.options
	configuration, err := admission.LoadConfiguration(o.AdmissionConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--admission-control-config-file: %w", err)
	}
	j := &judge{creations: &namespaces.Creations{}, maxStaleness: o.AdmissionMaxStaleness}
	namespaces := fresh.NewNamespaces(o.EtcdPrefix, legacyscheme.Codecs.UniversalDeserializer(), a.informers.Core().V1().Namespaces().Lister(), a.client)
	reader := onlyServed(fresh.NewReader(etcd, o.EtcdPrefix, namespaces), o.versionsOff)
	if j.refresher, err = snapshot.NewRefresher(snapshot.Options{
		Reader:       announced{reader, a.announcer},
		Interval:     o.AdmissionRefreshInterval,
		MaxStaleness: o.AdmissionMaxStaleness,
		Strict:       o.strict(),
		Observer: func(r snapshot.Read) {
			admission.CountRead(r)
			a.announcer.Observe(r)
			a.announcer.Skip(j.skipped())
		},
	}); err != nil {
		return nil, err
	}
	if j.engine, err = admission.New(admission.Options{
		Snapshots:     snapshots{j.refresher},
		Registrations: reader,
		Namespaces:    namespaces,
		Authorizer:    authorize,
		Configuration: configuration,
		Resolver:      a.services(),
		Dial:          o.DialWebhook,
		Breaker:       o.breaker,
		MaxInFlight:   o.AdmissionWebhookMaxInFlight,
		StepAside:     inflight.StepAside,

		ExternalCertFile: o.ProxyClientCertFile,
		ExternalKeyFile:  o.ProxyClientKeyFile,
	}); err != nil {
		return nil, err
	}
	plugins := make([]admission.Plugin, 0, len(o.plugins))
	for _, name := range o.plugins {
		p := admission.Plugin{Name: name}
		switch name {
		case admission.NamespaceLifecycleName:
			lifecycle := admission.NewNamespaceLifecycle(namespaces)
			p.Interface = predicted{j.creations.Counting(lifecycle), lifecycle}
		case admission.InitializersName:
			j.initializers = true
			p.Interface = j.engine.Initializers()
		case admission.MutatingWebhookName:
			p.Interface = j.engine.MutatingWebhooks()
		case admission.GenericWebhookName:
			p.Interface = j.engine.ExternalHooks()
		case admission.ValidatingWebhookName:
			p.Interface = j.engine.ValidatingWebhooks()
		default:
			return nil, fmt.Errorf("admission plugin %q is known and cannot be built", name)
		}
		plugins = append(plugins, p)
	}
	if !j.initializers {
		plugins = slices.Insert(plugins, 0, admission.Plugin{Name: admission.InitializersName, Interface: initializers.Off{}})
	}
	j.plugins = plugins
	if j.chain, err = a.tellingOwners(admission.Chain(plugins...)); err != nil {
		return nil, err
	}
	return j, nil
}

// predicted is a plugin, with what predicts its verdicts.
type predicted struct {
	apiadmission.MutationInterface
	admission.Predictor
}

// skipped returns the webhooks that are registered and not called now.
func (j *judge) skipped() []replicas.Skipped {
	s := j.refresher.Current()
	if s == nil {
		return nil
	}
	var list []replicas.Skipped
	for _, one := range j.engine.Skipped(s) {
		list = append(list, replicas.Skipped{
			Registration: one.Entry.Source.Descriptor().Resource + "." + one.Entry.Configuration,
			Webhook:      one.Entry.Name, Target: one.Target.Name, Since: one.Target.Since.UTC(), Reason: one.Target.LastError,
		})
	}
	return list
}

// announced is a reader whose results are used only while others know that this
// server enforces them.
type announced struct {
	snapshot.Reader
	announcer *replicas.Announcer
}

func (r announced) Read(ctx context.Context, since snapshot.Version) (snapshot.Registrations, error) {
	begin := time.Now()
	found, err := r.Reader.Read(ctx, since)
	if err == nil {
		err = r.announcer.Covers(begin)
	}
	return found, err
}

// mustAct tells whether an initializer's failure policy is Fail. One that is not
// registered counts as Ignore (S11.47); what is registered is not known before the
// first read, and nobody is given up then.
func (j *judge) mustAct(name string) bool {
	if j.refresher.Current() == nil {
		return true
	}
	i := j.initializer(name)
	return i != nil && !plan.Forgives(i.Entry)
}

// parallel tells whether an initializer may act at the same time as its
// neighbours.
func (j *judge) parallel(name string) bool {
	i := j.initializer(name)
	return i != nil && i.Parallel
}

// initializer returns the one of a name that acts, nil if none is registered.
func (j *judge) initializer(name string) *snapshot.Entry {
	s := j.refresher.Current()
	if s == nil {
		return nil
	}
	return s.Initializer(name)
}

// services finds the endpoints of webhooks behind Services (S8.4). What it needs
// of the cluster is watched from the first call on: a server whose webhooks all
// have URLs watches no services.
func (a *assembly) services() call.Resolver {
	core, discovery := a.informers.Core().V1(), a.informers.Discovery().V1()
	resolver := call.ServiceResolver{
		Service: func(namespace, name string) (*corev1.Service, error) {
			return core.Services().Lister().Services(namespace).Get(name)
		},
		EndpointSlices: func(namespace, service string) ([]*discoveryv1.EndpointSlice, error) {
			return discovery.EndpointSlices().Lister().EndpointSlices(namespace).List(
				labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service}))
		},
		Endpoints: func(namespace, name string) (*corev1.Endpoints, error) {
			return core.Endpoints().Lister().Endpoints(namespace).Get(name)
		},
	}
	var watching atomic.Bool
	return call.ResolverFunc(func(ctx context.Context, namespace, name string, port int32) ([]string, error) {
		if !watching.Load() {
			synced := []cache.InformerSynced{
				core.Services().Informer().HasSynced,
				core.Endpoints().Informer().HasSynced,
				discovery.EndpointSlices().Informer().HasSynced,
			}
			a.informers.Start(a.stopped)
			if !cache.WaitForCacheSync(ctx.Done(), synced...) {
				return nil, fmt.Errorf("reading services and their endpoints: %w", context.Cause(ctx))
			}
			watching.Store(true)
		}
		return resolver.Resolve(ctx, namespace, name, port)
	})
}
