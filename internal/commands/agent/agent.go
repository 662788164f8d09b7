package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/commands/auditlog"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/kit/bounds"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

// Options are the options of an Agent.
type Options struct {
	// Kubeconfig of the cluster that authenticates and authorizes clients; empty in a pod of the cluster.
	Kubeconfig string
	// Credentials is the directory with the certificate and the API server's token, created by EnsureCredentials.
	Credentials string
	// BindAddress and Port are the listening address; port 0 means any free port.
	BindAddress string
	Port        int
	// Follow are files of audit logs to follow.
	Follow []string
	// Peers are the addresses of other agents of the same cluster, HOST:PORT, and Service is the service in front of
	// all. A host may have several addresses, including this agent's own.
	Peers   []string
	Service Service
	// TraceBytes bounds the memory of the traces.
	TraceBytes int
	// Watch, if set, finds problems in the cluster until its context ends.
	Watch func(context.Context)
	// Derive, if set, calls its function with the webhooks and policies of the cluster, or with nil while they are
	// unknown, until its context ends. Traces then include facts derived from them.
	Derive func(context.Context, func(*offline.World))
	// ShutdownDelay is how long requests are still served after a shutdown began.
	ShutdownDelay time.Duration
}

// connections bounds the connections to an Agent.
var connections = bounds.Connections{PerAddress: 64, Total: 1024, Reserve: 256, Write: bounds.Time}

// watchTime bounds a watch. It is longer than the default of clients without a timeout.
const watchTime = 65 * time.Minute

// limit returns the bounds of a request, by its endpoint.
func limit(req *http.Request) bounds.Limit {
	switch {
	case req.URL.Path == Path:
		return bounds.Limit{Time: readTimeout, Body: maxBody}
	case req.Method == http.MethodGet && req.ContentLength == 0 && strings.HasPrefix(req.URL.Path, "/apis/") && req.URL.Query().Has("watch"):
		return bounds.Limit{Time: watchTime, Body: bounds.Body}
	}
	return bounds.Limit{Time: bounds.Time, Body: bounds.Body}
}

// front is the handler of all requests. It handles audit events, and passes other requests to next.
func (a *Agent) front(next http.Handler) http.Handler { return bounds.Handler(a.intake(next), limit) }

// Agent receives audit events and serves traces. Use New to create one.
type Agent struct {
	options   Options
	converter *auditlog.Converter
	ring      *traces.Ring
	queue     *queue
	peers     *peers
	token     []byte
	followers []*follower
	listener  *bounds.Listener
	server    *genericapiserver.GenericAPIServer
}

// scheme has the served kinds.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(s))
	metav1.AddToGroupVersion(s, metav1.Unversioned)
	return s
}()

// definitions are the OpenAPI definitions of the served kinds.
var definitions = openapi.Reflect([]openapi.Package{
	{Example: v1alpha1.AdmissionTrace{}, FieldDocs: v1alpha1.FieldDocs}, {Example: trace.Record{}, FieldDocs: trace.FieldDocs},
}, &v1alpha1.AdmissionTraceList{})

// New reads the authentication configuration of the cluster, and listens. It serves nothing until the caller calls Run.
func New(o Options) (_ *Agent, err error) {
	token, err := files.Read(filepath.Join(o.Credentials, TokenFile), files.Configuration)
	if err != nil {
		return nil, fmt.Errorf("--credentials: %w", err)
	}
	a := &Agent{
		options: o, converter: auditlog.NewConverter(auditlog.NewCluster(nil)), ring: traces.NewRing(o.TraceBytes),
		queue: newQueue(maxQueued), token: []byte(strings.TrimSpace(string(token))),
	}
	if len(a.token) < minToken {
		return nil, fmt.Errorf("--credentials: %s has fewer than %d characters: remove the directory, and a new one is made", TokenFile, minToken)
	}
	if len(o.Peers) > 0 {
		if a.peers, err = newPeers(o, string(a.token)); err != nil {
			return nil, err
		}
	}
	for _, path := range o.Follow {
		if err := files.Check(path, math.MaxInt64); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("--follow: %w", err)
		}
		a.followers = append(a.followers, &follower{path: path, take: func(event []byte, source string) {
			a.takeAll(batch{events: []jsontext.Value{bytes.Clone(event)}, source: source, size: len(event)})
		}})
	}
	registerMetrics(a)
	listener, err := net.Listen("tcp", net.JoinHostPort(o.BindAddress, strconv.Itoa(o.Port)))
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	defer func() {
		if err != nil {
			listener.Close()
		}
	}()
	a.listener = bounds.NewListener(listener, connections)
	config, err := a.config()
	if err != nil {
		return nil, err
	}
	if a.server, err = config.Complete(nil).New("gatehouse-agent", genericapiserver.NewEmptyDelegate()); err != nil {
		return nil, err
	}
	return a, a.install(config)
}

