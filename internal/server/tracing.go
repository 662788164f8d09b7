package server

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

// lastSpans is how long the spans of the last requests may take on their way when the
// server ends. A receiver that does not answer must not hold it up.
const lastSpans = 2 * time.Second

// parseTracing reads the TracingConfiguration.
func (s *settings) parseTracing() error {
	if s.TracingConfigFile == "" {
		return nil
	}
	configuration, err := options.ReadTracingConfiguration(s.TracingConfigFile)
	if err != nil {
		return fmt.Errorf("--tracing-config-file: %w", err)
	}
	if errs := tracingapi.ValidateTracingConfiguration(configuration, feature.DefaultFeatureGate, nil); len(errs) > 0 {
		return fmt.Errorf("--tracing-config-file %s: %w", s.TracingConfigFile, errs.ToAggregate())
	}
	s.tracing = configuration
	return nil
}

// newTracer makes what records the spans of requests and sends them to the receiver that
// the settings name; without one, spans are not recorded. id names this run of the server.
func newTracer(ctx context.Context, s *settings, id string) (tracing.TracerProvider, error) {
	if s.tracing == nil {
		return tracing.NewNoopTracerProvider(), nil
	}
	provider, err := tracing.NewProvider(ctx, s.tracing, nil, []resource.Option{
		resource.WithAttributes(semconv.ServiceName("gatehouse"), semconv.ServiceInstanceID(id)),
	})
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file %s: %w", s.TracingConfigFile, err)
	}
	return tracer{provider}, nil
}

// tracer is a provider that does not hold up the end of the server.
type tracer struct{ tracing.TracerProvider }

// Shutdown implements tracing.TracerProvider.
func (t tracer) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lastSpans)
	defer cancel()
	return t.TracerProvider.Shutdown(ctx)
}
