package suite

import (
	"context"

	"github.com/gatehouse-dev/gatehouse/internal/predict/check"
)

// programs are the webhooks that were started for tests.
type running struct {
	// services are those whose webhooks were started, as NAMESPACE/NAME.
	services map[string]bool
}

func startPrograms(ctx context.Context, suites []*Suite, set *worldSet, o *check.Options) (*running, error) {
	return &running{}, nil
}

func (r *running) await(ctx context.Context) error { return nil }

func (r *running) stop() {}
