package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/plugins"
)

// kubernetesVersion is the Kubernetes release of the plugins' code.
const kubernetesVersion = "1.37.2"

const (
	// drainTimeout limits the time for reviews that arrived before the end.
	drainTimeout = 15 * time.Second
	// maxReview is the largest size of a review, in bytes. It has room for two objects of the largest size that
	// etcd accepts, and for the rest of the review.
	maxReview = 8 << 20
)

// Options configure a Server. Plugins and Cluster must be set.
type Options struct {
	// Plugins are the names of the plugins to serve.
	Plugins []string
	// Cluster is the configuration of a client of the cluster.
	Cluster *rest.Config
	// Configuration has the configurations of the plugins; nil means none.
	Configuration *admission.Configuration
	// BindAddress and Port are the address to listen on; empty means 127.0.0.1, and 0 any free port.
	BindAddress string
	Port        int
	// Service is the service in front of the server, as NAMESPACE/NAME. URL is an alternative address for the
	// cluster. Without both, the URL is derived from BindAddress.
	Service, URL string
	// CertDir is the directory of the certificate, for the next start and for other servers behind the same
	// service. Empty means that each start generates a new certificate.
	CertDir string
	// ExcludeNamespaces are namespaces whose requests the cluster does not send, mainly namespaces of the
	// control plane.
	ExcludeNamespaces []string
	// IgnoreFailures allows requests for which the cluster gets no response.
	IgnoreFailures bool
	// Timeout is the time that the cluster waits for a response, at least a second; 0 means 10 s.
	Timeout time.Duration
}

// Server serves plugins as webhooks. Create it with New. It is used once.
type Server struct {
	options   Options
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	served    []served
	listener  net.Listener
	// base is the URL of the server, without a path; empty behind a service.
	base        string
	certificate atomic.Pointer[certificate]
	// trusted are the certificate authorities in the webhook configurations, as PEM.
	trusted []byte
	ready   atomic.Bool
	// drained is closed when no more reviews arrive.
	drained chan struct{}
}

// served is a plugin with its row of the table.
type served struct {
	plugins.Plugin
	apiadmission.Interface
}

// New constructs the plugins and listens, but does not serve yet. The caller must call Run or Close. The error
// is one sentence that names the option.
func New(o Options) (*Server, error) {
	s := &Server{options: o, drained: make(chan struct{})}
	if err := s.complete(); err != nil {
		return nil, err
	}
	var err error
	if s.client, err = kubernetes.NewForConfig(o.Cluster); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	s.informers = informers.NewSharedInformerFactory(s.client, 0)
	if err := s.makePlugins(); err != nil {
		return nil, err
	}
	if s.listener, err = net.Listen("tcp", net.JoinHostPort(s.options.BindAddress, strconv.Itoa(o.Port))); err != nil {
		close(s.drained)
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err = s.reachable(); err == nil {
		err = s.firstCertificate()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close closes the listener of a Server that does not Run.
func (s *Server) Close() {
	close(s.drained)
	s.listener.Close()
}

// complete sets the defaults, and returns an error if an option is wrong.
func (s *Server) complete() error {
	o := &s.options
	if len(o.Plugins) == 0 {
		return errors.New("name the plugins to serve with --plugins")
	}
	for i, name := range o.Plugins {
		p, ok := plugins.Lookup(name)
		switch {
		case !ok:
			return fmt.Errorf("--plugins: unknown plugin %q; plugins that can be served: %s", name, strings.Join(Names(), ", "))
		case p.NoWebhook != "":
			return fmt.Errorf("--plugins: cannot serve %s as a webhook: %s", name, p.NoWebhook)
		case slices.Contains(o.Plugins[:i], name):
			return fmt.Errorf("--plugins: %s is given twice", name)
		}
	}
	o.BindAddress = cmp.Or(o.BindAddress, "127.0.0.1")
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	if o.Timeout < time.Second || o.Timeout > 30*time.Second {
		return fmt.Errorf("--timeout %s must be between 1s and 30s", o.Timeout)
	}
	if o.Configuration == nil {
		o.Configuration = &admission.Configuration{}
	}
	for _, name := range o.Configuration.Plugins() {
		if !slices.Contains(o.Plugins, name) {
			return fmt.Errorf("--admission-control-config-file: plugin %q is configured and not served: add it to --plugins, or remove its entry", name)
		}
	}
	return nil
}

// Names lists the plugins that can be served, in order.
func Names() []string {
	var names []string
	for _, p := range plugins.All() {
		if p.NoWebhook == "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// makePlugins constructs the plugins, in the order in which an API server runs them.
func (s *Server) makePlugins() error {
	authorizer, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: s.client.AuthorizationV1(),
		AllowCacheTTL:             10 * time.Second,
		DenyCacheTTL:              10 * time.Second,
		WebhookRetryBackoff:       options.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return fmt.Errorf("authorizer: %w", err)
	}
	parts := plugins.Options{
		Client: s.client, Informers: s.informers, Authorizer: authorizer,
		Mapper:  restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.client.Discovery())),
		Version: compatibility.NewEffectiveVersionFromString(kubernetesVersion, "", ""),
		Stopped: s.drained, Configuration: s.options.Configuration.Raw,
	}
	for _, row := range plugins.All() {
		if !slices.Contains(s.options.Plugins, row.Name) {
			continue
		}
		plugin, err := plugins.New(row.Name, parts)
		if err != nil {
			return fmt.Errorf("admission plugin %s: %w", row.Name, err)
		}
		s.served = append(s.served, served{row, plugin})
	}
	return nil
}

// Run reads the objects that the plugins need, registers the plugins, and serves reviews until
// ctx ends. It then waits for the reviews that came before, and returns nil. The webhook
// configurations remain: other servers may serve them. Run calls ready, which may be nil, once.
func (s *Server) Run(ctx context.Context, ready func(url string)) error {
	defer s.informers.Shutdown()
	defer close(s.drained)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.certificate.Load().pair, nil
		}},
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.ServeTLS(s.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			stop(fmt.Errorf("serving: %w", err))
		}
	}()
	defer func() {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		s.ready.Store(false)
		if err := server.Shutdown(drain); err != nil {
			klog.ErrorS(err, "Some reviews did not end in time")
			server.Close()
		}
		<-ended
	}()
	if err := s.prepare(ctx); err != nil {
		return ending(ctx, err)
	}
	s.ready.Store(true)
	if ready != nil {
		ready(s.base)
	}
	s.keepCertificate(ctx)
	return ending(ctx, nil)
}

