package inforce

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apiserver/pkg/warning"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/server/handling/inflight"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/revisionmark"
)

// timeToAnswer is the part of a request's time that is reserved for the response, or half of the
// remaining time if that is less.
const timeToAnswer = 500 * time.Millisecond

// Holder holds the answers to writes of registrations.
type Holder struct {
	// Refresher has the registrations that admission uses.
	Refresher *snapshot.Refresher
	// MaxStaleness is the greatest age of registrations that admission may use.
	MaxStaleness time.Duration
}

// Hold implements registrations.Hold: the response to a write waits until this server uses the
// stored object for admission (S11.8), so that a client's next request is evaluated against the
// registration that the client wrote. A write that stored nothing is answered at once.
func (h Holder) Hold(ctx context.Context) (writing context.Context, done func()) {
	writing, receipt := revisionmark.WithReceipt(ctx)
	return writing, func() {
		if revision := receipt.Revision(); revision > 0 {
			h.await(ctx, revision)
		}
	}
}

// await returns when admission uses all registrations of a revision.
//
// Two times bound the wait: the request's own time, and MaxStaleness, after which the server admits
// no request while it cannot read registrations (S11.10). If the wait ends and the registrations
// are not active, the client gets a warning: the write itself was done.
//
// The wait cannot delay the read that it waits for: reading registrations needs no request, and no
// webhook is called for writes of registrations (S2.38).
func (h Holder) await(ctx context.Context, revision int64) {
	defer inflight.StepAside(ctx)()
	until := time.Now().Add(h.MaxStaleness)
	if deadline, limited := ctx.Deadline(); limited {
		if last := deadline.Add(-min(timeToAnswer, time.Until(deadline)/2)); last.Before(until) {
			until = last
		}
	}
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err := h.Refresher.Await(waiting, func(s *snapshot.Snapshot) bool {
		read, err := strconv.ParseInt(s.Revision, 10, 64)
		return err == nil && read >= revision
	})
	if err != nil {
		warning.AddWarning(ctx, "", fmt.Sprintf("the change is stored but not yet active: this server could not read registrations since then (%v) and will retry", err))
	}
}
