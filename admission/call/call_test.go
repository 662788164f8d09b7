package call

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/propagation"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/test/hooktest"
)

func TestRequestOnTheWire(t *testing.T) {
	ca := newAuthority(t, "ca")
	seen := make(chan *http.Request, 1)
	s := serve(t, ca.serving(t, "check.shop.svc", "127.0.0.1"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		seen <- r
		allow(w, &http.Request{Body: io.NopCloser(strings.NewReader(string(body)))})
	}), nil)
	at := s.Listener.Addr().String()
	cases := []struct {
		name      string
		hook      *registration.Entry
		uri, host string
	}{
		{"S3.2 the path as configured", urlHook(s.URL+"/a/b", ca.bundle), "/a/b?timeout=10s", at},
		{"S3.2 a trailing slash is dropped", urlHook(s.URL+"/a/", ca.bundle), "/a?timeout=10s", at},
		{"S3.2 two leading slashes, as envtest writes them", urlHook(s.URL+"//a", ca.bundle), "/a?timeout=10s", at},
		{"S3.2 only slashes", urlHook(s.URL+"//", ca.bundle), "/?timeout=10s", at},
		{"S3.2 repeated slashes, dots, an escaped slash", urlHook(s.URL+"/a//./x/../%2Fb%3F", ca.bundle), "/a/b%3F?timeout=10s", at},
		{"S3.2 empty path", urlHook(s.URL, ca.bundle), "/?timeout=10s", at},
		{"S3.2 no other query", urlHook(s.URL+"/a?x=y#z", ca.bundle), "/a?timeout=10s", at},
		{"S8.1 S8.2 service", serviceHook(443, "", ca.bundle), "/?timeout=10s", "check.shop.svc:443"},
		{"S8.2 S3.2 service with port and path", serviceHook(8443, "/v/", ca.bundle), "/v?timeout=10s", "check.shop.svc:8443"},
		{"S3.2 service with a path without a leading slash", serviceHook(8443, "v/w", ca.bundle), "/v/w?timeout=10s", "check.shop.svc:8443"},
		{"S8.4 service without port", serviceHook(0, "/", ca.bundle), "/?timeout=10s", "check.shop.svc:443"},
	}
	c := newCaller(t, Options{Resolver: fixed(at)})
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			mustCall(t, c, tt.hook)
			r := <-seen
			if r.RequestURI != tt.uri || r.Host != tt.host || r.Method != "POST" {
				t.Errorf("got %s %s at %s, want %s at %s", r.Method, r.RequestURI, r.Host, tt.uri, tt.host)
			}
			for name, want := range map[string]string{ // S3.1
				"Content-Type": "application/json", "Accept": "application/json, */*", "User-Agent": "kube-apiserver-admission", "Authorization": "",
			} {
				if got := r.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			var got any
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Fatal(err)
			}
			var want any
			if err := json.Unmarshal(invocation(tt.hook).Body.Bytes(testUID), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if r.ContentLength != int64(len(invocation(tt.hook).Body.Bytes(testUID))) {
				t.Errorf("content length is %d", r.ContentLength)
			}
		})
	}
}

// bubble runs a test with simulated time against an in-memory server that is valid for
// hook.example.com.
func bubble(t *testing.T, h http.HandlerFunc, test func(t *testing.T, c *Caller, hook *registration.Entry)) {
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t, "ca")
		l := hooktest.NewPipes()
		serve(t, ca.serving(t, "hook.example.com"), h, func(s *httptest.Server) { s.Listener = l })
		c := newCaller(t, Options{Dial: l.Dial})
		test(t, c, urlHook("https://hook.example.com/", ca.bundle))
		c.Close()
		synctest.Wait()
	})
}

func TestTimeouts(t *testing.T) {
	cases := []struct {
		name          string
		hook, request time.Duration
		spent         time.Duration
		param         string
	}{
		{"S3.3 the request's limit is less", 20 * time.Second, 10 * time.Second, 0, "10s"},
		{"S3.3 the hook's limit is less", 5 * time.Second, 10 * time.Second, 0, "5s"},
		{"S3.3 what earlier hooks used is gone", 20 * time.Second, 10 * time.Second, 2 * time.Second, "8s"},
		{"S3.3 rounded up to whole seconds", 20 * time.Second, 10 * time.Second, 8001 * time.Millisecond, "2s"},
		{"S3.3 a full 30 s", 30 * time.Second, 0, 0, "30s"},
		{"S3.4 always present", 0, 0, 0, "30s"},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			var param string
			bubble(t, func(w http.ResponseWriter, r *http.Request) {
				param = r.URL.Query().Get("timeout")
				allow(w, r)
			}, func(t *testing.T, c *Caller, hook *registration.Entry) {
				ctx := t.Context()
				if tt.request > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.request)
					defer cancel()
				}
				time.Sleep(tt.spent)
				hook.Timeout = tt.hook
				if _, err := c.Call(ctx, invocation(hook)); err != nil {
					t.Fatal(err)
				}
			})
			if param != tt.param {
				t.Errorf("timeout=%s, want %s", param, tt.param)
			}
		})
	}
	if got := timeoutQuery(90 * time.Second); got != "timeout=1m30s" {
		t.Errorf("S3.3: 90 s are printed as %q", got)
	}
}

