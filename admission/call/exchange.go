package call

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/admission/review"
)

// exchange is one review on its way and the answer to it.
type exchange struct {
	target  *target
	url     *url.URL
	headers http.Header
	inv     *Invocation

	limit          time.Duration
	requestLimited bool
	deadline       time.Time

	// tried are the endpoints so far, left how many are still to come.
	tried []string
	left  int
	// connected is set as soon as there is a connection for the request.
	connected atomic.Bool
	// sent is set when the whole request was written.
	sent atomic.Bool
	// entered is when the call got its place, zero until then; probe tells that it
	// tries the server for all.
	entered time.Time
	probe   bool
	// endpoints are all there are.
	endpoints []string
	trace     httptrace.ClientTrace
}

func (c *Caller) exchange(ctx context.Context, x *exchange) (*review.Response, Class, error) {
	var err error
	if x.endpoints, err = c.resolve(ctx, x); err != nil {
		return nil, Transport, err
	}
	if class, err := x.enter(ctx); err != nil {
		return nil, class, err
	}
	answer, err := c.send(ctx, x)
	if err != nil {
		return nil, Transport, err
	}
	defer answer.Body.Close()
	b := buffers.Get().(*bytes.Buffer)
	defer putBuffer(b)
	if err := c.read(b, answer); err != nil {
		if errors.As(err, new(*tooLargeError)) {
			return nil, Answer, err
		}
		return nil, Transport, fmt.Errorf("reading the answer: %w", err)
	}
	response, err := review.Decode(x.inv.Body.Version(), x.inv.Mutating, x.inv.UID, answer.StatusCode, answer.Header.Get("Content-Type"), b.Bytes())
	switch {
	case err == nil:
		return response, 0, nil
	case ctx.Err() != nil:
		// A server that is told that we leave may end its answer early.
		return nil, Transport, fmt.Errorf("reading the answer: %w", ctx.Err())
	case errors.As(err, new(*apierrors.StatusError)):
		return nil, HTTPStatus, err
	case errors.As(err, new(*review.InvalidError)):
		return nil, Invalid, err
	}
	return nil, Answer, err
}

// enter waits until the webhook server may be called, or says why it may not.
func (x *exchange) enter(ctx context.Context) (Class, error) {
	t, now := x.target, time.Now()
	var err error
	if x.probe, err = t.breaker.allow(now, x.endpoints); err != nil {
		return CircuitOpen, err
	}
	waited, err := t.slots.take(ctx, now, x.deadline, x.inv.Body.Len())
	if err != nil {
		t.breaker.record(now, unknown, x.probe, nil, nil)
		if ctx.Err() != nil && !errors.As(err, new(*busyError)) {
			return Transport, err
		}
		return Busy, err
	}
	x.entered = time.Now()
	if !waited {
		return 0, nil
	}
	if !x.probe {
		if x.probe, err = t.breaker.allow(x.entered, x.endpoints); err != nil {
			t.slots.leave()
			x.entered = time.Time{}
			return CircuitOpen, err
		}
	}
	x.url.RawQuery = timeoutQuery(x.deadline.Sub(x.entered))
	return 0, nil
}

// leave gives back what enter took. known tells whether the call came to an end
// that says something, failure being how it failed, if it did.
func (x *exchange) leave(failure *Error, known bool) {
	if x.entered.IsZero() {
		return
	}
	t, now := x.target, time.Now()
	t.slots.give(now, now.Sub(x.entered))
	o := unknown
	if known {
		o = t.breaker.mode.judge(failure)
	}
	t.breaker.record(now, o, x.probe, x.endpoints, failure)
}

type exchangeKey struct{}

