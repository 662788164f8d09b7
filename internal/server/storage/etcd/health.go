package etcd

import (
	"context"
	"fmt"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// healthTimeout is how long a healthy etcd may take to answer.
const healthTimeout = 2 * time.Second

// Check returns a health check that fails when etcd does not answer a consistent
// read within two seconds.
func Check(client clientv3.KV) func(*http.Request) error {
	return func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), healthTimeout)
		defer cancel()
		if _, err := client.Get(ctx, "/gatehouse/health"); err != nil {
			return fmt.Errorf("etcd: %w", err)
		}
		return nil
	}
}
