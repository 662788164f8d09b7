package server

import (
	"context"
	"crypto/x509"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
	certutil "k8s.io/client-go/util/cert"
	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/internal/kit/survive"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// measured is the etcd that /metrics is about: the etcd of the server that started last in this
// process. Nothing is measured until a client reads /metrics.
var measured atomic.Pointer[database]

// measure makes /metrics show the size of the database, as kube-apiserver does, and ownState.
func (db *database) measure() {
	measured.Store(db)
	metrics.SetStorageMonitorGetter(func() ([]metrics.Monitor, error) {
		if now := measured.Load(); now != nil {
			return []metrics.Monitor{now}, nil
		}
		return nil, nil
	})
	registerOwnState()
}

// Monitor implements metrics.Monitor.
func (db *database) Monitor(ctx context.Context) (metrics.StorageMetrics, error) {
	status, err := db.client.Status(ctx, db.endpoints[rand.IntN(len(db.endpoints))])
	if err != nil {
		return metrics.StorageMetrics{}, err
	}
	return metrics.StorageMetrics{Size: status.DbSize}, nil
}

// Close implements metrics.Monitor. The server closes its etcd itself.
func (db *database) Close() error { return nil }

// ownState are the metrics of resources that run out or end by themselves: space, certificates,
// parts of the server.
type ownState struct {
	componentmetrics.BaseStableCollector
}

// metricOf describes a metric of ownState.
func metricOf(name, help string, labels ...string) *componentmetrics.Desc {
	return componentmetrics.NewDesc("gatehouse_"+name, help, labels, nil, componentmetrics.ALPHA, "")
}

var (
	freeBytes   = metricOf("storage_free_bytes", "Bytes that are free on the disk of the embedded etcd. The server refuses writes when they are fewer than --min-free-disk.")
	quotaBytes  = metricOf("storage_quota_bytes", "Bytes that the database of the embedded etcd may have: --etcd-quota. The server refuses writes when the database is larger.")
	expiration  = metricOf("certificate_expiration_timestamp_seconds", "When the first certificate of the server for a use expires. Uses are serving, authority (the server's own, of clients and of serving certificates), administrator (admin.kubeconfig), clients (--client-ca-file), members and members-authority (between the servers of a cluster), aggregation and aggregation-authority (by which aggregated servers know this one), etcd and etcd-authority.", "use")
	memberCount = metricOf("cluster_members", "Members of the embedded etcd, by role: voter, or learner for a server that is joining. A server alone is one voter.", "role")
	hasLeader   = metricOf("cluster_has_leader", "1 when the members of the embedded etcd have a leader, and 0 when they have none, so that writes fail.")
	leads       = metricOf("cluster_is_leader", "1 when the member of this server is the leader of the embedded etcd.")
	endedParts  = metricOf("ended_parts", "Parts of the server, such as controllers, that a panic has ended. The check parts of /healthz names them.")
)

// DescribeWithStability implements StableCollector.
func (*ownState) DescribeWithStability(to chan<- *componentmetrics.Desc) {
	for _, desc := range []*componentmetrics.Desc{freeBytes, quotaBytes, expiration, endedParts, memberCount, hasLeader, leads} {
		to <- desc
	}
}

// CollectWithStability implements StableCollector. Values that cannot be read are left out.
func (*ownState) CollectWithStability(to chan<- componentmetrics.Metric) {
	show := func(desc *componentmetrics.Desc, value float64, labels ...string) {
		to <- componentmetrics.NewLazyConstMetric(desc, componentmetrics.GaugeValue, value, labels...)
	}
	show(endedParts, float64(survive.Ended()))
	db := measured.Load()
	if db == nil {
		return
	}
	if db.embedded != nil {
		show(quotaBytes, float64(db.embedded.Quota()))
		voters, learners := db.embedded.Members()
		show(memberCount, float64(voters), "voter")
		show(memberCount, float64(learners), "learner")
		isLeader, led := db.embedded.Leads()
		show(leads, oneIf(isLeader))
		show(hasLeader, oneIf(led))
		if n, err := etcd.FreeSpace(db.dir); err == nil {
			show(freeBytes, float64(n))
		}
	}
	first := map[string]time.Time{}
	if list := db.certificates.Load(); list != nil {
		for _, c := range (*list)() {
			if until, ok := c.expires(); ok && (first[c.use].IsZero() || until.Before(first[c.use])) {
				first[c.use] = until
			}
		}
	}
	for use, until := range first {
		show(expiration, float64(until.Unix()), use)
	}
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

// firstExpiration returns when the first of some PEM certificates expires.
func firstExpiration(data []byte) (first time.Time, ok bool) {
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return time.Time{}, false
	}
	return slices.MinFunc(certs, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter, true
}

var registerOwnState = sync.OnceFunc(func() { legacyregistry.CustomMustRegister(&ownState{}) })
