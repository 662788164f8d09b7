package server

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"

	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/aggregation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// addAPIServices adds the kind that puts other servers behind this one (S22.1).
func (b *builder) addAPIServices(p apiParts) error {
	_, err := b.add("apiregistration", &resources.Group{
		GroupVersion: aggregation.GroupVersion, Storage: aggregation.Storage(p.stores.factory, p.stores.places.StorageConfig),
		Scheme: aggregation.Scheme, Codec: initialization.NewCodec(aggregation.Codecs),
		ParameterCodec: runtime.NewParameterCodec(aggregation.Scheme),
	})
	return err
}

// newAggregator makes what passes requests on to other servers.
func (a *api) newAggregator(p apiParts, builtin []discovery.Version) error {
	s := p.settings
	o := aggregation.Options{
		Loopback: p.self.config, Informers: p.self.informers,
		Resolver: p.self.services(s), Placed: s.addresses.Has,
		Self:              p.serving.self(),
		ClientCertificate: p.serving.toAggregated.CurrentCertKeyContent,
		MaxInFlight:       s.MaxRequestsInFlight, LongRunning: p.config.LongRunningFunc,
		Show: a.remoteShown, Document: a.remoteDocumented,
	}
	if s.DialWebhook != nil {
		o.Dial = &transport.DialHolder{Dial: s.DialWebhook}
	}
	for _, v := range builtin {
		o.Builtin = append(o.Builtin, v.GroupVersion)
	}
	var err error
	if a.aggregator, err = aggregation.New(o); err != nil {
		return err
	}
	p.self.reads.Follow(a.aggregator)
	p.serving.toAggregated.AddListener(certificateListener{a.aggregator})
	return nil
}

// certificateListener tells an aggregator of a new certificate.
type certificateListener struct{ aggregator *aggregation.Aggregator }

// Enqueue implements dynamiccertificates.Listener.
func (l certificateListener) Enqueue() { l.aggregator.ClientCertificateChanged() }

// remoteShown tells discovery and its readers what other servers have now.
func (a *api) remoteShown(versions []aggregation.Version) {
	var shown []discovery.Version
	for _, v := range versions {
		shown = append(shown, discovery.Version{
			GroupVersion: v.GroupVersion, GroupPriority: v.Priority.Group, VersionPriority: v.Priority.Version,
			Aggregated: v.Resources, Remote: true, Stale: v.Stale,
		})
	}
	if err := a.discovery.SetRemote(shown); err != nil {
		klog.ErrorS(err, "Could not update the discovery of aggregated servers")
	}
	a.mapper.Reset()
	a.kindsChanged()
}

// remoteDocumented tells OpenAPI what other servers say.
func (a *api) remoteDocumented(d aggregation.Documents) {
	remote := openapi.Remote{V2: d.V2, Tag: d.Tag, V3: map[string]openapi.RemoteDocument{}}
	for name, document := range d.V3 {
		remote.V3[name] = openapi.RemoteDocument{URL: document.ServerRelativeURL, Handler: document.Handler}
	}
	a.openapi.SetRemote(remote)
}

// prioritized gives the versions of this server their places in discovery.
func prioritized(versions []discovery.Version) []discovery.Version {
	for i := range versions {
		p := aggregation.PriorityOf(versions[i].GroupVersion)
		versions[i].GroupPriority, versions[i].VersionPriority = p.Group, p.Version
	}
	return versions
}

// runAggregator keeps what is known of other servers, and the certificate by which they know
// this one, until ctx ends.
func (a *assembly) runAggregator(ctx context.Context) {
	go a.serving.toAggregated.Run(ctx, 1)
	a.api.aggregator.Run(ctx)
}

// authenticationInfo is the ConfigMap in kube-system where servers built on k8s.io/apiserver
// find how callers are known (S22.18).
const authenticationInfo = "extension-apiserver-authentication"

// publishedWithin is how long a start waits for that ConfigMap. What refuses it may need this
// server to be ready.
const publishedWithin = 2 * time.Second

// publishAuthentication keeps that ConfigMap until ctx ends, and returns when it is there.
func (a *assembly) publishAuthentication(ctx context.Context) error {
	v := a.serving
	info := clusterauthenticationtrust.ClusterAuthenticationInfo{ClientCA: v.clientCA}
	if p := v.proxies; p != nil {
		info.RequestHeaderCA, info.RequestHeaderAllowedNames = p.CAContentProvider, p.AllowedClientNames
		info.RequestHeaderUsernameHeaders, info.RequestHeaderUIDHeaders = p.UsernameHeaders, p.UIDHeaders
		info.RequestHeaderGroupHeaders, info.RequestHeaderExtraHeaderPrefixes = p.GroupHeaders, p.ExtraHeaderPrefixes
	}
	c := clusterauthenticationtrust.NewClusterAuthenticationTrustController(info, a.loopback.client)
	v.clientCA.AddListener(c)
	if v.proxies != nil {
		v.proxies.CAContentProvider.AddListener(c)
	}
	go c.Run(ctx, 1)
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, publishedWithin, true, func(ctx context.Context) (bool, error) {
		_, err := a.loopback.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationInfo, metav1.GetOptions{})
		return err == nil, nil
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		klog.InfoS("The ConfigMap by which aggregated servers know callers cannot be written yet; will retry", "configMap", authenticationInfo)
	}
	return nil
}