func TestDeadlines(t *testing.T) {
	cases := []struct {
		name    string
		request time.Duration
		cancel  bool
		want    Failure
		text    []string
	}{
		{"S7.7 the hook's own timeout", 0, false,
			Failure{TimedOut: true, Limit: 3 * time.Second, Elapsed: 3 * time.Second, Code: 503, Class: Transport},
			[]string{`failed to call webhook: Post "https://hook.example.com/?timeout=3s": context deadline exceeded`, "no answer within 3s, timeoutSeconds of the webhook"}},
		{"S7.7 S7.8 the deadline of the API request", 1500 * time.Millisecond, false,
			Failure{TimedOut: true, RequestLimited: true, Limit: 1500 * time.Millisecond, Elapsed: 1500 * time.Millisecond, Code: 503, Class: Transport},
			[]string{`Post "https://hook.example.com/?timeout=2s": context deadline exceeded`, "no answer within 1.5s, the time that the API request had left"}},
		{"S7.10 the client of the API request is gone", 0, true,
			Failure{ClientGone: true, Limit: 3 * time.Second, Elapsed: time.Second, Code: 503, Class: Transport},
			[]string{"context canceled", "the API request was cancelled by its client"}},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			}, func(t *testing.T, c *Caller, hook *registration.Entry) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.request > 0 {
					ctx, cancel = context.WithTimeout(ctx, tt.request)
					defer cancel()
				}
				if tt.cancel {
					time.AfterFunc(time.Second, cancel)
				}
				hook.Timeout = 3 * time.Second
				_, err := c.Call(ctx, invocation(hook))
				if err == nil {
					t.Fatal("no error")
				}
				got := Failure{TimedOut: err.TimedOut, ClientGone: err.ClientGone, RequestLimited: err.RequestLimited, Limit: err.Limit,
					Elapsed: err.Elapsed, Code: err.Code, Class: err.Class, Dial: err.Dial}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if missing := contains(err.Error(), tt.text...); missing != "" {
					t.Errorf("%q lacks %q", err, missing)
				}
				code, opening := int32(http.StatusInternalServerError), "Internal error occurred: failed calling webhook "
				if tt.request > 0 {
					code, opening = http.StatusGatewayTimeout, "Timeout: request did not complete within the allotted timeout: failed calling webhook "
				}
				if s := err.Status().ErrStatus; s.Code != code || !strings.HasPrefix(s.Message, opening) {
					t.Errorf("the request gets %d %q, want %d %q...", s.Code, s.Message, code, opening)
				}
			})
		})
	}
}

// TestConnectingIsLimited has servers that accept a connection and do no more, or not even that.
func TestConnectingIsLimited(t *testing.T) {
	cases := []struct {
		name     string
		accepts  bool
		timeout  time.Duration
		elapsed  time.Duration
		timedOut bool
		text     string
	}{
		{"S8.10 a handshake has 10 s", true, 30 * time.Second, 10 * time.Second, false, "TLS handshake timeout"},
		{"S8.10 a handshake has the call's time", true, 5 * time.Second, 5 * time.Second, true, "no connection within 5s"},
		{"S8.10 dialing has the call's time", false, 5 * time.Second, 5 * time.Second, true, "no connection within 5s"},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := hooktest.NewPipes()
				if tt.accepts {
					go func() {
						if conn, err := l.Accept(); err == nil {
							io.Copy(io.Discard, conn)
						}
					}()
				}
				c := newCaller(t, Options{Dial: l.Dial})
				hook := urlHook("https://hook.example.com/", newAuthority(t, "ca").bundle)
				hook.Timeout = tt.timeout
				_, err := c.Call(t.Context(), invocation(hook))
				l.Close()
				c.Close()
				synctest.Wait()
				if err == nil {
					t.Fatal("no error")
				}
				if missing := contains(err.Error(), tt.text); missing != "" {
					t.Errorf("%q lacks %q", err, missing)
				}
				if err.Elapsed != tt.elapsed || err.TimedOut != tt.timedOut || err.Class != Transport {
					t.Errorf("elapsed %s, timed out %t, class %v; want %s, %t, %v", err.Elapsed, err.TimedOut, err.Class, tt.elapsed, tt.timedOut, Transport)
				}
			})
		})
	}
}

