package aggregation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	endpointmetrics "k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	proxyutil "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-aggregator/pkg/controllers/status/remote"
	"k8s.io/streaming/pkg/httpstream"
)

// resolveTimeout bounds the lookup of a service's address.
const resolveTimeout = 5 * time.Second

// Proxy passes the requests for one group version on to the server of its APIService. It is
// safe for concurrent use.
type Proxy struct {
	options Options
	gv      schema.GroupVersion
	target  atomic.Pointer[target]
	// running counts the running requests, except watches.
	running atomic.Int64
	// reported is when the log last reported that responses are too long, in Unix seconds.
	reported atomic.Int64

	mu struct {
		sync.Mutex
		// followed counts the objects of the group version that this server follows, by path.
		followed map[string]followed
	}
}

// target is the server that requests go to. It is immutable.
type target struct {
	// name is the name of the APIService.
	name               string
	namespace, service string
	port               int32
	// uid and version identify the state of the APIService that the target was made from.
	// certificate is the client certificate of this server for the remote server.
	uid         types.UID
	version     string
	certificate []byte
	// unavailable is the reason why the condition Available is not true; empty when it is.
	unavailable string
	transport   http.RoundTripper
	// err is the reason why there is no transport.
	err error
}

func newProxy(o Options, gv schema.GroupVersion) *Proxy { return &Proxy{options: o, gv: gv} }

// update applies the current state of the APIService, which must name a service. It reports whether
// anything has changed.
func (p *Proxy) update(s *apiregistrationv1.APIService) bool {
	certificate, key := p.options.ClientCertificate()
	if t := p.target.Load(); t != nil && t.version == s.ResourceVersion && t.uid == s.UID && bytes.Equal(t.certificate, certificate) {
		return false
	}
	t := &target{
		name: s.Name, namespace: s.Spec.Service.Namespace, service: s.Spec.Service.Name, port: portOf(s),
		uid: s.UID, version: s.ResourceVersion, certificate: certificate,
	}
	if c := helper.GetAPIServiceConditionByType(s, apiregistrationv1.Available); c == nil {
		t.unavailable = "it has not been checked yet"
	} else if c.Status != apiregistrationv1.ConditionTrue {
		t.unavailable = fmt.Sprintf("%s (%s)", c.Message, c.Reason)
	}
	if t.transport, t.err = transport.New(remote.BuildTransportConfig(p.options.Dial, certificate, key, s)); t.err != nil {
		t.err = fmt.Errorf("connections to %s cannot be made: %w", t, t.err)
	}
	p.target.Store(t)
	return true
}

// portOf returns the port of the service that an APIService names.
func portOf(s *apiregistrationv1.APIService) int32 {
	if s.Spec.Service.Port == nil {
		return 443
	}
	return *s.Spec.Service.Port
}

func (t *target) String() string {
	return fmt.Sprintf("service %s/%s:%d of APIService %q", t.namespace, t.service, t.port, t.name)
}

// ServeHTTP passes a request on. The request must have been authenticated.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	// A watch that another server answers takes no seat.
	flowcontrol.RequestDelegated(req.Context())
	t := p.target.Load()
	if t.unavailable != "" {
		p.fail(w, req, apierrors.NewServiceUnavailable(fmt.Sprintf("%s is not available: %s", t, t.unavailable)))
		return
	}
	if info, ok := request.RequestInfoFrom(req.Context()); !ok || !p.options.LongRunning(req, info) {
		defer p.running.Add(-1)
		if p.running.Add(1) > int64(p.options.MaxInFlight) {
			p.fail(w, req, apierrors.NewTooManyRequests(fmt.Sprintf("too many concurrent requests for %s, please try again later", t), 1))
			return
		}
	}
	p.pass(t, w, req)
}

