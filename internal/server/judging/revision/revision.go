package revision

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// header is in the response to every write that passed through admission: the storage revision of
// the registrations that the write was evaluated against. Every registration whose resourceVersion
// is not greater was active. If admission used several snapshots, the header has the revision of
// the oldest.
const header = "Gatehouse-Registration-Revision"

// oldest is kept in the context of a write: the first snapshot that admission used for the request,
// which is the oldest one. After a timeout the response may be written while admission continues,
// so that access is atomic.
type oldest struct {
	atomic.Pointer[snapshot.Snapshot]
}

type oldestKey struct{}

// Snapshots has the active registrations, and notes which of them were used for a request.
type Snapshots struct{ *snapshot.Refresher }

// Acquire implements admission.Snapshots.
func (s Snapshots) Acquire(ctx context.Context, subject snapshot.Subject) (*snapshot.Snapshot, error) {
	found, err := s.Refresher.Acquire(ctx, subject)
	if err == nil {
		if o, ok := ctx.Value(oldestKey{}).(*oldest); ok {
			o.CompareAndSwap(nil, found)
		}
	}
	return found, err
}

// Handler returns a handler that adds the header to the answers of next.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions:
			next.ServeHTTP(w, req)
			return
		}
		o := &oldest{}
		w = resources.AnsweringWith(w, func(answer http.Header) {
			if by := o.Load(); by != nil {
				answer.Set(header, by.Revision)
			}
		})
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), oldestKey{}, o)))
	})
}
