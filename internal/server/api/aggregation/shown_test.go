package aggregation

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
)

// S22.28: an APIService of the server's own group that names a service is not queried. Discovery
// works without any APIService to query.
func TestDiscoveryRunsWithoutAServerToAsk(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	newShown(func([]discovery.Version) {}).run(ctx)
}