func TestNoVersion(t *testing.T) {
	hook := urlHook("https://hook.example.com", nil)
	_, err := newCaller(t, Options{}).Call(t.Context(), &Invocation{Hook: hook})
	if err == nil || err.Error() != "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)" || err.Code != 400 {
		t.Errorf("S3.6: got %v", err)
	}
}

func TestAlphaHook(t *testing.T) {
	ca := newAuthority(t, "ca")
	s := serve(t, ca.serving(t, "check.shop.svc"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("timeout") != "30s" || r.URL.Path != "/" {
			t.Errorf("S12.12, S12.13: called at %s", r.RequestURI)
		}
		io.WriteString(w, `{"spec":{},"status":{"allowed":true}}`)
	}), nil)
	hook := serviceHook(0, "", ca.bundle)
	hook.Source, hook.ReviewVersions, hook.Timeout = registration.External, []string{"v1alpha1"}, 30*time.Second
	mustCall(t, newCaller(t, Options{Resolver: fixed(s.Listener.Addr().String())}), hook)
}

func TestProxy(t *testing.T) {
	ca := newAuthority(t, "ca")
	s := serve(t, ca.serving(t, "check.shop.svc", "hook.example.com"), http.HandlerFunc(allow), nil)
	var mu sync.Mutex
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.Host)
		mu.Unlock()
		up, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer up.Close()
		down, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer down.Close()
		io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { io.Copy(up, down); up.Close() }()
		io.Copy(down, up)
	}))
	t.Cleanup(proxy.Close)
	proxyURL, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := newCaller(t, Options{
		Proxy: func(*http.Request) (*url.URL, error) { return proxyURL, nil },
		Resolver: ResolverFunc(func(context.Context, string, string, int32) ([]string, error) {
			t.Error("S8.8: a service behind a proxy was resolved")
			return nil, nil
		}),
	})
	mustCall(t, c, serviceHook(8443, "/", ca.bundle))
	mustCall(t, c, urlHook("https://hook.example.com/", ca.bundle))
	c.Close()
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"CONNECT check.shop.svc:8443", "CONNECT hook.example.com:443"}, asked); diff != "" {
		t.Errorf("S8.8: (-want +got):\n%s", diff)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{MaxHeaderBytes: -1}, {MaxInFlight: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

// A webhook gets the trace context of its API request, and none if the request has none.
func TestTraceContextIsPassedOn(t *testing.T) {
	ca := newAuthority(t, "ca")
	seen := make(chan http.Header, 1)
	s := serve(t, ca.serving(t, "127.0.0.1"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		allow(w, r)
	}), nil)
	c := newCaller(t, Options{})
	hook := urlHook(s.URL, ca.bundle)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, tt := range []struct {
		name    string
		headers map[string]string
	}{
		{"S3.18 a request that is traced", map[string]string{"Traceparent": parent, "Tracestate": "a=b", "Baggage": "c=d"}},
		{"S3.18 a request with baggage only", map[string]string{"Baggage": "c=d"}},
		{"S3.18 a request without a trace context", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			carrier := propagation.MapCarrier{}
			for name, value := range tt.headers {
				carrier[strings.ToLower(name)] = value
			}
			ctx := propagators.Extract(t.Context(), carrier)
			if _, err := c.Call(ctx, invocation(hook)); err != nil {
				t.Fatal(err)
			}
			got := <-seen
			for _, name := range []string{"Traceparent", "Tracestate", "Baggage"} {
				if got.Get(name) != tt.headers[name] {
					t.Errorf("%s is %q, want %q", name, got.Get(name), tt.headers[name])
				}
			}
		})
	}
	for name := range plainHeaders {
		if name == "Traceparent" {
			t.Error("the headers of all calls have the trace context of one")
		}
	}
	if n := testing.AllocsPerRun(100, func() { traced(t.Context(), plainHeaders) }); n != 0 {
		t.Errorf("a call without a trace context takes %v allocations for it", n)
	}
}
