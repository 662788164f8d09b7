package spans

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"
)

// lastSpans is how long a server that ends waits until the spans of the last requests are sent. A
// receiver that does not answer must not delay the end.
const lastSpans = 2 * time.Second

// Read reads a TracingConfiguration; nil for no file. An error names --tracing-config-file.
func Read(file string) (*tracingapi.TracingConfiguration, error) {
	if file == "" {
		return nil, nil
	}
	configuration, err := options.ReadTracingConfiguration(file)
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: %w", err)
	}
	if errs := tracingapi.ValidateTracingConfiguration(configuration, feature.DefaultFeatureGate, nil); len(errs) > 0 {
		return nil, fmt.Errorf("--tracing-config-file %s: %w", file, errs.ToAggregate())
	}
	return configuration, nil
}

// New returns the provider that records the spans of requests and sends them to the receiver
// that a configuration names. Without a configuration the provider records nothing. id names
// this run of the server.
func New(ctx context.Context, configuration *tracingapi.TracingConfiguration, id string) (tracing.TracerProvider, error) {
	if configuration == nil {
		return tracing.NewNoopTracerProvider(), nil
	}
	provider, err := tracing.NewProvider(ctx, configuration, nil, []resource.Option{
		resource.WithAttributes(semconv.ServiceName("gatehouse"), semconv.ServiceInstanceID(id)),
	})
	if err != nil {
		return nil, err
	}
	return tracer{provider}, nil
}

// tracer is a provider that delays the end of the server for lastSpans at most.
type tracer struct{ tracing.TracerProvider }

// Shutdown implements tracing.TracerProvider.
func (t tracer) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lastSpans)
	defer cancel()
	return t.TracerProvider.Shutdown(ctx)
}
