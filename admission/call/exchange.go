package call

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/component-base/tracing"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// parcel is the body of an exchange and the reader of its answer.
type parcel interface {
	// size returns the size of the body in bytes. open returns a new reader of the body on each
	// call, and the size.
	size() int64
	open() (io.ReadCloser, int64)
	// read reads the answer; the exchange closes the response body. read returns an error with its
	// class.
	read(ctx context.Context, answer *http.Response) (Class, error)
}

// exchange is the delivery of one parcel and its answer. Its creator sets the fields up to facts.
type exchange struct {
	parcel parcel
	to     *registration.ClientConfig
	// limit is the webhook's timeout, 0 for the default. deliver reduces it to the remaining time
	// of the API request.
	limit time.Duration
	// tellTimeout adds the time limit to the query (S3.3).
	tellTimeout bool
	base        http.Header
	facts       *Facts

	target         *target
	url            *url.URL
	headers        http.Header
	requestLimited bool
	deadline       time.Time

	// tried are the endpoints that were tried so far, and left is the number of endpoints still to
	// try.
	tried []string
	left  int
	// connected is set as soon as the request has a connection.
	connected atomic.Bool
	// sent is set when the whole request was written.
	sent atomic.Bool
	// entered is the time when the call got its slot, zero until then. probe reports whether the
	// call tries the server while its circuit is open.
	entered time.Time
	probe   bool
	// endpoints are all endpoints of the server.
	endpoints []string
	trace     httptrace.ClientTrace
}

// failure returns a Failure of this exchange.
func (x *exchange) failure(class Class, cause error) *Failure {
	return &Failure{To: x.to, Class: class, Cause: cause, Code: classes[class].code}
}

// deliver sends a parcel and reads the answer, within the time limit. Nil means that both
// succeeded.
func (c *Caller) deliver(ctx context.Context, x *exchange) (failure *Failure) {
	started := time.Now()
	u, err := Address(x.to)
	if err != nil {
		return x.failure(Client, err)
	}
	identity := c.options.Credentials.lookup(x.to, u)
	t, err := c.acquire(x.to.Service != nil, u, x.to.CABundle, identity)
	if err != nil {
		return x.failure(Client, err)
	}
	defer t.release()
	if x.headers, err = t.requestHeaders(x.base); err != nil {
		return x.failure(Client, err)
	}
	x.target, x.url = t, u
	if x.limit <= 0 {
		x.limit = defaultTimeout
	}
	if deadline, ok := ctx.Deadline(); ok {
		if left := deadline.Sub(started); left < x.limit {
			x.limit, x.requestLimited = max(left, 0), true
		}
	}
	if x.tellTimeout {
		u.RawQuery = timeoutQuery(x.limit)
	}
	x.deadline = started.Add(x.limit)
	limited, cancel := context.WithDeadline(ctx, x.deadline)
	defer cancel()

	known := false
	defer func() {
		x.facts.Sent = x.sent.Load()
		x.leave(failure, known)
	}()
	class, err := c.exchange(limited, x)
	known = true
	if err == nil {
		return nil
	}
	e := x.failure(class, err)
	e.URL, e.Elapsed, e.Limit, e.RequestLimited = u.String(), time.Since(started), x.limit, x.requestLimited
	e.ClientGone = errors.Is(ctx.Err(), context.Canceled)
	e.TimedOut = !e.ClientGone && class == Transport && limited.Err() != nil
	e.Dial = class == Transport && !x.connected.Load()
	if !(len(x.tried) == 1 && x.tried[0] == u.Host) {
		e.Endpoints = x.tried
	}
	var status *apierrors.StatusError
	if class == HTTPStatus && errors.As(err, &status) {
		e.Code = status.ErrStatus.Code
	}
	return e
}

func (c *Caller) exchange(ctx context.Context, x *exchange) (Class, error) {
	var err error
	if x.endpoints, err = c.resolve(ctx, x); err != nil {
		return Transport, err
	}
	if class, err := x.enter(ctx); err != nil {
		return class, err
	}
	answer, err := c.send(ctx, x)
	if err != nil {
		return Transport, err
	}
	defer answer.Body.Close()
	return x.parcel.read(ctx, answer)
}

