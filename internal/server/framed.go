package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/console"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/auth"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/filters"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/stack"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/waiting"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/spans"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/quotas"
)

const (
	// maxRequestBody bounds the body of a request, in bytes, as in kube-apiserver.
	maxRequestBody = 3 << 20
	// maxWaiting bounds the creates that wait for initializers in addition to the
	// requests that are handled.
	maxWaiting = 10_000
)

// framed is the phase in which the generic server of k8s.io/apiserver is configured.
type framed struct {
	*reachable
	// config has the handlers in front of the API, and the health of the server. It is complete.
	config *genericapiserver.Config
	// places has the prefix and the stored version of each resource.
	places *serverstorage.DefaultStorageFactory
}

// newFramed configures the generic server of k8s.io/apiserver.
func newFramed(ctx context.Context, r *reachable) (*framed, error) {
	s, v, self := r.settings, r.serving, r.loopback
	config := genericapiserver.NewConfig(legacyscheme.Codecs)
	config.EffectiveVersion = catalog.EffectiveVersion()
	config.FeatureGate = utilfeature.DefaultFeatureGate
	config.SecureServing, config.LoopbackClientConfig = v.info, v.loopback
	config.ExternalAddress = strings.TrimPrefix(v.address.URL, "https://")
	config.EnableDiscovery = false
	config.EnableIndex = false
	config.EnableProfiling, config.EnableContentionProfiling = s.Features.EnableProfiling, s.Features.EnableContentionProfiling
	config.DebugSocketPath = s.Features.DebugSocketPath
	config.Flagz = s.Flags
	config.SkipOpenAPIInstallation = true
	// Package inflight bounds requests, and a request that waits can give back its place.
	if s.fair() {
		config.FlowControl = &inflight.Fair{
			Interface: utilflowcontrol.New(self.informers, self.client.FlowcontrolV1(), s.MaxRequestsInFlight+s.MaxMutatingRequestsInFlight),
			Delegated: func(ctx context.Context, info *request.RequestInfo) bool { return r.links.delegated(ctx, info) },
		}
	}
	config.MaxRequestsInFlight, config.MaxMutatingRequestsInFlight = 0, 0
	config.MaxRequestBodyBytes = maxRequestBody
	config.RequestTimeout, config.GoawayChance = s.RequestTimeout, s.GoawayChance
	config.HSTSDirectives, config.CorsAllowedOriginList = s.StrictTransportSecurity, s.CORSAllowedOrigins
	if !s.EndAtOnce {
		config.ShutdownWatchTerminationGracePeriod = 2 * time.Second
	}
	config.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))
	config.RequestInfoResolver = genericapiserver.NewRequestInfoResolver(config)
	room := waiting.NewRoom(maxWaiting)
	config.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		all := s.filters(c, room, r.stopping, r.admits, func(ctx context.Context, info *request.RequestInfo) bool { return r.links.delegated(ctx, info) })
		if s.EndAtOnce {
			all = append([]filters.Filter{patientHealth(r.ready, healthPatience)}, all...)
		}
		return filters.Through(r.withMajority(api, c), all...)
	}
	config.AddHealthChecks(healthz.NamedCheck("etcd", etcd.Check(r.db.client.KV)))
	// A restart does not help a KMS plugin that does not answer.
	config.HealthzChecks = append(config.HealthzChecks, r.db.values.HealthChecks()...)
	config.AddReadyzChecks(r.db.values.HealthChecks()...)
	// A part that has ended does not make the server unusable, and the other parts need not end.
	config.HealthzChecks = append(config.HealthzChecks, survive.Check())
	config.AddReadyzChecks(healthz.NamedCheck("admission", func(*http.Request) error { return r.links.judges() }))
	config.AddReadyzChecks(healthz.NamedCheck("ending", func(*http.Request) error {
		if r.asked.Err() != nil {
			return errors.New("the server is to end")
		}
		return nil
	}))
	config.AddReadyzChecks(healthz.NamedCheck("started", func(*http.Request) error {
		select {
		case <-r.ready:
			return nil
		default:
			return errors.New("the server is starting")
		}
	}))
	if err := identify(ctx, config, s, v, self); err != nil {
		return nil, err
	}
	var err error
	if config.Authorization.Authorizer, config.RuleResolver, err = auth.NewAuthorizer(ctx, s.Authorization, self.informers, config.APIServerID); err != nil {
		return nil, err
	}
	if s.Rehearsals {
		config.Authorization.Authorizer = rehearsalAuthorizer{config.Authorization.Authorizer}
	}
	if err := s.Audit.ApplyTo(config); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if config.AuditBackend != nil {
		config.AuditBackend = room.AuditBackend(config.AuditBackend)
	}
	tracer, err := spans.New(ctx, s.tracing, config.APIServerID)
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file %s: %w", s.TracingConfigFile, err)
	}
	r.ends.add(func() {
		if err := tracer.Shutdown(context.Background()); err != nil {
			klog.ErrorS(err, "Cannot send the spans of the last requests")
		}
	})
	config.TracerProvider = tracer
	places, err := newPlaces(s, config.EffectiveVersion, r.db.endpoints)
	if err != nil {
		return nil, err
	}
	// Resources that share a place are the same objects.
	config.StorageObjectCountTracker = newCounts(r.db.client.KV, s.EtcdPrefix, places.ResourcePrefix)
	config.EquivalentResourceRegistry = runtime.NewEquivalentResourceRegistryWithIdentity(places.ResourcePrefix)
	return &framed{r, config, places}, nil
}

