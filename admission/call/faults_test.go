package call

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// respond is a handler with one answer.
func respond(status int, contentType, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = nil
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// TestFaults has the rows of S7.4 for calls, each with a server that fails in that way.
func TestFaults(t *testing.T) {
	ca := newAuthority(t, "ca")
	good := ca.serving(t, "127.0.0.1", "localhost")
	expired, err := tls.X509KeyPair(ca.pair(t, time.Now().Add(-time.Minute), "127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	handler := func(cert tls.Certificate, h http.HandlerFunc) func(*testing.T) string {
		return func(t *testing.T) string { return serve(t, cert, h, nil).Listener.Addr().String() }
	}
	raw := func(answer string, then func(*tls.Conn)) func(*testing.T) string {
		return func(t *testing.T) string {
			return listener(t, func(conn net.Conn) {
				s := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{good}})
				defer s.Close()
				r := make([]byte, 16<<10)
				if _, err := s.Read(r); err != nil {
					return
				}
				io.WriteString(s, answer)
				then(s)
			})
		}
	}
	reset := func(s *tls.Conn) { s.NetConn().(*net.TCPConn).SetLinger(0); s.NetConn().Close() }
	silent := func(s *tls.Conn) { io.Copy(io.Discard, s) }
	const full = `HTTP/1.1 200 OK` + "\r\n" + `Content-Length: 1000` + "\r\n\r\n" + `{"kind":`

	cases := []struct {
		name    string
		start   func(*testing.T) string
		tweak   func(*registration.Entry)
		text    []string
		class   Class
		code    int32
		dial    bool
		timeout bool
	}{
		{name: "S7.4 refused", start: func(t *testing.T) string { return refused(t) }, class: Transport, code: 503, dial: true,
			text: []string{`failed to call webhook: Post "https://127.0.0.1:`, `/check?timeout=1s": dial tcp 127.0.0.1:`, ": connect: connection refused"}},
		{name: "S7.4 no such host", start: func(t *testing.T) string { return refused(t) }, class: Transport, code: 503, dial: true,
			tweak: func(h *registration.Entry) { h.ClientConfig.URL = "https://hook.invalid/check" },
			text:  []string{`failed to call webhook: Post "https://hook.invalid/check?timeout=1s": dial tcp: lookup hook.invalid`}},
		{name: "S7.4 accepts and is silent", start: func(t *testing.T) string {
			return listener(t, func(c net.Conn) { io.Copy(io.Discard, c); c.Close() })
		}, class: Transport, code: 503, dial: true, timeout: true,
			text: []string{`failed to call webhook: Post "https://127.0.0.1:`, "context deadline exceeded; no connection within 1s, timeoutSeconds of the webhook"}},
		{name: "S7.4 hangs after the request", start: raw("", silent), class: Transport, code: 503, timeout: true,
			text: []string{"failed to call webhook: Post ", "context deadline exceeded; no answer within 1s"}},
		{name: "S7.4 hangs within the answer", start: raw(full, silent), class: Transport, code: 503, timeout: true,
			text: []string{"failed to call webhook: Post ", "reading the answer: context deadline exceeded; no answer within 1s"}},
		{name: "S7.4 drips", start: handler(good, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				io.WriteString(w, " ")
				w.(http.Flusher).Flush()
				select {
				case <-time.After(50 * time.Millisecond):
				case <-r.Context().Done():
				}
			}
		}), class: Transport, code: 503, timeout: true, text: []string{"reading the answer: context deadline exceeded"}},
		{name: "S7.4 reset instead of an answer", start: raw("", reset), class: Transport, code: 503,
			text: []string{"failed to call webhook: Post ", "connection reset by peer"}},
		{name: "S7.4 reset within the answer", start: raw(full, reset), class: Transport, code: 503, text: []string{"reading the answer: "}},
		{name: "S7.4 closed within the answer", start: raw(full, func(*tls.Conn) {}), class: Transport, code: 503, text: []string{"reading the answer: unexpected EOF"}},
		{name: "S7.4 no HTTP", start: raw("SSH-2.0-OpenSSH_9.6\r\n", func(*tls.Conn) {}), class: Transport, code: 503, text: []string{"malformed HTTP"}},
		{name: "S7.4 a status line of 900 KB", start: raw("HTTP/1.1 "+strings.Repeat("s", 900_000)+"\r\n\r\n", func(*tls.Conn) {}), class: Transport, code: 503, text: []string{"malformed HTTP", "sss..."}},
		{name: "S12.14 no TLS", start: func(t *testing.T) string {
			return listener(t, func(c net.Conn) { io.WriteString(c, "HTTP/1.0 400 Bad Request\r\n\r\n"); c.Close() })
		}, class: Transport, code: 503, dial: true, text: []string{"failed to call webhook: Post "}},
		{name: "S8.5 nothing below TLS 1.2", start: func(t *testing.T) string {
			return listener(t, func(c net.Conn) {
				tls.Server(c, &tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}).Handshake()
				c.Close()
			})
		}, class: Transport, code: 503, dial: true, text: []string{"tls: protocol version not supported"}},
		{name: "S7.4 expired certificate", start: handler(expired, allow), class: Transport, code: 503, dial: true,
			text: []string{"failed to call webhook: Post ", ": tls: failed to verify certificate: x509: certificate has expired", "the certificate must be valid for 127.0.0.1 and signed by clientConfig.caBundle"}},
		{name: "S7.4 unknown authority", start: handler(newAuthority(t, "other").serving(t, "127.0.0.1"), allow), class: Transport, code: 503, dial: true,
			text: []string{": tls: failed to verify certificate: x509: certificate signed by unknown authority"}},
		{name: "S8.5 no bundle means the system's roots", start: handler(good, allow), class: Transport, code: 503, dial: true,
			tweak: func(h *registration.Entry) { h.ClientConfig.CABundle = nil },
			text:  []string{"x509: certificate signed by unknown authority", "signed by a root of the system, since clientConfig.caBundle is empty"}},
		{name: "S7.4 wrong name", start: handler(ca.serving(t, "other.example.com"), allow), class: Transport, code: 503, dial: true,
			text: []string{": tls: failed to verify certificate: x509: cannot validate certificate for 127.0.0.1"}},
		{name: "S8.5 CommonName is not used", start: handler(commonName(t, ca, "localhost"), allow), class: Transport, code: 503, dial: true,
			tweak: func(h *registration.Entry) {
				h.ClientConfig.URL = strings.Replace(h.ClientConfig.URL, "127.0.0.1", "localhost", 1)
			}, text: []string{"x509: certificate"}},

		{name: "S7.4 CA bundle not PEM", start: func(*testing.T) string { return "127.0.0.1:1" }, class: Client, code: 500,
			tweak: func(h *registration.Entry) { h.ClientConfig.CABundle = []byte("nonsense") },
			text:  []string{"could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"}},
		{name: "S8.1 neither url nor service", start: func(*testing.T) string { return "127.0.0.1:1" }, class: Client, code: 500,
			tweak: func(h *registration.Entry) { h.ClientConfig.URL = "" },
			text:  []string{"could not get REST client: webhook configuration must have either service or URL"}},
		{name: "S12.14 no https", start: func(*testing.T) string { return "127.0.0.1:1" }, class: Client, code: 500,
			tweak: func(h *registration.Entry) { h.ClientConfig.URL = "http://127.0.0.1:1/" },
			text:  []string{`could not get REST client: clientConfig.url "http://127.0.0.1:1/" is not the https URL of a host`}},

		{name: "S7.4 400", start: handler(good, respond(400, "text/plain", "bad")), class: HTTPStatus, code: 400,
			text: []string{"failed to call webhook: the server rejected our request for an unknown reason"}},
		{name: "S7.4 403", start: handler(good, respond(403, "text/plain", "not you")), class: HTTPStatus, code: 403, text: []string{"failed to call webhook: not you"}},
		{name: "S7.4 404", start: handler(good, respond(404, "text/plain", "x")), class: HTTPStatus, code: 404, text: []string{"failed to call webhook: the server could not find the requested resource"}},
		{name: "S7.4 409", start: handler(good, respond(409, "", "")), class: HTTPStatus, code: 409, text: []string{"failed to call webhook: the server reported a conflict"}},
		{name: "S7.4 422", start: handler(good, respond(422, "", "")), class: HTTPStatus, code: 422, text: []string{"failed to call webhook: the server rejected our request due to an error in our request"}},
		{name: "S7.13 429 with Retry-After", start: handler(good, respond(429, "text/plain", "slow", "Retry-After", "0")), class: HTTPStatus, code: 429,
			text: []string{"failed to call webhook: the server has received too many requests"}},
		{name: "S7.4 500", start: handler(good, respond(500, "text/html", "<b>boom</b>\n")), class: HTTPStatus, code: 500,
			text: []string{`failed to call webhook: an error on the server ("<b>boom</b>") has prevented the request from succeeding`}},
		{name: "S7.13 503 with Retry-After", start: handler(good, respond(503, "text/plain", "later", "Retry-After", "0")), class: HTTPStatus, code: 503,
			text: []string{"failed to call webhook: the server is currently unable to handle the request"}},
		{name: "S7.4 504", start: handler(good, respond(504, "", "")), class: HTTPStatus, code: 504, text: []string{"failed to call webhook: the server was unable to return a response in the time allotted"}},
		{name: "S7.4 JSON Status", start: handler(good, respond(500, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"own words","code":410}`)), class: HTTPStatus, code: 410,
			text: []string{"failed to call webhook: own words"}},
		{name: "S7.4 a JSON Status of 900 KB", start: handler(good, respond(500, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"`+strings.Repeat("é", 450_000)+`"}`)), class: HTTPStatus, code: 500,
			text: []string{"failed to call webhook: éé", "é..."}},
		{name: "S8.9 a redirect is an error", start: handler(good, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}), class: HTTPStatus, code: 307, text: []string{"failed to call webhook: the server responded with the status code 307: redirects are not followed"}},

		{name: "S7.4 garbage", start: handler(good, respond(200, "text/html", "<html>")), class: Answer, code: 503, text: []string{"failed to call webhook: the answer is not an AdmissionReview of admission.k8s.io/v1"}},
		{name: "S4.3 empty", start: handler(good, respond(200, "application/json", "")), class: Answer, code: 503,
			text: []string{"failed to call webhook: 0-length response with status code: 200 and content type: application/json"}},
		{name: "S4.4 a kind of 900 KB", start: handler(good, respond(200, "", `{"kind":"`+strings.Repeat("k", 900_000)+`"}`)), class: Answer, code: 503, text: []string{"failed to call webhook: no kind", "kk..."}},
		{name: "S4.7 a uid of 900 KB", start: handler(good, respond(200, "", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"`+strings.Repeat("u", 900_000)+`"}}`)), class: Invalid, code: 503,
			text: []string{"received invalid webhook response: expected response.uid=", "uu..."}},
		{name: "S4.21 too large", start: handler(good, func(w http.ResponseWriter, r *http.Request) {
			for chunk := bytes.Repeat([]byte(" "), 64<<10); r.Context().Err() == nil; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}), class: Answer, code: 503, text: []string{"failed to call webhook: the answer is larger than 1048576 bytes"}},
		{name: "S4.21 said to be too large", start: handler(good, respond(200, "", strings.Repeat(" ", 1<<20+1), "Content-Length", "1048577")), class: Answer, code: 503,
			text: []string{"failed to call webhook: the answer is larger than 1048576 bytes"}},
		{name: "S4.6 no response", start: handler(good, respond(200, "", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`)), class: Invalid, code: 503,
			text: []string{"received invalid webhook response: webhook response was absent"}},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			c := newCaller(t, Options{maxResponseBytes: 1 << 20, Wrap: func(rt http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) { calls.Add(1); return rt.RoundTrip(r) })
			}})
			h := urlHook("https://"+tt.start(t)+"/check", ca.bundle)
			h.Timeout = 5 * time.Second
			if tt.timeout || tt.name == "S7.4 refused" || tt.name == "S7.4 no such host" {
				h.Timeout = time.Second
			}
			if tt.tweak != nil {
				tt.tweak(h)
			}
			r, err := c.Call(t.Context(), invocation(h))
			if err == nil {
				t.Fatalf("got an answer: %+v", r)
			}
			if missing := contains(err.Error(), tt.text...); missing != "" {
				t.Errorf("%q lacks %q", err, missing)
			}
			if !strings.HasPrefix(err.Error(), classes[tt.class].opening) {
				t.Errorf("%q does not start with %q", err, classes[tt.class].opening)
			}
			if n := len(err.Error()); n > maxText+1<<10 {
				t.Errorf("the text from outside makes an error of %d bytes", n)
			}
			type facts struct {
				Class          Class
				Code           int32
				Dial, TimedOut bool
			}
			if diff := cmp.Diff(facts{tt.class, tt.code, tt.dial, tt.timeout}, facts{err.Class, err.Code, err.Dial, err.TimedOut}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n := calls.Load(); n > 1 {
				t.Errorf("S7.13: called %d times", n)
			}
			status := err.Status().ErrStatus
			if status.Code != 500 || status.Reason != "InternalError" || len(status.Details.Causes) != 1 ||
				status.Message != "Internal error occurred: "+status.Details.Causes[0].Message {
				t.Errorf("S7.2: %+v", status)
			}
			if want := fmt.Sprintf("Internal error occurred: failed calling webhook %q: %s", h.Name, err); !strings.HasPrefix(status.Message, want) {
				t.Errorf("S7.2: %q does not start with %q", status.Message, want)
			}
			if missing := contains(status.Message, `ValidatingWebhookConfiguration "shop", webhook 2`, "failurePolicy is Fail: the request was rejected"); missing != "" {
				t.Errorf("%q lacks %q", status.Message, missing)
			}
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func commonName(t *testing.T, ca *authority, name string) tls.Certificate {
	certPEM, keyPEM := ca.pair(t, time.Now().Add(time.Hour), name, "127.0.0.2")
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	leaf.DNSNames = nil
	der, err := x509.CreateCertificate(nil, leaf, ca.cert, leaf.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	cert.Certificate = [][]byte{der}
	cert.Leaf = nil
	return cert
}

func TestErrorCanBeTakenApart(t *testing.T) {
	h := urlHook("https://"+refused(t), nil)
	_, err := newCaller(t, Options{}).Call(t.Context(), invocation(h))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%#v does not unwrap to ECONNREFUSED", err)
	}
	if err.Hook != h || !strings.HasPrefix(err.URL, h.ClientConfig.URL) || err.Elapsed <= 0 {
		t.Errorf("facts are missing: %#v", err)
	}
}

func TestStatusOfOtherFailures(t *testing.T) {
	h := urlHook("https://hook.example.com", nil)
	h.Source = registration.Mutating
	cases := []struct {
		name  string
		err   *Error
		start string
		code  int32
	}{
		{"S7.15 patch that does not apply", Failed(h, PatchFailed, errors.New("operation 2, remove /x: there is no /x")),
			`Internal error occurred: admission webhook "check.shop.example.com" returned a patch that could not be applied: operation 2, remove /x: there is no /x; MutatingWebhookConfiguration "shop"`, 503},
		{"S7.4 undecodable patch", Failed(h, PatchUndecodable, errors.New("bad")),
			`Internal error occurred: failed calling webhook "check.shop.example.com": received undecodable patch in webhook response: bad; `, 503},
		{"S7.4 patch type", Failed(h, PatchType, errors.New(`unsupported patch type "Merge"`)),
			`Internal error occurred: failed calling webhook "check.shop.example.com": unsupported patch type "Merge"; `, 400},
		{"S7.4 side effects", Failed(h, SideEffects, errors.New("Webhook SideEffects is nil")),
			`Internal error occurred: failed calling webhook "check.shop.example.com": Webhook SideEffects is nil; `, 400},
		{"S7.12 panic", Failed(h, Panic, errors.New("boom")),
			`Internal error occurred: MutatingAdmissionWebhook/check.shop.example.com has panicked: boom; `, 500},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.err.Status().Error(); !strings.HasPrefix(got, tt.start) {
				t.Errorf("got %q, want %q", got, tt.start)
			}
			if tt.err.Code != tt.code {
				t.Errorf("code is %d, want %d", tt.err.Code, tt.code)
			}
		})
	}
}

func TestCallOfAnExpiredRequestSendsNothing(t *testing.T) {
	c := newCaller(t, Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialed")
		return nil, errors.New("dialed")
	}})
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	_, err := c.Call(ctx, invocation(urlHook("https://hook.example.com", nil)))
	if err == nil || !err.TimedOut || !err.Dial || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("S7.7: got %#v", err)
	}
}
