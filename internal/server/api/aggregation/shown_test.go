package aggregation

import (
	"context"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
)

// S22.28: an APIService of the server's own group names a service, and is not asked. Discovery works
// without an APIService that is.
func TestDiscoveryRunsWithoutAServerToAsk(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	newShown(func([]discovery.Version) {}).run(ctx)
}