// ending returns the error of Run: nil when its context ended.
func ending(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
		return err
	case errors.Is(cause, context.Canceled):
		return nil
	default:
		return cause
	}
}

// prepare reads the objects that the plugins need, and registers the plugins.
func (s *Server) prepare(ctx context.Context) error {
	s.informers.Start(ctx.Done())
	for kind, synced := range s.informers.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("reading %s: %w", kind, context.Cause(ctx))
		}
	}
	return s.register(ctx)
}

// reachable sets the URL of the server for the cluster, unless a service is set.
func (s *Server) reachable() error {
	o := &s.options
	if o.Service != "" && o.URL != "" {
		return errors.New("--service and --url exclude each other")
	}
	if o.Service != "" {
		namespace, name, ok := strings.Cut(o.Service, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("--service %q is not NAMESPACE/NAME", o.Service)
		}
		return nil
	}
	if s.base = strings.TrimSuffix(o.URL, "/"); s.base != "" {
		if !strings.HasPrefix(s.base, "https://") {
			return fmt.Errorf("--url %q must begin with https://", o.URL)
		}
		return nil
	}
	if net.ParseIP(o.BindAddress).IsUnspecified() {
		return fmt.Errorf("--bind-address %s does not say how the cluster reaches this server: add --service or --url", o.BindAddress)
	}
	s.base = "https://" + s.listener.Addr().String()
	return nil
}

// handler serves the reviews of each plugin, health and metrics.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for i := range s.served {
		p := &s.served[i]
		if _, ok := p.Interface.(apiadmission.MutationInterface); ok {
			mux.Handle("POST "+path(mutating, p.Name), newReviewer(p, mutating))
		}
		if _, ok := p.Interface.(apiadmission.ValidationInterface); ok {
			mux.Handle("POST "+path(validating, p.Name), newReviewer(p, validating))
		}
	}
	healthy := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	mux.HandleFunc("GET /healthz", healthy)
	mux.HandleFunc("GET /livez", healthy)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "the server is starting or ending", http.StatusServiceUnavailable)
			return
		}
		healthy(w, r)
	})
	mux.Handle("GET /metrics", legacyregistry.Handler())
	return mux
}
