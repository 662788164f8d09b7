package customresources

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Resolver finds the endpoints of a service: at least one host:port to connect to,
// in the order to try them, or an error that names the service. It must be safe for
// concurrent use.
type Resolver func(ctx context.Context, namespace, name string, port int32) ([]string, error)

// target is where a conversion webhook is. It is safe for concurrent use.
type target struct {
	// url has the name of a service as host, which is what the webhook's
	// certificate must be valid for (S8.2).
	url *url.URL
	// resolve finds the endpoints of the service; nil when the host of the URL is
	// where to connect to.
	resolve   func(context.Context) ([]string, error)
	transport *http.Transport
}

func newTarget(config *apiextensionsv1.WebhookClientConfig, o *Options) (*target, error) {
	t := &target{transport: &http.Transport{
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 25,
		// Headers say nothing that is needed.
		MaxResponseHeaderBytes: 64 << 10,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
	}}
	if ca := bytes.TrimSpace(config.CABundle); len(ca) > 0 {
		t.transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		// A bundle without certificates trusts nobody, and every call says so.
		t.transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(ca)
	}
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	t.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if until, ok := ctx.Value(dialUntil{}).(time.Time); ok {
			limited, cancel := context.WithDeadline(ctx, until)
			defer cancel()
			ctx = limited
		}
		return dial(ctx, network, address)
	}
	t.transport.Proxy = func(r *http.Request) (*url.URL, error) {
		// Whether a service is reached by proxy goes by its name (S8.8).
		if r.URL.Host != t.url.Host {
			return nil, nil
		}
		return http.ProxyFromEnvironment(r)
	}
	switch service := config.Service; {
	case config.URL != nil:
		var err error
		t.url, err = url.Parse(*config.URL)
		return t, err
	case service != nil:
		name, port := service.Name+"."+service.Namespace+".svc", int32(443)
		if service.Port != nil {
			port = *service.Port
		}
		t.url = &url.URL{Scheme: "https", Host: net.JoinHostPort(name, strconv.Itoa(int(port)))}
		if service.Path != nil {
			t.url.Path = *service.Path
		}
		t.transport.TLSClientConfig.ServerName = name
		if o.Resolve != nil {
			t.resolve = func(ctx context.Context) ([]string, error) {
				return o.Resolve(ctx, service.Namespace, service.Name, port)
			}
		}
		return t, nil
	}
	return nil, errors.New("conversion webhook with neither url nor service")
}

// dialUntil is the key of the time at which an attempt to connect is over. net/http
// takes from the context of a request its values only.
type dialUntil struct{}

// post sends a body to the first endpoint that a connection can be made to (S8.4),
// and nothing to any other. Redirects are not followed.
func (t *target) post(ctx context.Context, body []byte) (*http.Response, error) {
	endpoints, err := t.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	deadline, limited := ctx.Deadline()
	for i, endpoint := range endpoints {
		attempt := ctx
		left := len(endpoints) - i
		if limited {
			attempt = context.WithValue(attempt, dialUntil{}, time.Now().Add(time.Until(deadline)/time.Duration(left)))
		}
		var connected bool
		attempt = httptrace.WithClientTrace(attempt, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
		var request *http.Request
		if request, err = http.NewRequestWithContext(attempt, http.MethodPost, t.url.String(), bytes.NewReader(body)); err != nil {
			return nil, err
		}
		request.URL.Host = endpoint
		request.Header.Set("Content-Type", runtime.ContentTypeJSON)
		request.Header.Set("Accept", runtime.ContentTypeJSON)
		var response *http.Response
		response, err = t.transport.RoundTrip(request)
		if err == nil || connected || ctx.Err() != nil || errors.As(err, new(*tls.CertificateVerificationError)) {
			return response, err
		}
	}
	if len(endpoints) > 1 {
		err = fmt.Errorf("no endpoint of %s can be connected to, the last: %w", strings.Join(endpoints, ", "), err)
	}
	return nil, err
}

// endpoints returns where to connect to. Proxies are given the name of a service and
// find its endpoint themselves.
func (t *target) endpoints(ctx context.Context) ([]string, error) {
	if t.resolve == nil {
		return []string{t.url.Host}, nil
	}
	proxy, err := t.transport.Proxy(&http.Request{Method: http.MethodPost, URL: t.url, Host: t.url.Host})
	if err != nil {
		return nil, fmt.Errorf("choosing a proxy: %w", err)
	}
	if proxy != nil {
		return []string{t.url.Host}, nil
	}
	endpoints, err := t.resolve(ctx)
	if err == nil && len(endpoints) == 0 {
		err = errors.New("the service has no endpoints")
	}
	return endpoints, err
}