// send posts the review to the first endpoint that a connection can be made to.
func (c *Caller) send(ctx context.Context, x *exchange) (*http.Response, error) {
	x.trace.GotConn = func(httptrace.GotConnInfo) { x.connected.Store(true) }
	x.trace.WroteRequest = func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			x.sent.Store(true)
		}
	}
	ctx = httptrace.WithClientTrace(context.WithValue(ctx, exchangeKey{}, x), &x.trace)
	for x.left = len(x.endpoints); ; {
		endpoint := x.endpoints[len(x.endpoints)-x.left]
		x.left--
		x.tried = append(x.tried, endpoint)
		request := x.request(ctx, endpoint)
		answer, err := x.target.rt.RoundTrip(request)
		x.note(answer, err)
		if err == nil {
			x.sent.Store(true)
		}
		if err == nil && ctx.Err() != nil {
			// A server that is told that we leave may begin an answer then.
			answer.Body.Close()
			return nil, ctx.Err()
		}
		if err == nil || x.left == 0 || x.connected.Load() || ctx.Err() != nil || isCertificateError(err) {
			return answer, err
		}
	}
}

// resolve returns where to connect to. Proxies are given the name of a service
// and find its endpoint themselves.
func (c *Caller) resolve(ctx context.Context, x *exchange) ([]string, error) {
	s := x.inv.Hook.ClientConfig.Service
	if s == nil {
		return []string{x.url.Host}, nil
	}
	proxy, err := c.options.Proxy(&http.Request{Method: http.MethodPost, URL: x.url, Host: x.url.Host})
	if err != nil {
		return nil, fmt.Errorf("choosing a proxy: %w", err)
	}
	if proxy != nil {
		return []string{x.url.Host}, nil
	}
	endpoints, err := c.options.Resolver.Resolve(ctx, s.Namespace, s.Name, s.Port)
	if err == nil && len(endpoints) == 0 {
		err = fmt.Errorf("no endpoints available for service %q", s.Namespace+"/"+s.Name)
	}
	return endpoints, err
}

// smallBody is the size up to which a body is copied. net/http sends headers and
// body together only when it knows that the body is in memory, by its type; below
// this size that saves more than the copy costs.
const smallBody = 32 << 10

func (x *exchange) body() (io.ReadCloser, int64) {
	r := x.inv.Body.Reader(x.inv.UID)
	n := r.Len()
	if n <= smallBody {
		return io.NopCloser(bytes.NewReader(x.inv.Body.Bytes(x.inv.UID))), n
	}
	return r, n
}

// request makes the HTTP request of S3.1. The host is the configured one also when
// the connection goes to an endpoint.
func (x *exchange) request(ctx context.Context, endpoint string) *http.Request {
	to := *x.url
	to.Host = endpoint
	body, length := x.body()
	r := &http.Request{
		Method:        http.MethodPost,
		URL:           &to,
		Host:          x.url.Host,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        x.headers,
		Body:          body,
		ContentLength: length,
		GetBody: func() (io.ReadCloser, error) {
			again, _ := x.body()
			return again, nil
		},
	}
	return r.WithContext(ctx)
}

// dial keeps a connection attempt inside the call that wants it, and leaves time
// for the endpoints still to come. net/http lets attempts outlive their request.
func (c *Caller) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		until := x.deadline.Add(graceAfterDeadline)
		if x.left > 0 {
			until = time.Now().Add(time.Until(x.deadline) / time.Duration(x.left+1))
		}
		limited, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		ctx = limited
	}
	return c.options.Dial(ctx, network, addr)
}

// graceAfterDeadline lets a call end by its own deadline rather than by that of its
// last connection attempt, so that it is known to have timed out.
const graceAfterDeadline = 100 * time.Millisecond

// tooLargeError says that an answer is larger than allowed.
type tooLargeError struct{ max int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the answer is larger than %d bytes", e.max)
}

func (c *Caller) read(b *bytes.Buffer, answer *http.Response) error {
	most := c.options.MaxResponseBytes
	if answer.ContentLength > most {
		return &tooLargeError{most}
	}
	if answer.ContentLength > 0 {
		b.Grow(int(answer.ContentLength) + bytes.MinRead)
	}
	n, err := b.ReadFrom(io.LimitReader(answer.Body, most+1))
	if err == nil && n > most {
		return &tooLargeError{most}
	}
	return err
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// putBuffer keeps a buffer for the next answer unless it is an unusual one.
func putBuffer(b *bytes.Buffer) {
	if b.Cap() <= 1<<20 {
		b.Reset()
		buffers.Put(b)
	}
}

// isCertificateError tells whether a server was not trusted, which another
// connection would not mend.
func isCertificateError(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}