// enter waits until the webhook server may be called, and returns an error if it may not.
func (x *exchange) enter(ctx context.Context) (Class, error) {
	t, now := x.target, time.Now()
	var err error
	if x.probe, err = t.breaker.allow(now, x.endpoints); err != nil {
		return CircuitOpen, err
	}
	waited, err := t.slots.take(ctx, now, x.deadline, x.parcel.size())
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
	if x.tellTimeout {
		x.url.RawQuery = timeoutQuery(x.deadline.Sub(x.entered))
	}
	return 0, nil
}

// leave releases the slot that enter took, and records the outcome of the call. known is false if
// the call panicked; failure is nil if it succeeded.
func (x *exchange) leave(failure *Failure, known bool) {
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

// HookOf returns the webhook to which a request is sent; nil for a request that Call did not make.
// It is for the transport that Options.Wrap returns.
func HookOf(r *http.Request) *registration.Entry {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	if x == nil {
		return nil
	}
	if a, ok := x.parcel.(*admissionCall); ok {
		return a.inv.Hook
	}
	return nil
}

// send posts the parcel to the first endpoint that accepts a connection.
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
			// A server may begin its answer when it detects that the request was cancelled.
			answer.Body.Close()
			return nil, ctx.Err()
		}
		if err == nil || x.left == 0 || x.connected.Load() || ctx.Err() != nil || isCertificateError(err) {
			return answer, err
		}
	}
}

// resolve returns the endpoints to connect to. A proxy gets the name of the service and finds the
// endpoint itself.
func (c *Caller) resolve(ctx context.Context, x *exchange) ([]string, error) {
	s := x.to.Service
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

// smallBody is the size up to which a body is copied. net/http sends headers and body together only
// if the type of the body shows that it is in memory. Below this size that saves more than the copy
// costs.
const smallBody = 32 << 10

// request returns the HTTP request of S3.1. Its Host header is the configured host, even if the
// connection goes to an endpoint.
func (x *exchange) request(ctx context.Context, endpoint string) *http.Request {
	to := *x.url
	to.Host = endpoint
	headers := traced(ctx, x.headers)
	body, length := x.parcel.open()
	r := &http.Request{
		Method:        http.MethodPost,
		URL:           &to,
		Host:          x.url.Host,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        headers,
		Body:          body,
		ContentLength: length,
		GetBody: func() (io.ReadCloser, error) {
			again, _ := x.parcel.open()
			return again, nil
		},
	}
	return r.WithContext(ctx)
}

var propagators = tracing.Propagators()

// traced returns the headers of a request to a webhook together with the headers that identify the
// API request: the trace context (S3.18) and the audit ID (S3.20), if there are any. It does not
// modify its argument.
func traced(ctx context.Context, headers http.Header) http.Header {
	spans := oteltrace.SpanContextFromContext(ctx).IsValid() || baggage.FromContext(ctx).Len() > 0
	id := audit.GetAuditIDTruncated(ctx)
	if !spans && id == "" {
		return headers
	}
	headers = maps.Clone(headers)
	if spans {
		propagators.Inject(ctx, propagation.HeaderCarrier(headers))
	}
	if id != "" {
		headers.Set(auditinternal.HeaderAuditID, id)
	}
	return headers
}

// dial ends a connection attempt together with the call that began it, and leaves time for the
// remaining endpoints. net/http by itself lets attempts outlive their request.
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

// graceAfterDeadline lets a call end by its own deadline rather than by the deadline of its last
// connection attempt, so that the error is a timeout of the call.
const graceAfterDeadline = 100 * time.Millisecond

// tooLargeError is the error of an answer above the size limit.
type tooLargeError struct{ max int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the answer is larger than %d bytes", e.max)
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// putBuffer keeps a buffer for the next answer unless it is unusually large.
func putBuffer(b *bytes.Buffer) {
	if b.Cap() <= 1<<20 {
		b.Reset()
		buffers.Put(b)
	}
}

// isCertificateError reports whether the error means that the server's certificate is not trusted.
// Another connection would not change that.
func isCertificateError(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}
