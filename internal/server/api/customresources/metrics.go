package customresources

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/component-base/metrics"

	"github.com/gatehouse-dev/gatehouse/internal/kit/metric"
)

// durations is upstream's histogram of the calls for each CRD. Upstream registers a histogram of
// this name when it makes its first converter. The second of the two that registers uses the
// histogram of the first.
var durations = sync.OnceValue(func() *metrics.HistogramVec {
	return metric.Registered(metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name:           "apiserver_crd_conversion_webhook_duration_seconds",
		Help:           "CRD webhook conversion duration in seconds",
		Buckets:        metrics.ExponentialBuckets(0.001, 2, 15),
		StabilityLevel: metrics.ALPHA,
	}, []string{"crd_name", "from_version", "to_version", "succeeded"}))
})

// observe counts a conversion by a webhook, in upstream's metrics. Unlike upstream, it does not
// count a conversion that needed no webhook as a success.
func observe(ctx context.Context, definition, from, to string, took time.Duration, err error) {
	if from != to {
		durations().WithLabelValues(definition, from, to, strconv.FormatBool(err == nil)).Observe(took.Seconds())
	}
	if err == nil {
		conversion.Metrics.ObserveConversionWebhookSuccess(ctx, took)
		return
	}
	kind := conversion.ConversionWebhookCallFailure
	var failed *stepError
	if errors.As(err, &failed) {
		kind = failed.kind
	}
	conversion.Metrics.ObserveConversionWebhookFailure(ctx, took, kind)
}

// stepError is an error about a response, with its name in upstream's metrics.
type stepError struct {
	kind conversion.ConversionWebhookErrorType
	error
}

func (e *stepError) Unwrap() error { return e.error }
