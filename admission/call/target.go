package call

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

const (
	dialTimeout         = 30 * time.Second // S8.10
	tlsHandshakeTimeout = 10 * time.Second // S8.10
	idleTimeout         = 90 * time.Second
	// A body that fits into the buffer with its headers is one TLS record and one system call.
	// Larger bodies bypass the buffer.
	writeBufferSize = 16 << 10
)

// key has the properties that webhooks must share to share connections (S8.7): the address of the
// webhook, the CA bundle, and this server's credentials.
type key struct {
	service  bool
	host     string
	caBundle string
	identity string
}

// target has the shared state of all calls to one webhook server: its connections, circuit and
// limits.
type target struct {
	key       key
	transport *http.Transport
	// rt is transport, wrapped with the authentication of requests.
	rt http.RoundTripper
	// token and certificate are nil unless the credentials are in files.
	token       *tokenFile
	certificate *certificateFiles

	breaker breaker
	slots   slots
	// answers is the memory for answers of the server.
	answers *semaphore.Weighted

	// users counts the running calls; a retired target has left the cache.
	users   atomic.Int64
	retired atomic.Bool
}

// plainHeaders are the headers of S3.1. They are shared by all requests that go directly to
// net/http, which does not change them; other requests get a copy.
var plainHeaders = http.Header{
	"Accept":       {"application/json, */*"},
	"Content-Type": {"application/json"},
	"User-Agent":   {"kube-apiserver-admission"},
}

// newTarget prepares the connections to a server without connecting.
func (c *Caller) newTarget(k key, u *url.URL, id identity) (*target, error) {
	t := &target{key: k, answers: semaphore.NewWeighted(maxOfTarget)}
	t.breaker.mode, t.breaker.name, t.breaker.observe = c.options.Breaker, k.host, c.options.Observe
	t.slots.name, t.slots.max, t.slots.bodies = k.host, c.options.MaxInFlight, &c.waiting
	cfg, files, err := id.config()
	if err != nil {
		return nil, err
	}
	if files.token != "" {
		t.token = &tokenFile{path: files.token}
	}
	if files.cert != "" {
		if t.certificate, err = newCertificateFiles(files.cert, files.key); err != nil {
			return nil, err
		}
	}

	tlsConfig, dial, wrap, err := c.clientOf(cfg)
	if err != nil {
		return nil, err
	}
	if tlsConfig.RootCAs, err = rootsOf(cfg, k.caBundle); err != nil {
		return nil, fmt.Errorf("unable to load root certificates: %w", err)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	if !k.service && isLoopback(u.Hostname()) {
		protocols.SetHTTP2(true) // S8.6
	}
	if k.service {
		tlsConfig.ServerName = u.Hostname()
	}
	if t.certificate != nil {
		tlsConfig.GetClientCertificate = t.certificate.get
	}
	t.transport = &http.Transport{
		Proxy:               c.proxyFor(k),
		DialContext:         dial,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: tlsHandshakeTimeout,
		// As many idle connections as calls may run. With fewer, a loaded server would close
		// and open connections all the time, and a handshake costs more than many calls.
		MaxIdleConnsPerHost:    c.options.MaxInFlight,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: c.options.MaxHeaderBytes,
		WriteBufferSize:        writeBufferSize,
		Protocols:              &protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	t.rt = t.transport
	if wrap != nil {
		if t.rt, err = wrap(t.rt); err != nil {
			return nil, err
		}
	}
	if c.options.Wrap != nil {
		t.rt = c.options.Wrap(t.rt)
	}
	return t, nil
}

// clientOf returns client-go's TLS configuration, dialer and request wrapper for a configuration.
// The wrapper is nil if requests are sent unchanged.
func (c *Caller) clientOf(cfg *rest.Config) (*tls.Config, dialFunc, func(http.RoundTripper) (http.RoundTripper, error), error) {
	dial := c.dial
	if cfg.ExecProvider != nil {
		cfg.Dial = dial
	}
	tc, err := cfg.TransportConfig()
	if err != nil {
		return nil, nil, nil, err
	}
	if tc.DialHolder != nil && tc.DialHolder.Dial != nil {
		dial = tc.DialHolder.Dial
	}
	// rootsOf sets the roots. The server name is a placeholder: without it client-go may return
	// nil, which means defaults.
	tc.TLS.CAFile, tc.TLS.CAData, tc.TLS.ServerName = "", nil, "any"
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, nil, nil, err
	}
	tlsConfig.ServerName = ""
	var wrap func(http.RoundTripper) (http.RoundTripper, error)
	if tc.WrapTransport != nil || tc.HasTokenAuth() || tc.HasBasicAuth() || impersonates(&tc.Impersonate) {
		wrap = func(rt http.RoundTripper) (http.RoundTripper, error) { return transport.HTTPWrappersForConfig(tc, rt) }
	}
	return tlsConfig, dial, wrap, nil
}

func impersonates(i *transport.ImpersonationConfig) bool {
	return i.UserName != "" || i.UID != "" || len(i.Groups) > 0 || len(i.Extra) > 0
}

// rootsOf returns the roots for verifying a server's certificate: exactly the bundle, and the roots
// of the credentials if there are any (S8.5). If there are neither, it returns nil, which means the
// system's roots.
func rootsOf(cfg *rest.Config, bundle string) (*x509.CertPool, error) {
	given := cfg.CAData
	if len(given) == 0 && cfg.CAFile != "" {
		var err error
		if given, err = files.Read(cfg.CAFile, files.Configuration); err != nil {
			return nil, err
		}
	}
	if len(given) == 0 && bundle == "" {
		return nil, nil
	}
	all := append(append(append([]byte{}, given...), '\n'), bundle...)
	pool := x509.NewCertPool()
	if pool.AppendCertsFromPEM(all) {
		return pool, nil
	}
	for rest := all; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("unable to parse bytes as PEM block")
		}
		if block.Type == "CERTIFICATE" && len(block.Headers) == 0 {
			_, err := x509.ParseCertificate(block.Bytes)
			return nil, fmt.Errorf("failed to parse certificate: %w", err)
		}
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// proxyFor keeps requests to the endpoints of services from going through a proxy: only the name of
// a service determines whether a proxy is used (S8.8).
func (c *Caller) proxyFor(k key) func(*http.Request) (*url.URL, error) {
	if !k.service {
		return c.options.Proxy
	}
	return func(r *http.Request) (*url.URL, error) {
		if r.URL.Host == k.host {
			return c.options.Proxy(r)
		}
		return nil, nil
	}
}

// requestHeaders returns base and the authentication headers for the next request. It reads changed
// credential files first.
func (t *target) requestHeaders(base http.Header) (http.Header, error) {
	if t.certificate != nil && t.certificate.refresh() {
		t.transport.CloseIdleConnections()
	}
	if t.token == nil {
		if t.rt == http.RoundTripper(t.transport) {
			return base, nil
		}
		return maps.Clone(base), nil
	}
	token, err := t.token.read()
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	headers := maps.Clone(base)
	headers["Authorization"] = []string{"Bearer " + token}
	return headers, nil
}

// retire closes idle connections, now and when the last running call ends.
func (t *target) retire() {
	t.retired.Store(true)
	t.breaker.retire()
	t.transport.CloseIdleConnections()
}

func (t *target) release() {
	if t.users.Add(-1) == 0 && t.retired.Load() {
		t.transport.CloseIdleConnections()
	}
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)
