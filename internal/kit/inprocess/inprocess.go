package inprocess

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
)

var errNoAnswer = errors.New("the server ended the request without an answer")

// Serve has the handler answer a request of a client. The context of the request ends with Serve. An error is the end
// of the context, or an answer that the handler aborted.
func Serve(h http.Handler, r *http.Request) (out *httptest.ResponseRecorder, err error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer func() {
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	defer func() {
		p := recover()
		switch cause, _ := p.(error); {
		case p == nil:
		case errors.Is(cause, http.ErrAbortHandler):
			err = errNoAnswer
		default:
			panic(p)
		}
	}()
	served := r.Clone(ctx)
	served.RemoteAddr, served.RequestURI = net.JoinHostPort("127.0.0.1", "1"), served.URL.RequestURI()
	served.URL.Scheme, served.URL.Host = "", ""
	if served.Body == nil {
		served.Body = http.NoBody
	}
	out = httptest.NewRecorder()
	h.ServeHTTP(out, served)
	return out, nil
}

// Transport is the connection of a client in the process of its server, which must accept requests.
type Transport struct{ Handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	out, err := Serve(t.Handler, r)
	if err != nil {
		return nil, err
	}
	response := out.Result()
	response.Request = r
	return response, nil
}
