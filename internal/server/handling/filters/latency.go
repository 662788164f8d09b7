package filters

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/server/httplog"
	"k8s.io/klog/v2"
)

// long is the time in a filter from which a request is logged.
const long = 100 * time.Millisecond

// stage is the filter that a request is in. A request is in one filter at a time, so that all
// filters share its stage.
type stage struct {
	name  string
	began time.Time
}

type stageKey struct{}

func stageOf(ctx context.Context) *stage {
	s, _ := ctx.Value(stageKey{}).(*stage)
	return s
}

// begin returns a filter that notes when a request reaches the next filter, which has the given
// name. If there is a tracer, the filter starts a span of that name.
func begin(name string, tracer trace.Tracer) Filter {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if tracer != nil {
				ctx, span := tracer.Start(req.Context(), name)
				defer span.End()
				req = req.WithContext(ctx)
			}
			s := stageOf(req.Context())
			if s == nil {
				s = &stage{}
				req = req.WithContext(context.WithValue(req.Context(), stageKey{}, s))
			}
			s.name, s.began = name, time.Now()
			next.ServeHTTP(w, req)
		})
	}
}

// end is a filter that counts how long the filter before it took.
func end(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s := stageOf(req.Context()); s != nil {
			took := time.Since(s.began)
			metrics.RecordFilterLatency(req.Context(), s.name, took)
			if took > long && klog.V(3).Enabled() {
				httplog.AddKeyValue(req.Context(), fmt.Sprintf("fl_%s", s.name), took.String())
			}
		}
		next.ServeHTTP(w, req)
	})
}
