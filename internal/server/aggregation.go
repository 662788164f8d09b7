package server

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/initialization"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/aggregation"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/discovery"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/openapi"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
)

// apiServices are the kind that puts other servers behind this one (S22.1).
func apiServices(p apiParts) *resources.Group {
	return &resources.Group{
		GroupVersion: aggregation.GroupVersion, Storage: aggregation.Storage(p.stores.factory, p.stores.places.StorageConfig),
		Scheme: aggregation.Scheme, Codec: initialization.NewCodec(aggregation.Codecs),
		ParameterCodec: runtime.NewParameterCodec(aggregation.Scheme),
	}
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
