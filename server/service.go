package server

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/server/kubernetesservice"
)

// newPublisher sets up the service kubernetes in the namespace default.
func newPublisher(s *settings, v *serving, self *loopback, db *database) (*kubernetesservice.Publisher, error) {
	return kubernetesservice.New(kubernetesservice.Options{
		Loopback: self.config, Services: self.informers.Core().V1().Services(),
		Etcd: db.client.Client, Prefix: s.ownKey("endpoints"), Server: replicaID(),
		Address: v.advertised, Port: v.port, Range: s.serviceRange,
	})
}

// allocatorStart is how long the allocator of cluster IPs may take until it has seen the
// ServiceCIDR. Before, it refuses every address as invalid.
const allocatorStart = 10 * time.Second

// publish returns a publisher that makes the service and adds this server to it. It
// tries again when a write is refused or fails.
func publish(p *kubernetesservice.Publisher) func(context.Context) error {
	return func(ctx context.Context) error {
		var err error
		_ = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, allocatorStart, true, func(ctx context.Context) (bool, error) {
			err = p.Publish(ctx)
			return !apierrors.IsInvalid(err), nil
		})
		if err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Could not create the service kubernetes; will retry")
		}
		return nil
	}
}
