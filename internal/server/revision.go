package server

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// revisionHeader is in the answer to every write that admission judged: the
// storage revision of the registrations it was judged by. Every registration
// whose resourceVersion is not greater was in force. When several snapshots were
// used, this is the oldest.
const revisionHeader = "Gatehouse-Registration-Revision"

// oldest is kept in the context of a request that writes: the first snapshot that it was
// admitted by, which is the oldest. The response may be written while admission goes on,
// after a timeout, so that access is atomic.
type oldest struct {
	atomic.Pointer[snapshot.Snapshot]
}

type oldestKey struct{}

// snapshots has the registrations in force, and notes which ones a request was admitted by.
type snapshots struct{ *snapshot.Refresher }

// Acquire implements admission.Snapshots.
func (s snapshots) Acquire(ctx context.Context, subject snapshot.Subject) (*snapshot.Snapshot, error) {
	found, err := s.Refresher.Acquire(ctx, subject)
	if err == nil {
		if o, ok := ctx.Value(oldestKey{}).(*oldest); ok {
			o.CompareAndSwap(nil, found)
		}
	}
	return found, err
}

// showRevision returns a handler that adds revisionHeader to the answers of next.
func showRevision(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions:
			next.ServeHTTP(w, req)
			return
		}
		o := &oldest{}
		w = resources.AnsweringWith(w, func(header http.Header) {
			if by := o.Load(); by != nil {
				header.Set(revisionHeader, by.Revision)
			}
		})
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), oldestKey{}, o)))
	})
}
