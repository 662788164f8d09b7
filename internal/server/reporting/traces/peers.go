package traces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

const (
	// maxPeers bounds the servers that are asked for one trace.
	maxPeers = 16
	// peerTimeout bounds how long the servers may take to answer.
	peerTimeout = 3 * time.Second
	// maxPeerAnswer bounds the bytes read of a response.
	maxPeerAnswer = 32 << 20
)

// Peers are the other servers on the same etcd. Each has the traces of the requests that it
// handled. A Peers is safe for concurrent use; nil means no other servers.
type Peers struct {
	// Addresses returns the URLs of the servers. Some of these servers may have ended.
	Addresses func(context.Context) ([]string, error)
	// Transport sends requests to the servers, as a proxy that may name the user in headers.
	Transport http.RoundTripper
}

// find asks the servers for a trace, as the user of the request in ctx, who needs the right to list
// traces there. The first result is nil if no server has the trace. The second result is the reason
// why servers did not answer; it is empty if all answered.
func (p *Peers) find(ctx context.Context, name string) (*v1alpha1.AdmissionTrace, string) {
	caller, ok := request.UserFrom(ctx)
	if p == nil || !ok {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	addresses, err := p.Addresses(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot ask other servers for a trace", "trace", name)
		return nil, "the other servers are not known"
	}
	note := ""
	if len(addresses) > maxPeers {
		note, addresses = fmt.Sprintf("only %d of %d other servers were asked", maxPeers, len(addresses)), addresses[:maxPeers]
	}
	type answer struct {
		from  string
		trace *v1alpha1.AdmissionTrace
		err   error
	}
	answers := make(chan answer, len(addresses))
	for _, address := range addresses {
		go func() {
			got := answer{address, nil, errors.New("asking it ended by a panic")}
			survive.Run(ctx, "traces of other servers", func(ctx context.Context) {
				t, err := p.ask(ctx, address, request.NamespaceValue(ctx), name, caller)
				got = answer{address, t, err}
			})
			answers <- got
		}()
	}
	for range addresses {
		a := <-answers
		if a.trace != nil {
			return a.trace, ""
		}
		if a.err != nil {
			klog.FromContext(ctx).V(2).Info("A server did not answer for a trace", "trace", name, "server", a.from, "err", a.err)
			note = fmt.Sprintf("the server at %s could not be asked", a.from)
		}
	}
	return nil, note
}

// ask asks one server for a trace. It sends a list request, because a server does not pass lists on
// to other servers.
func (p *Peers) ask(ctx context.Context, address, namespace, name string, caller user.Info) (*v1alpha1.AdmissionTrace, error) {
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("%q is not the address of a server", address)
	}
	place := base.JoinPath("apis", v1alpha1.SchemeGroupVersion.Group, v1alpha1.SchemeGroupVersion.Version)
	if namespace != "" {
		place = place.JoinPath("namespaces", namespace)
	}
	place = place.JoinPath(Resource)
	place.RawQuery = url.Values{"fieldSelector": {"metadata.name=" + name}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, place.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	as := transport.NewAuthProxyRoundTripper(caller.GetName(), caller.GetUID(), caller.GetGroups(), caller.GetExtra(), p.Transport)
	res, err := as.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", res.Status)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxPeerAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxPeerAnswer {
		return nil, fmt.Errorf("the answer has more than %d bytes", maxPeerAnswer)
	}
	list := &v1alpha1.AdmissionTraceList{}
	if err := json.Unmarshal(data, list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if t := &list.Items[i]; t.Name == name && (namespace == "" || t.Namespace == namespace) {
			// The codec sets the kind. The resourceVersion has a meaning on that server only.
			t.TypeMeta, t.ResourceVersion = metav1.TypeMeta{}, ""
			return t, nil
		}
	}
	return nil, nil
}
