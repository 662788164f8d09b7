package check

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/internal/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/scratch"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// serviceRange is where the cluster IPs of services come from, unless a snapshot has another
// range. It is the range of kubeadm, and has room for the services of a large repository.
const serviceRange = "10.96.0.0/12"

// serviceAccountPlugin runs in kube-apiserver by default.
const serviceAccountPlugin = "ServiceAccount"

// traceBytes is how much memory the traces may take that explain a diff. denialBytes is how much
// the traces of denials may take, each of which is read at once.
const (
	traceBytes  = 256 << 20
	denialBytes = 8 << 20
)

// throwaway is a server that lives for one check.
type throwaway struct {
	server *server.Server
	admin  *rest.Config
	stop   func()
}

// later are the plugins that began to act by default after the release that this process behaves as.
// A server that emulates the release runs them, since no feature gate covers them all, and a
// cluster of the release does not have them (S26.6).
func later() []string {
	var names []string
	for _, p := range plugins.All() {
		if p.Since > 0 && uint(p.Since) > emulation.Effective().EmulationVersion().Minor() {
			names = append(names, p.Name)
		}
	}
	return names
}

// start starts a server. The caller must stop it.
func start(ctx context.Context, o *Options) (*throwaway, error) {
	dir, err := scratch.New()
	if err != nil {
		return nil, err
	}
	// A breaker would make verdicts depend on the order of requests.
	options := server.Options{
		DataDir: dir.Path(), MinFreeDisk: -1, UnsafeNoFsync: true, EndAtOnce: true,
		Controllers: []string{server.NoControllers}, AdmissionTraceBytes: denialBytes, AdmissionWebhookBreaker: "off",
		ServiceClusterIPRange: serviceRange, ServiceAddresses: o.ServiceAddresses,
		EnableAdmissionPlugins:  []string{serviceAccountPlugin},
		DisableAdmissionPlugins: []string{admission.InitializersName},
		MaxRequestsInFlight:     10 * parallel, MaxMutatingRequestsInFlight: 10 * parallel,
	}
	off := later()
	if o.Snapshot != nil {
		options.ServiceClusterIPRange = cmp.Or(o.Snapshot.ServiceRange(), options.ServiceClusterIPRange)
		for _, blinded := range blind(o.Snapshot) {
			for _, p := range blinded {
				off = append(off, p.Name)
			}
		}
	}
	options.DisableAdmissionPlugins = append(options.DisableAdmissionPlugins, off...)
	options.EnableAdmissionPlugins = slices.DeleteFunc(options.EnableAdmissionPlugins, func(name string) bool { return slices.Contains(off, name) })
	options.Rehearsals, options.Kubernetes = o.rehearse, !o.Gatehouse
	if !o.Call && !o.rehearse {
		options.DisableAdmissionPlugins = append(options.DisableAdmissionPlugins,
			admission.MutatingWebhookName, admission.GenericWebhookName, admission.ValidatingWebhookName)
	}
	if o.Diff {
		options.AdmissionTraceBytes = traceBytes
	}
	if hasPolicies(o.Set) && !o.rehearse {
		options.Controllers = []string{typesController}
	}
	if o.rehearse {
		// Each request keeps its own trace.
		options.AdmissionTraceBytes = -1
	}
	s, err := server.New(options)
	if err != nil {
		dir.Remove()
		return nil, err
	}
	running, end := context.WithCancel(ctx)
	ready, ended := make(chan server.Address, 1), make(chan error, 1)
	go func() {
		ended <- s.Run(running, func(a server.Address) { ready <- a })
	}()
	stop := sync.OnceFunc(func() {
		end()
		<-ended
		dir.Remove()
	})
	select {
	case address := <-ready:
		return &throwaway{server: s, admin: address.Admin, stop: stop}, nil
	case err := <-ended:
		ended <- nil
		stop()
		if err == nil {
			err = errors.Join(context.Cause(ctx), errors.New("the server ended"))
		}
		return nil, err
	}
}
