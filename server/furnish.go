package server

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/server/auth"
)

// makeUpInterval is how often a server tries to make what it could not make at
// its start.
const makeUpInterval = 5 * time.Second

// furnish makes the objects that every cluster has. Like everybody's, they go
// through admission, and a webhook that is down may be for them. That must not
// keep a server from starting: who is to mend the webhook needs it. What the API
// refuses is left for makeUp, and that part of the start counts as done.
func (a *assembly) furnish(ctx context.Context, part string, create func(context.Context) error) error {
	return a.boot.do(ctx, part, func(ctx context.Context) error {
		err := create(ctx)
		if err == nil || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			return err
		}
		klog.ErrorS(err, "Something that every cluster has cannot be made; the server starts without it and tries again")
		a.missing = append(a.missing, create)
		return nil
	})
}

// makeUp makes what could not be made at the start, as soon as it can be.
func (a *assembly) makeUp(ctx context.Context) {
	tick := time.NewTicker(makeUpInterval)
	defer tick.Stop()
	for len(a.missing) > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var still []func(context.Context) error
		for _, create := range a.missing {
			if err := create(ctx); err != nil {
				still = append(still, create)
				klog.V(2).ErrorS(err, "Something that every cluster has still cannot be made")
			}
		}
		if a.missing = still; len(still) == 0 {
			klog.InfoS("What could not be made at the start has been made")
		}
	}
}

func (a *assembly) createRoles(ctx context.Context) error { return auth.Bootstrap(ctx, a.client) }
