package kubernetesservice

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
)

// allocatorStart is how long the allocator of cluster IPs may take until it has seen the
// ServiceCIDR. Before, the allocator refuses every address as invalid.
const allocatorStart = 10 * time.Second

// Start makes the service and adds this server to it while the server starts. It returns only
// errors of the API. It logs other errors, and Run tries again later.
func (p *Publisher) Start(ctx context.Context) error {
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

// ofAllocator reports whether an error may be that the allocator of cluster IPs has not seen
// the ServiceCIDR. The error of a policy that denies has the same reason, but names no such
// field.
func ofAllocator(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return strings.HasPrefix(c.Field, "spec.clusterIP")
	})
}
