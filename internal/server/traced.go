package server

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/admission"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces"
)

// newRing makes the place for the traces of the latest requests; nil when none are kept.
func newRing(s *settings) *traces.Ring {
	if s.AdmissionTraceBytes < 0 {
		return nil
	}
	return traces.NewRing(s.AdmissionTraceBytes)
}

// traced is a filter that keeps the traces of the requests that next handles, if traces
// are kept.
func traced(ring *traces.Ring) filter {
	return func(next http.Handler) http.Handler {
		if ring == nil {
			return next
		}
		return admission.Traced(next, ring.Add)
	}
}
