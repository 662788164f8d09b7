package clustersnapshot

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"regexp"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// maxMetrics bounds the metrics read from a cluster, in bytes.
	maxMetrics = 256 << 20
	// metricsPatience is the timeout for reading metrics. The metrics of a large cluster take seconds.
	metricsPatience = 15 * time.Second
)

// gateLine matches a metric of a feature gate.
var gateLine = regexp.MustCompile(`^kubernetes_feature_enabled\{name="([A-Za-z0-9]+)",stage="[A-Z]*"\} ([01])$`)

// gates reads the feature gates of an API server from its metrics. It returns nil if they cannot be read: many users
// may not read metrics, and checks work without the gates.
func gates(ctx context.Context, client rest.Interface) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, metricsPatience)
	defer cancel()
	body, err := client.Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").Stream(ctx)
	if err != nil {
		return nil
	}
	defer body.Close()
	var found map[string]bool
	lines := bufio.NewScanner(io.LimitReader(body, maxMetrics))
	for lines.Scan() {
		if m := gateLine.FindSubmatch(lines.Bytes()); m != nil {
			if found == nil {
				found = map[string]bool{}
			}
			found[string(m[1])] = string(m[2]) == "1"
		} else if len(found) > 0 && bytes.HasPrefix(lines.Bytes(), []byte("#")) {
			// Metrics are sorted by name.
			break
		}
	}
	return found
}
