package server

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/server/resources"
)

// revisionHeader is in the answer to every write that admission judged: the
// storage revision of the registrations it was judged by. Every registration
// whose resourceVersion is not greater was in force. When several snapshots were
// used, this is the oldest.
const revisionHeader = "Gatehouse-Registration-Revision"

// judged is kept in the context of a request that writes. The response may be
// written while admission goes on, after a timeout, so that access is atomic.
type judged struct {
	by atomic.Pointer[snapshot.Snapshot]
}

type judgedKey struct{}

// snapshots has the registrations in force, and notes who was judged by which.
type snapshots struct{ *snapshot.Refresher }

// Acquire implements admission.Snapshots.
func (s snapshots) Acquire(ctx context.Context, subject snapshot.Subject) (*snapshot.Snapshot, error) {
	found, err := s.Refresher.Acquire(ctx, subject)
	if err == nil {
		if j, ok := ctx.Value(judgedKey{}).(*judged); ok {
			// Snapshots get younger: the first one is the oldest.
			j.by.CompareAndSwap(nil, found)
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
		j := &judged{}
		w = resources.AnsweringWith(w, func(header http.Header) {
			if by := j.by.Load(); by != nil {
				header.Set(revisionHeader, by.Revision)
			}
		})
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), judgedKey{}, j)))
	})
}
