package server

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

// timeToAnswer is what is kept of a request's time for answering it; half of what is
// left if that is less.
const timeToAnswer = 500 * time.Millisecond

// hold implements registrations.Hold: a write is answered when this server judges
// requests by it (S11.8), so that a client's next request is judged by what it wrote.
// A write that stored nothing is answered at once.
func (a *admitter) hold(ctx context.Context) (writing context.Context, done func()) {
	writing, receipt := revisionmark.WithReceipt(ctx)
	return writing, func() {
		if revision := receipt.Revision(); revision > 0 {
			a.awaitInForce(ctx, revision)
		}
	}
}

// awaitInForce returns when requests are judged by all registrations of a revision.
// The wait is bounded by the request's time, and by the time after which no request
// is judged any more when registrations cannot be read (S11.10). When it is over in
// vain, there is a warning: the write itself was done.
//
// Nothing waits for itself here: reading registrations needs no request, and writes of
// registrations are judged by no webhook (S2.38).
func (a *admitter) awaitInForce(ctx context.Context, revision int64) {
	defer inflight.StepAside(ctx)()
	until := time.Now().Add(a.settings.AdmissionMaxStaleness)
	if deadline, limited := ctx.Deadline(); limited {
		if last := deadline.Add(-min(timeToAnswer, time.Until(deadline)/2)); last.Before(until) {
			until = last
		}
	}
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err := a.refresher.Await(waiting, func(s *snapshot.Snapshot) bool {
		read, err := strconv.ParseInt(s.Revision, 10, 64)
		return err == nil && read >= revision
	})
	if err != nil {
		warning.AddWarning(ctx, "", fmt.Sprintf("the change is stored but not yet in force: this server could not read registrations since then (%v) and will retry", err))
	}
}
