package bounds

import (
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

const (
	// Body is the usual limit of a request body, in bytes.
	Body = 1 << 20
	// Time is the usual limit of a request and its response.
	Time = 2 * time.Minute
	// responseTime is how much longer the response may take than the request. net/http sends some responses only when
	// the time of the body is over.
	responseTime = 10 * time.Second
	// unauthorizedTime is the time for a client to finish its request after the response 401.
	unauthorizedTime = time.Second
)

// Limit bounds one request. The zero value has no bounds.
type Limit struct {
	// Time bounds the request and its handling together. The response has 10 seconds more.
	Time time.Duration
	// Body bounds the request body, in bytes.
	Body int64
}

// Handler returns a handler that bounds requests by limit and passes them on to next. It closes the connection after
// the response 401.
//
// The deadlines of a request stay after its end, because net/http still reads the rest of its body then. net/http
// sets new deadlines for the next request of the connection.
func Handler(next http.Handler, limit func(*http.Request) Limit) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		control := http.NewResponseController(w)
		if l := limit(req); l != (Limit{}) {
			end := time.Now().Add(l.Time)
			// Responses of tests have no deadlines.
			_, _ = control.SetReadDeadline(end), control.SetWriteDeadline(end.Add(responseTime))
			req.Body = http.MaxBytesReader(w, req.Body, l.Body)
		}
		c := &closer{ResponseWriter: w}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(c), req)
		if c.unauthorized {
			_ = control.SetReadDeadline(time.Now().Add(unauthorizedTime))
		}
	})
}

// closer closes the connection of a response 401. Without it, net/http reads the rest of the body, as slowly as the
// client sends it, before it sends the response.
type closer struct {
	http.ResponseWriter
	unauthorized bool
}

var _ responsewriter.UserProvidedDecorator = (*closer)(nil)

func (c *closer) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *closer) WriteHeader(code int) {
	if code == http.StatusUnauthorized {
		c.unauthorized = true
		c.Header().Set("Connection", "close")
	}
	c.ResponseWriter.WriteHeader(code)
}