// healthPatience is how long a request for the health of a server for tests waits for the end of
// the start.
const healthPatience = time.Second

// patientHealth has requests for the health of a starting server wait until the server is ready,
// for patience at most. Test libraries ask every 100 ms. Without the wait they would learn up
// to 100 ms later that the server is ready.
func patientHealth(ready <-chan struct{}, patience time.Duration) filters.Filter {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			switch req.URL.Path {
			case "/healthz", "/readyz", "/livez":
				timer := time.NewTimer(patience)
				defer timer.Stop()
				select {
				case <-ready:
				case <-timer.C:
				case <-req.Context().Done():
				}
			}
			next.ServeHTTP(w, req)
		})
	}
}

// filters returns the filters that a request passes on its way to the API, outermost first. One of
// the filters is the handler chain of k8s.io/apiserver: authentication, audit, authorization and
// more, in the order of kube-apiserver.
func (s *settings) filters(c *genericapiserver.Config, room *waiting.Room, stopping <-chan struct{}, admits filters.Filter, delegated func(context.Context, *request.RequestInfo) bool) []filters.Filter {
	limiter := inflight.New(inflight.Options{
		Reads: s.MaxRequestsInFlight, Writes: s.MaxMutatingRequestsInFlight, Yielded: maxWaiting, Fair: s.fair(), MaxBody: maxRequestBody,
		LongRunning: func(req *http.Request, info *request.RequestInfo) bool {
			return c.LongRunningFunc(req, info) || delegated(req.Context(), info)
		},
		Serializer: c.Serializer,
	})
	return []filters.Filter{
		stack.PartHandler,
		func(next http.Handler) http.Handler {
			return genericfilters.WithPanicRecovery(next, c.RequestInfoResolver)
		},
		outside,
		s.console,
		admits,
		room.Doorway,
		inflight.Reserve,
		func(next http.Handler) http.Handler {
			return filters.Library(next, c, filters.Options{Traced: s.tracing != nil, Stopping: stopping, Before: limiter.Serve, OnForbidden: s.OnForbidden, LikeTheRelease: s.likeTheRelease()})
		},
		filters.Deadline,
		s.rehearsing,
		limiter.Limit,
		quotas.Handler,
	}
}

// fair reports whether requests are bounded by API priority and fairness, that is, by FlowSchemas
// and PriorityLevelConfigurations. A server of a check has one user.
func (s *settings) fair() bool { return s.Features.EnablePriorityAndFairness && !s.Rehearsals }

// identify configures how the server authenticates callers.
func identify(ctx context.Context, config *genericapiserver.Config, s *settings, v *serving, self *loopback) error {
	config.Authentication.APIAudiences = v.tokens.Issuers
	if own := s.Authentication.APIAudiences; len(own) > 0 {
		config.Authentication.APIAudiences = own
	}
	config.Authentication.RequestHeaderConfig = v.proxies
	var err error
	config.Authentication.Authenticator, err = auth.NewAuthenticator(ctx, auth.AuthenticationOptions{
		ClientCA: v.clientCA, RequestHeader: v.proxies, TokenFile: s.TokenAuthFile, LoopbackToken: v.loopback.BearerToken,
		Issuers: v.tokens.Issuers, Keys: v.tokens.Keys, Audiences: config.Authentication.APIAudiences, Client: self.client,
		Others: s.Authentication, Anonymous: s.AnonymousAuth, ServerID: config.APIServerID,
	})
	if err == nil {
		config.Authentication.Authenticator = v.callers.Authenticator(config.Authentication.Authenticator)
	}
	return err
}

// console serves the console in front of all filters, because a browser sends no credentials when it
// opens a page. The requests with which a view reads data pass all filters, as requests of the viewer.
func (s *settings) console(next http.Handler) http.Handler {
	if !s.Console {
		return next
	}
	return console.Handler(next)
}
