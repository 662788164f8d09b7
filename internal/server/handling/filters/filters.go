package filters

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/routine"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/stack"
)

// Filter returns a handler that runs before next, and calls it.
type Filter func(next http.Handler) http.Handler

// Through returns a handler behind filters, the first of them outermost.
func Through(handler http.Handler, filters ...Filter) http.Handler {
	for i := len(filters) - 1; i >= 0; i-- {
		handler = filters[i](handler)
	}
	return handler
}

// Options are the settings of the filters that the configuration of k8s.io/apiserver does not have.
type Options struct {
	// Traced means that spans of requests are exported.
	Traced bool
	// Stopping is closed when no new requests are served. Watches end then, if the configuration
	// gives them time for that.
	Stopping <-chan struct{}
	// Before, if set, is a filter that runs after authentication and before the request waits for
	// seats.
	Before Filter
	// OnForbidden, if set, is called with each request that the user has no right to make.
	OnForbidden func(authorizer.Attributes)
	// LikeTheRelease limits warnings to the warnings of the emulated release.
	LikeTheRelease bool
}

// Library returns api behind the filters of k8s.io/apiserver.
func Library(api http.Handler, c *genericapiserver.Config, o Options) http.Handler {
	rights, longRunning := c.Authorization.Authorizer, c.LongRunningFunc
	var tracer trace.Tracer
	if o.Traced {
		tracer = c.TracerProvider.Tracer("gatehouse/filters")
	}
	begin := func(name string) Filter { return begin(name, tracer) }
	filters := []Filter{
		genericapifilters.WithAuditInit,
		func(next http.Handler) http.Handler {
			return genericfilters.WithPanicRecovery(next, c.RequestInfoResolver)
		},
		genericapifilters.WithRequestReceivedTimestamp,
		func(next http.Handler) http.Handler {
			return genericapifilters.WithRequestInfo(next, c.RequestInfoResolver)
		},
		when(c.FeatureGate.Enabled(genericfeatures.APIServingWithRoutine), func(next http.Handler) http.Handler { return routine.WithRoutine(next, longRunning) }),
		genericapifilters.WithLatencyTrackers,
		genericfilters.WithHTTPLogging,
		func(next http.Handler) http.Handler { return genericfilters.WithHSTS(next, c.HSTSDirectives) },
		genericapifilters.WithCacheControl,
		when(c.GoawayChance > 0, func(next http.Handler) http.Handler {
			return genericfilters.WithProbabilisticGoaway(next, c.GoawayChance)
		}),
		when(c.ShutdownWatchTerminationGracePeriod > 0, func(next http.Handler) http.Handler {
			return genericfilters.WithWatchTerminationDuringShutdown(next, stopping(o.Stopping), c.WatchRequestWaitGroup)
		}),
		func(next http.Handler) http.Handler {
			return genericfilters.WithWaitGroup(next, longRunning, c.NonLongRunningRequestWaitGroup)
		},
		func(next http.Handler) http.Handler {
			return genericapifilters.WithRequestDeadline(next, c.AuditBackend, c.AuditPolicyRuleEvaluator, longRunning, c.Serializer, c.RequestTimeout)
		},
		func(next http.Handler) http.Handler {
			return genericfilters.WithTimeoutForNonLongRunningRequests(next, longRunning)
		},
		// The handler with the timeout runs in a goroutine of its own.
		stack.Handler,
		// Handlers behind the timeout may add warnings at any time.
		genericapifilters.WithWarningRecorder,
		when(o.LikeTheRelease, restated),
		func(next http.Handler) http.Handler {
			return genericfilters.WithCORS(next, c.CorsAllowedOriginList, nil, nil, nil, "true")
		},
		begin("authentication"),
		func(next http.Handler) http.Handler {
			refuse := genericapifilters.WithFailedAuthenticationAudit(genericapifilters.Unauthorized(c.Serializer), c.AuditBackend, c.AuditPolicyRuleEvaluator)
			return genericapifilters.WithAuthentication(next, c.Authentication.Authenticator, end(refuse), c.Authentication.APIAudiences, c.Authentication.RequestHeaderConfig)
		},
		end,
		// Whether the user may ask for a span is known after authentication.
		func(next http.Handler) http.Handler {
			return ifTraced(o.Traced, genericapifilters.WithTracing(next, c.TracerProvider), next)
		},
		begin("audit"),
		func(next http.Handler) http.Handler {
			return genericapifilters.WithAudit(next, c.AuditBackend, c.AuditPolicyRuleEvaluator, longRunning)
		},
		end,
	}
	if c.FeatureGate.Enabled(genericfeatures.ConstrainedImpersonation) {
		filters = append(filters, begin("constrainedimpersonation"), func(next http.Handler) http.Handler {
			return impersonation.WithConstrainedImpersonation(next, rights, c.Serializer)
		}, end)
	} else {
		filters = append(filters, begin("impersonation"), func(next http.Handler) http.Handler {
			return impersonation.WithImpersonation(next, rights, c.Serializer)
		}, end)
	}
	if o.Before != nil {
		filters = append(filters, o.Before)
	}
	if c.FlowControl != nil {
		filters = append(filters, begin("priorityandfairness"), func(next http.Handler) http.Handler {
			work := flowcontrolrequest.NewWorkEstimator(
				c.StorageObjectCountTracker.Get, c.FlowControl.GetInterestedWatchCount, flowcontrolrequest.DefaultWorkEstimatorConfig(), c.FlowControl.GetMaxSeats)
			return genericfilters.WithPriorityAndFairness(next, longRunning, c.FlowControl, work, c.RequestTimeout/4)
		}, end)
	}
	return Through(api, append(filters, begin("authorization"), func(next http.Handler) http.Handler {
		return genericapifilters.WithAuthorization(next, observed{rights, o.OnForbidden}, c.Serializer)
	}, end)...)
}

// observed is an authorizer that reports the requests that it does not allow.
type observed struct {
	upstream.Authorizer
	report func(authorizer.Attributes)
}

// Authorize implements upstream.Authorizer.
func (o observed) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := o.Authorizer.Authorize(ctx, a)
	if o.report != nil && decision != authorizer.DecisionAllow && err == nil {
		o.report(a)
	}
	return decision, reason, err
}

// when returns filter if it is wanted, or else a filter without effect.
func when(wanted bool, filter Filter) Filter {
	if wanted {
		return filter
	}
	return func(next http.Handler) http.Handler { return next }
}

// stopping is closed when the server ends.
type stopping <-chan struct{}

var _ request.ServerShutdownSignal = stopping(nil)

func (s stopping) ShuttingDown() <-chan struct{} { return s }

// ifTraced sends requests to traced if spans are exported, or if the caller names a span, which is
// then passed on to webhooks. Other requests are sent to plain, and have no span.
func ifTraced(always bool, traced, plain http.Handler) http.Handler {
	if always {
		return traced
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if len(req.Header["Traceparent"]) > 0 || len(req.Header["Baggage"]) > 0 {
			traced.ServeHTTP(w, req)
			return
		}
		plain.ServeHTTP(w, req)
	})
}