// config returns the configuration of k8s.io/apiserver.
func (a *Agent) config() (*genericapiserver.Config, error) {
	o := &a.options
	config := genericapiserver.NewConfig(initialization.Codecs(scheme))
	config.EffectiveVersion, config.FeatureGate = catalog.EffectiveVersion(), utilfeature.DefaultFeatureGate
	config.EnableDiscovery, config.EnableProfiling, config.SkipOpenAPIInstallation = false, false, true
	config.MaxRequestsInFlight, config.MaxMutatingRequestsInFlight = 100, 10
	config.ShutdownDelayDuration = o.ShutdownDelay
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return a.front(genericapiserver.DefaultBuildHandlerChain(api, c))
	}
	config.HealthzChecks = append(config.HealthzChecks, survive.Check())
	config.AddReadyzChecks(healthz.NamedCheck("parts", survive.Check().Check), healthz.NamedCheck("audit-log", a.checkFollowed))

	serving := genericoptions.NewSecureServingOptions()
	serving.Listener, serving.BindPort = a.listener, a.Port()
	serving.ServerCert.CertKey.CertFile = filepath.Join(o.Credentials, selfsigned.CertificateFile)
	serving.ServerCert.CertKey.KeyFile = filepath.Join(o.Credentials, selfsigned.KeyFile)
	if err := serving.WithLoopback().ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return nil, fmt.Errorf("--credentials: %w", err)
	}
	// The cluster authenticates and authorizes clients. A ConfigMap of the cluster has the CAs of its API server's
	// certificate and of client certificates.
	authentication := genericoptions.NewDelegatingAuthenticationOptions()
	authentication.RemoteKubeConfigFile = o.Kubeconfig
	if err := authentication.ApplyTo(&config.Authentication, config.SecureServing, nil); err != nil {
		return nil, fmt.Errorf("the cluster does not say by whom callers are known: %w", err)
	}
	config.Authentication.Authenticator = a.listener.Authenticator(config.Authentication.Authenticator)
	authorization := genericoptions.NewDelegatingAuthorizationOptions().WithAlwaysAllowPaths("/healthz", "/livez", "/readyz")
	authorization.RemoteKubeConfigFile = o.Kubeconfig
	if err := authorization.ApplyTo(&config.Authorization); err != nil {
		return nil, fmt.Errorf("the cluster does not say what callers may do: %w", err)
	}
	return config, nil
}

// Port returns the port of the listener.
func (a *Agent) Port() int { return a.listener.Addr().(*net.TCPAddr).Port }

// install serves the traces, with discovery and OpenAPI documents.
func (a *Agent) install(config *genericapiserver.Config) error {
	group := &resources.Group{
		GroupVersion: v1alpha1.SchemeGroupVersion, Hub: v1alpha1.SchemeGroupVersion,
		Scheme: scheme, Codec: initialization.NewCodec(initialization.Codecs(scheme)), ParameterCodec: runtime.NewParameterCodec(scheme),
		Storage:    map[string]rest.Storage{traces.Resource: traces.NewStorage(a.ring, nil, trace.RecordOptions{})},
		Authorizer: config.Authorization.Authorizer, MaxRequestBodyBytes: 1 << 20,
		Equivalents: runtime.NewEquivalentResourceRegistry(),
		// Server-side apply is not supported.
		TypeConverter: managedfields.NewDeducedTypeConverter(),
	}
	endpoints, err := group.Endpoints()
	if err != nil {
		return err
	}
	served := resources.Static{}
	served.Add(endpoints)
	found, err := discovery.New(config.ExternalAddress, discovery.VersionsOf(endpoints))
	if err != nil {
		return err
	}
	documents := openapi.New(openapi.Options{Models: openapi.NewModels(definitions, scheme), Endpoints: endpoints, Version: "v1alpha1"})
	handler := &resources.Handler{Sources: []resources.Source{served}, NotFound: found}
	m := a.server.Handler.NonGoRestfulMux
	m.Handle("/apis", handler)
	m.HandlePrefix("/apis/", handler)
	m.Handle("/openapi/v2", documents)
	m.Handle("/openapi/v3", documents)
	m.HandlePrefix("/openapi/v3/", documents)
	return nil
}

