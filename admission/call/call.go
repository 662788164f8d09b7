package call

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

const (
	defaultMaxResponseBytes = 16 << 20 // S4.21
	defaultMaxHeaderBytes   = 1 << 20
	defaultMaxTargets       = 200 // S8.7
	defaultMaxInFlight      = 200
	// defaultTimeout is the timeout of a webhook without a timeout of its own (S3.4).
	defaultTimeout = 30 * time.Second
)

// Options configure a Caller. The zero value is valid.
type Options struct {
	// Resolver finds the endpoints of services. Nil means DNS.
	Resolver Resolver
	// Credentials authenticate this server to webhooks. Nil means anonymous calls.
	Credentials *Credentials
	// Proxy returns the proxy for a request, or nil for none. The URL of a request to a service has
	// the service's name as host. A nil Proxy means the proxy of the environment: HTTPS_PROXY and
	// NO_PROXY (S8.8).
	Proxy func(*http.Request) (*url.URL, error)
	// Dial opens connections. Nil means TCP with a timeout of 30 s (S8.10).
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// MaxHeaderBytes bounds the headers of a response. Zero means 1 MiB.
	MaxHeaderBytes int64
	// MaxInFlight limits the concurrent calls to one webhook server; further calls wait, the call
	// with the earliest deadline first. The bodies of all waiting calls together may have 256 MiB;
	// calls beyond that fail. Zero means 200.
	MaxInFlight int
	// Breaker selects the failures that count against a webhook server: after several of them in a
	// row, the server is skipped until it answers again. Zero means BreakerConnect.
	Breaker Breaker
	// Observe, if not nil, is called when the Caller begins to skip a webhook server, and when
	// it stops skipping the server. Observe must be quick.
	Observe func(Circuit)

	// Wrap, if not nil, wraps the transport to one webhook server. The wrapper must not send a
	// request twice.
	Wrap func(http.RoundTripper) http.RoundTripper

	// Only tests set the fields below. maxResponseBytes is the maximum size of a response after
	// decompression; a caller of Post bounds the response itself. maxTargets is the number of
	// remembered webhook servers, with their idle connections.
	maxResponseBytes int64
	maxTargets       int
}

// Caller calls webhooks. It is safe for concurrent use.
type Caller struct {
	options Options
	targets targets
	// waiting counts the bodies of calls that wait for a slot of any target.
	waiting bodies
	memory  memory
}

// New returns a Caller. A negative limit is an error.
func New(o Options) (*Caller, error) {
	if o.MaxHeaderBytes < 0 || o.MaxInFlight < 0 {
		return nil, errors.New("limits of a webhook caller must not be negative")
	}
	if int(o.Breaker) >= len(Breakers) {
		return nil, fmt.Errorf("unknown breaker %d", o.Breaker)
	}
	if o.Resolver == nil {
		o.Resolver = DNS
	}
	if o.Proxy == nil {
		o.Proxy = http.ProxyFromEnvironment
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	o.maxResponseBytes = cmp.Or(o.maxResponseBytes, defaultMaxResponseBytes)
	o.MaxHeaderBytes = cmp.Or(o.MaxHeaderBytes, defaultMaxHeaderBytes)
	o.maxTargets = cmp.Or(o.maxTargets, defaultMaxTargets)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, defaultMaxInFlight)
	c := &Caller{options: o, memory: newMemory()}
	c.waiting.max = maxWaitingBodies
	c.targets.max = o.maxTargets
	c.targets.mu.byKey = make(map[key]*list.Element)
	return c, nil
}

// Close closes idle connections. Running calls continue, and their connections are closed
// afterwards; further calls fail.
func (c *Caller) Close() { c.targets.close() }

// Invocation describes one call.
type Invocation struct {
	// Hook is the webhook to call.
	Hook *registration.Entry
	// Body is the review to send. Nil means that the webhook lists no version that this package
	// supports; Call then fails with class NoVersion (S3.6).
	Body *review.Body
	// UID is the review's uid, which the answer must repeat.
	UID types.UID
	// Mutating reports whether the answer may have a patch.
	Mutating bool
	// Timeout bounds the call; zero means the webhook's own timeout.
	Timeout time.Duration
	// Share is the memory for answers to the API request; nil if the answer needs no memory after
	// the call.
	Share *Share
	// Facts are set by Call.
	Facts Facts
}

// Facts are details of a call for metrics and traces, in addition to its outcome.
type Facts struct {
	// Sent reports whether the whole review was written to a connection.
	Sent bool
	// Host is the host for which the webhook's certificate must be valid, and Deprecated lists
	// deprecated properties of the certificate: MissingSAN, InsecureSHA1. Both fields are empty if
	// nothing is deprecated.
	Host       string
	Deprecated []string
}

// Call sends a review and returns the answer, checked by [review.Decode], or an error. Call takes
// at most the webhook's timeout, counted from now, and no longer than ctx allows (S7.7). It sends
// at most one request (S7.13).
//
// If a webhook server could not be reached several times in a row, Call fails with class
// CircuitOpen until the server answers again (Options.Breaker). If too many calls of the server are
// running and this call has no time to wait, Call fails with class Busy (Options.MaxInFlight).
func (c *Caller) Call(ctx context.Context, inv *Invocation) (*review.Response, *Error) {
	h := inv.Hook
	if inv.Body == nil {
		return nil, Failed(h, NoVersion, errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)"))
	}
	a := admissionCall{inv: inv, max: c.options.maxResponseBytes, share: inv.Share}
	if a.share == nil {
		a.share = &Share{}
		defer a.share.Release()
	}
	a.share.bind(&c.memory)
	a.parcel, a.to, a.limit, a.tellTimeout, a.base, a.facts = &a, &h.ClientConfig, cmp.Or(inv.Timeout, h.Timeout), true, plainHeaders, &inv.Facts
	if failure := c.deliver(ctx, &a.exchange); failure != nil {
		return nil, &Error{Hook: h, Failure: *failure}
	}
	return a.response, nil
}

