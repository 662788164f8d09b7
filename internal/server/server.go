package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/metadata"
	metricsfeatures "k8s.io/component-base/metrics/features"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/chain"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/backup"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/datadir"
)

// Server is an API server. It is made by New and used once.
type Server struct {
	settings *settings
	// ready is closed once requests are served, before Run's ready function, and assembly is
	// set at the same time.
	ready    chan struct{}
	assembly atomic.Pointer[assembly]
}

// New checks the options and starts nothing. The error is one sentence that
// names the flag.
func New(o Options) (*Server, error) {
	settings, err := newSettings(o)
	if err != nil {
		return nil, err
	}
	return &Server{settings: settings, ready: make(chan struct{})}, nil
}

// Run serves until ctx ends, then finishes running requests and returns nil. It calls ready, which
// may be nil, once when the server is ready. An error gives in one sentence the reason why the
// server could not start or continue.
func (s *Server) Run(ctx context.Context, ready func(Address)) error {
	asked := ctx
	ctx, stop := context.WithCancelCause(s.settings.delayed(ctx))
	defer stop(nil)
	if err := s.settings.prepareProcess(); err != nil {
		return err
	}
	if completed, err := backup.Finish(s.settings.DataDir); err != nil {
		return err
	} else if completed {
		klog.Warningf("Completed the restore of %s, which had been interrupted", s.settings.DataDir)
	}
	if err := datadir.Prepare(s.settings.files(), s.settings.DataDir); err != nil {
		return err
	}
	listener, err := s.settings.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	db, err := openDatabase(ctx, stop, s.settings)
	if err != nil {
		return startError(ctx, err)
	}
	defer db.close()
	o := &opened{settings: s.settings, listener: listener, db: db, ready: s.ready, asked: asked, stopping: make(chan struct{}), links: &links{}, ends: &ends{}}
	defer o.ends.close()
	a, err := assemble(ctx, o)
	if err != nil {
		return startError(ctx, err)
	}
	return a.run(ctx, func(address Address) {
		s.assembly.Store(a)
		close(s.ready)
		if ready != nil {
			ready(address)
		}
	})
}

// delayed returns a context that ends after ctx by the time for which the server continues to
// serve.
func (s *settings) delayed(ctx context.Context) context.Context {
	if s.ShutdownDelay == 0 {
		return ctx
	}
	delayed, end := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		time.AfterFunc(s.ShutdownDelay, func() { end(context.Cause(ctx)) })
	})
	return delayed
}

// prepareProcess sets the state that all servers of one process share.
func (s *settings) prepareProcess() error {
	if err := catalog.AllowPrivileged(!s.RefusePrivileged); err != nil {
		return err
	}
	// Histograms read this setting when they are registered.
	metricsfeatures.ApplyFeatureGates(utilfeature.DefaultFeatureGate)
	// Metrics report the enabled feature gates and the emulated release, as in kube-apiserver.
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	compatibility.DefaultComponentGlobalsRegistry.AddMetrics()
	return nil
}

func (s *settings) listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(s.BindAddress, strconv.Itoa(s.SecurePort)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d on %s is in use by another process; choose another with --secure-port", s.SecurePort, s.BindAddress)
	case err != nil:
		return nil, fmt.Errorf("listening on %s:%d: %w", s.BindAddress, s.SecurePort, err)
	}
	return listener, nil
}

// CaughtUp returns when admission and authorization use all objects that were stored before the
// call. A cluster needs a moment for that, because its admission plugins and its RBAC read caches.
// Registrations need no wait: the server answers a write of a registration when the registration is
// active. The server must be ready. CaughtUp does not wait for deletions.
func (s *Server) CaughtUp(ctx context.Context) error {
	a := s.assembly.Load()
	if a == nil {
		return errors.New("the server is not ready")
	}
	client, err := metadata.NewForConfig(a.loopback.config)
	if err != nil {
		return err
	}
	return a.admitter.caches.CaughtUp(ctx, client)
}

// PluginNames lists the admission plugins that Options may name.
func PluginNames() []string {
	var names []string
	for _, p := range chain.KnownPlugins() {
		names = append(names, p.Name)
	}
	return names
}
