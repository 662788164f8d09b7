package traces

import (
	"net/http"

	"github.com/gatehouse-dev/gatehouse/admission"
)

// Handler returns a handler that keeps the traces of the requests that next handles. Without a
// ring it returns next.
func (r *Ring) Handler(next http.Handler) http.Handler {
	if r == nil {
		return next
	}
	return admission.Traced(next, r.Add)
}