// admissionCall delivers a review. The exchange and the review share one allocation.
type admissionCall struct {
	exchange
	inv      *Invocation
	max      int64
	share    *Share
	response *review.Response
}

func (a *admissionCall) size() int64 { return a.inv.Body.Len() }

func (a *admissionCall) open() (io.ReadCloser, int64) {
	if a.inv.Body.Len() > smallBody {
		return a.inv.Body.Reader(a.inv.UID)
	}
	small := a.inv.Body.Bytes(a.inv.UID)
	return io.NopCloser(bytes.NewReader(small)), int64(len(small))
}

func (a *admissionCall) read(ctx context.Context, answer *http.Response) (Class, error) {
	b := buffers.Get().(*bytes.Buffer)
	defer putBuffer(b)
	switch err := a.readAll(ctx, b, answer); {
	case err == nil:
	case errors.As(err, new(*tooLargeError)):
		return Answer, err
	case errors.As(err, new(*NoRoomError)):
		return NoRoom, err
	default:
		return Transport, fmt.Errorf("reading the answer: %w", err)
	}
	response, err := review.Decode(a.inv.Body.Version(), a.inv.Mutating, a.inv.UID, answer.StatusCode, answer.Header.Get("Content-Type"), b.Bytes())
	switch {
	case err == nil:
		a.response = response
		return 0, nil
	case ctx.Err() != nil:
		// A server that detects a cancelled request may end its answer early.
		return Transport, fmt.Errorf("reading the answer: %w", ctx.Err())
	case errors.As(err, new(*apierrors.StatusError)):
		return HTTPStatus, err
	case errors.As(err, new(*review.InvalidError)):
		return Invalid, err
	}
	return Answer, err
}

// readAll reads an answer, and reserves memory for it if it is large. After an error nothing is
// reserved.
func (a *admissionCall) readAll(ctx context.Context, b *bytes.Buffer, answer *http.Response) (err error) {
	length := answer.ContentLength
	if length > a.max {
		return &tooLargeError{a.max}
	}
	var taken []*entry
	defer func() {
		if err != nil {
			for _, e := range taken {
				e.trim(0)
			}
		}
	}()
	holds := int64(0)
	// An answer of unknown length reserves more memory as it turns out to be longer.
	limit := min(smallAnswer, a.max)
	for {
		if length >= 0 && length <= limit {
			b.Grow(int(length) + bytes.MinRead)
		}
		if _, err := b.ReadFrom(io.LimitReader(answer.Body, limit+1-int64(b.Len()))); err != nil {
			return err
		}
		read := int64(b.Len())
		if read <= limit {
			break
		}
		if read > a.max {
			return &tooLargeError{a.max}
		}
		next := a.max
		if length > 0 {
			next = length
		} else if limit < usualAnswer {
			next = min(usualAnswer, a.max)
		}
		e, err := a.share.enter(ctx, a.target.answers, perByte*next-holds)
		if err != nil {
			return err
		}
		taken, holds, limit = append(taken, e), perByte*next, next
	}
	return a.weigh(b.Bytes(), taken)
}

// weigh adjusts the reserved memory to the needs of decoding an answer.
func (a *admissionCall) weigh(answer []byte, taken []*entry) error {
	if len(taken) == 0 {
		return nil
	}
	needs := perByte * int64(len(answer))
	for _, e := range taken {
		e.trim(needs)
		needs -= e.all.bytes
	}
	if decoded := review.Weight(answer); decoded > perByte*int64(len(answer)) {
		return a.share.Take(decoded - perByte*int64(len(answer)))
	}
	return nil
}

// Address returns the URL of a webhook without the query, which Call adds. The path is cleaned
// (S3.2): kube-apiserver calls /a for //a, a and /a/, and Go's ServeMux would redirect other paths.
func Address(cc *registration.ClientConfig) (*url.URL, error) {
	if s := cc.Service; s != nil {
		return &url.URL{Scheme: "https", Host: serviceHost(s.Namespace, s.Name, s.Port), Path: rooted(s.Path)}, nil
	}
	if cc.URL == "" {
		return nil, errors.New("webhook configuration must have either service or URL")
	}
	u, err := url.Parse(cc.URL)
	if err != nil {
		return nil, fmt.Errorf("clientConfig.url: %w", errors.Unwrap(err))
	}
	if u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("clientConfig.url %q is not the https URL of a host", u.Redacted())
	}
	*u = url.URL{Scheme: u.Scheme, Host: u.Host, Path: rooted(u.Path)}
	return u, nil
}

// rooted returns a clean path that begins with a slash. If the path is already clean, it does not
// allocate.
func rooted(p string) string {
	if strings.HasPrefix(p, "/") {
		return path.Clean(p)
	}
	return path.Clean("/" + p)
}

// timeoutQuery formats a duration for S3.3, in whole seconds rounded up.
func timeoutQuery(d time.Duration) string {
	seconds := int((d + time.Second - 1) / time.Second)
	if seconds < 60 {
		return "timeout=" + strconv.Itoa(seconds) + "s"
	}
	return "timeout=" + (time.Duration(seconds) * time.Second).String()
}

// serverName returns the name for which a webhook's certificate must be valid (S8.2).
func serverName(to *registration.ClientConfig) string {
	if s := to.Service; s != nil {
		return serviceName(s.Namespace, s.Name)
	}
	u, err := url.Parse(to.URL)
	if err != nil {
		return to.URL
	}
	return u.Hostname()
}
