package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/kubernetesservice"
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

// publish returns what makes the service and adds this server to it. The error is that of the
// API. After another one the publisher tries again later by itself.
func publish(p *kubernetesservice.Publisher) func(context.Context) error {
	return func(ctx context.Context) error {
		var err error
		_ = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, allocatorStart, true, func(ctx context.Context) (bool, error) {
			err = p.Publish(ctx)
			return !ofAllocator(err), nil
		})
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			return fmt.Errorf("service kubernetes: %w", err)
		}
		if err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Could not create the service kubernetes; will retry")
		}
		return nil
	}
}

// ofAllocator reports whether an error may be that the allocator of cluster IPs has not seen
// the ServiceCIDR. A policy that denies has the same reason, and names no field.
func ofAllocator(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return strings.HasPrefix(c.Field, "spec.clusterIP")
	})
}
