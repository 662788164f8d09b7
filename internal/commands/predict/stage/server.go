package stage

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/clustersnapshot"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/order"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/inprocess"
	"github.com/gatehouse-dev/gatehouse/internal/kit/scratch"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/runtimeconfig"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// ServiceRange is the range of cluster IPs, unless Options or a snapshot have another range. It is the range of
// kubeadm, and large enough for the services of a large repository.
var ServiceRange = netip.MustParsePrefix("10.96.0.0/12")

// serviceAccountPlugin runs in kube-apiserver by default.
const serviceAccountPlugin = "ServiceAccount"

// Options configure a Stage. The zero value is an empty cluster whose webhooks are not called.
type Options struct {
	// Snapshot is the cluster that the Stage imitates; nil for an empty one. Plugins that read resources missing from
	// the snapshot do not run. Load stores the snapshot's objects.
	Snapshot *clustersnapshot.Cluster
	// Gatehouse makes the Stage behave as a Gatehouse server, and otherwise as a kube-apiserver, which ignores
	// Gatehouse's annotations (S28.11).
	Gatehouse bool
	// Webhooks enables the plugins that call webhooks. ServiceAddresses are the addresses of webhooks that name a
	// service, each as NAMESPACE/NAME[:PORT]=HOST:PORT.
	Webhooks         bool
	ServiceAddresses []string
	// AdmissionConfigFile is the AdmissionConfiguration of the server; empty for none.
	AdmissionConfigFile string
	// ServiceRange is the range of cluster IPs, such as 10.43.0.0/16; empty means the range of the snapshot, or else
	// the variable ServiceRange.
	ServiceRange string
	// MayConvert enables conversion webhooks of custom resources. It is called before each call of such a webhook, and
	// its error prevents the call; ConvertingAll allows all. If it is nil, versions of a custom resource are treated as
	// differing only in name.
	MayConvert func(ctx context.Context, definition string, to *registration.ClientConfig) error
	// Fields are the fields in which the types of the emulated release differ from the types of the server; nil if none
	// do.
	Fields *emulation.Fields
	// Skips adds to traces the registrations that were considered and did not apply.
	Skips bool
	// Open changes the options of the server, for a Stage that is shared; nil changes nothing. The controllers of such
	// a server handle roles and quotas, without the substitutes of this package.
	Open func(*server.Options)
}

// ConvertingAll is an Options.MayConvert that allows all calls.
func ConvertingAll(context.Context, string, *registration.ClientConfig) error { return nil }

// Stage is a server with objects. It is safe for concurrent use once its objects are loaded.
type Stage struct {
	Options
	server *server.Server
	// inside is the connection of the clients of Config.
	inside *inprocess.Server
	close  func()
	// address is the address of the server for others.
	address server.Address
	// kinds are the kinds that the server serves.
	kinds *offline.Kinds

	// Lanes are the requests that may not be concurrent.
	Lanes order.Lanes

	planning
}

// Everywhere lists the namespaces that every cluster has.
var Everywhere = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// Open starts a Stage, which ends with ctx. The caller must close it.
func Open(ctx context.Context, o Options) (*Stage, error) {
	s, err := start(ctx, o)
	if err != nil {
		return nil, err
	}
	if err = s.Discover(); err == nil {
		for _, name := range Everywhere {
			if err = s.FurnishNamespace(ctx, name); err != nil {
				break
			}
		}
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close stops the server.
func (s *Stage) Close() { s.close() }

// Address returns the address of the server for others.
func (s *Stage) Address() server.Address { return s.address }

// later lists the default plugins that were added after the release that this process emulates. A server that emulates
// the release runs them, because not all have a feature gate, and a cluster of the release does not have them (S26.6).
func later() []string {
	var names []string
	for _, p := range plugins.All() {
		if p.Since > 0 && uint(p.Since) > emulation.Effective().EmulationVersion().Minor() {
			names = append(names, p.Name)
		}
	}
	return names
}

// start starts the server.
func start(ctx context.Context, o Options) (*Stage, error) {
	// A circuit breaker would make verdicts depend on the order of requests. Each request keeps its own trace.
	options := server.Options{
		MinFreeDisk: -1, UnsafeNoFsync: true, EndAtOnce: true,
		Controllers: []string{server.NoControllers}, AdmissionTraceBytes: -1, AdmissionTraceSkips: o.Skips, AdmissionWebhookBreaker: "off",
		ServiceClusterIPRange: cmp.Or(o.ServiceRange, ServiceRange.String()), ServiceAddresses: o.ServiceAddresses,
		EnableAdmissionPlugins:  []string{serviceAccountPlugin},
		DisableAdmissionPlugins: []string{admission.InitializersName},
		MaxRequestsInFlight:     10 * order.Parallel, MaxMutatingRequestsInFlight: 10 * order.Parallel,
		Rehearsals: true, Kubernetes: !o.Gatehouse, MayConvert: o.MayConvert,
	}
	options.AdmissionConfigFile = o.AdmissionConfigFile
	off := later()
	if o.Snapshot != nil {
		for _, served := range o.Snapshot.Served {
			if runtimeconfig.CanSwitch(served.APIVersion) {
				options.RuntimeConfig = append(options.RuntimeConfig, served.APIVersion)
			}
		}
		options.ServiceClusterIPRange = cmp.Or(o.ServiceRange, o.Snapshot.ServiceRange(), ServiceRange.String())
		for _, blinded := range blind(o.Snapshot) {
			for _, p := range blinded {
				off = append(off, p.Name)
			}
		}
	}
	options.DisableAdmissionPlugins = append(options.DisableAdmissionPlugins, off...)
	options.EnableAdmissionPlugins = slices.DeleteFunc(options.EnableAdmissionPlugins, func(name string) bool { return slices.Contains(off, name) })
	if !o.Webhooks {
		options.DisableAdmissionPlugins = append(options.DisableAdmissionPlugins,
			admission.MutatingWebhookName, admission.GenericWebhookName, admission.ValidatingWebhookName)
	}
	if o.Open != nil {
		o.Open(&options)
	}
	var dir *scratch.Dir
	var err error
	if options.DataDir == "" {
		if dir, err = scratch.New(); err != nil {
			return nil, err
		}
		options.DataDir = dir.Path()
	}
	s := &Stage{Options: o}
	if s.server, err = server.New(options); err != nil {
		dir.Remove()
		return nil, err
	}
	s.inside = inprocess.NewServer()
	s.inside.Open(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.server.Serve(w, r) }))
	running, end := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.server.Run(running, func(at server.Address) {
			s.address = at
			close(ready)
		})
	}()
	s.close = sync.OnceFunc(func() {
		s.inside.Close()
		end()
		<-ended
		dir.Remove()
	})
	select {
	case <-ready:
		return s, nil
	case err := <-ended:
		ended <- nil
		s.Close()
		if err == nil {
			err = errors.Join(context.Cause(ctx), errors.New("the server ended"))
		}
		return nil, err
	}
}