// always returns a handler for requests that this server makes for itself. The handler passes them
// on even while the condition says that the service is not available, and bounds the responses
// (S22.23).
func (p *Proxy) always() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), longestQuestion)
		defer cancel()
		t, most := p.target.Load(), int64(maxDiscovery)
		if strings.HasPrefix(req.URL.Path, "/openapi/") {
			most = maxDocument
		}
		answer := &short{header: http.Header{}, code: http.StatusOK, most: most, end: cancel}
		p.pass(t, answer, req.WithContext(ctx))
		switch {
		case answer.over:
			r := &read{proxy: p, path: req.URL.Path}
			http.Error(w, r.refuse("has more than %d bytes, or more than %d values", most, maxValues).Error(), http.StatusServiceUnavailable)
		case ctx.Err() != nil:
			if req.Context().Err() == nil {
				refused().WithLabelValues(t.name).Inc()
			}
			http.Error(w, fmt.Sprintf("%s did not answer within %s", t, longestQuestion), http.StatusServiceUnavailable)
		default:
			maps.Copy(w.Header(), answer.header)
			w.WriteHeader(answer.code)
			_, _ = w.Write(answer.data.Bytes())
		}
	})
}

func (p *Proxy) pass(t *target, w http.ResponseWriter, req *http.Request) {
	if t.err != nil {
		p.fail(w, req, apierrors.NewServiceUnavailable(t.err.Error()))
		return
	}
	user, ok := request.UserFrom(req.Context())
	if !ok {
		p.fail(w, req, apierrors.NewInternalError(errors.New("a request without a user cannot be passed on")))
		return
	}
	host, err := p.options.resolve(req.Context(), t.namespace, t.service, t.port)
	if err != nil {
		p.fail(w, req, apierrors.NewServiceUnavailable(fmt.Sprintf("%s cannot be reached: %v", t, err)))
		return
	}
	location := &url.URL{Scheme: "https", Host: host, Path: req.URL.Path, RawQuery: req.URL.RawQuery}
	onward, cancel := proxyutil.NewRequestForProxy(location, req)
	defer cancel()
	// The credentials of a caller are for this server only (S22.10).
	onward.Header.Del("Authorization")
	onward.Header.Del("Cookie")
	round := transport.NewAuthProxyRoundTripper(user.GetName(), user.GetUID(), user.GetGroups(), user.GetExtra(), t.transport)
	upgrade := httpstream.IsUpgradeRequest(req)
	if upgrade {
		// The connection of an upgrade is made without the round tripper.
		transport.SetAuthProxyHeaders(onward, user.GetName(), user.GetUID(), user.GetGroups(), user.GetExtra())
	}
	handler := proxy.NewUpgradeAwareHandler(location, round, true, upgrade, responder{p, t})
	handler.RejectForwardingRedirects = true
	handler.ServeHTTP(w, onward)
}

// responder answers requests that the remote server did not answer.
type responder struct {
	*Proxy
	target *target
}

// Error implements proxy.ErrorResponder.
func (r responder) Error(w http.ResponseWriter, req *http.Request, err error) {
	r.fail(w, req, apierrors.NewServiceUnavailable(fmt.Sprintf("%s did not answer: %v", r.target, err)))
}

func (p *Proxy) fail(w http.ResponseWriter, req *http.Request, err *apierrors.StatusError) {
	if info, ok := request.RequestInfoFrom(req.Context()); ok {
		endpointmetrics.RecordRequestTermination(req, info, component, int(err.ErrStatus.Code))
	}
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, req)
}

// component is the name of this part in metrics, as in kube-apiserver.
const component = "aggregator"

// resolve returns the HOST:PORT of one endpoint of a service (S22.8).
func (o *Options) resolve(ctx context.Context, namespace, name string, port int32) (string, error) {
	if namespace == "default" && name == "kubernetes" && port == 443 {
		return o.Self, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	found, err := o.Resolver.Resolve(ctx, namespace, name, port)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", errors.New("the service has no endpoint")
	}
	return found[0], nil
}