// Run receives events and serves traces until ctx ends. It calls ready once, when it serves.
func (a *Agent) Run(ctx context.Context, ready func()) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer func() {
		stop()
		running.Wait()
	}()
	start := func(name string, run func(context.Context)) {
		running.Go(func() { survive.Run(ctx, name, run) })
	}
	start("audit events", a.convert)
	start("unanswered requests", a.unanswered)
	if a.peers != nil {
		start("peers", a.peers.run)
	}
	for _, f := range a.followers {
		start("audit log "+f.path, f.run)
	}
	if a.options.Watch != nil {
		start("watch", a.options.Watch)
	}
	if a.options.Derive != nil {
		start("registrations", func(ctx context.Context) {
			a.options.Derive(ctx, func(w *offline.World) { a.converter.SetCluster(auditlog.NewCluster(w)) })
		})
	}
	if err := a.server.AddPostStartHook("ready", func(genericapiserver.PostStartHookContext) error {
		ready()
		return nil
	}); err != nil {
		return err
	}
	err := a.server.PrepareRun().RunWithContext(ctx)
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// take converts an event to a trace, and stores it. It reports whether the event is readable. The caller must not
// change the event.
func (a *Agent) take(event []byte, source string, fromPeer bool) bool {
	t, why := a.converter.Add(event, source)
	switch {
	case why != "":
		events.WithLabelValues("unreadable").Inc()
		return false
	case t == nil:
		events.WithLabelValues("unused").Inc()
	default:
		events.WithLabelValues("kept").Inc()
		if !fromPeer {
			countAdmission(t)
		}
		a.ring.Add(t)
	}
	return true
}

// takeAll converts a batch of events, and shares it with the peers, unless it came from a peer.
func (a *Agent) takeAll(b batch) {
	var shared batch
	for _, event := range b.events {
		if !a.take(event, b.source, b.fromPeer) || b.fromPeer {
			continue
		}
		one := batch{events: []jsontext.Value{event}, source: b.source, size: len(event)}
		if !shared.joins(one) {
			a.peers.share(shared)
			shared = one
			continue
		}
		shared.events, shared.size = append(shared.events, event), shared.size+one.size
	}
	a.peers.share(shared)
}

// convert processes the events of the queue until ctx ends.
func (a *Agent) convert(ctx context.Context) {
	for {
		b, ok := a.queue.next(ctx)
		if !ok {
			return
		}
		a.takeAll(b)
	}
}

// patience is the wait for the response to a request, after which its trace says that no response was seen.
const patience = time.Minute

// unanswered stores the traces of requests that were received, and have no later event.
func (a *Agent) unanswered(ctx context.Context) {
	tick := time.NewTicker(patience / 4)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			a.keepUnanswered(now.Add(-patience))
		case <-ctx.Done():
			return
		}
	}
}

// keepUnanswered stores the traces of unanswered requests that were received before a time.
func (a *Agent) keepUnanswered(before time.Time) {
	for _, t := range a.converter.Unanswered(before) {
		a.ring.Add(t)
	}
}

// authenticated reports whether a request comes from the API server, by the token of its kubeconfig.
func (a *Agent) authenticated(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && subtle.ConstantTimeCompare([]byte(token), a.token) == 1
}

// hostOf returns the client address of a request.
func hostOf(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return cmp.Or(host, r.RemoteAddr)
}
