package server

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/internal/server/storage/etcd"
)

// measured is the etcd that /metrics is about: that of the server of this process that started last.
// Nothing is measured until somebody reads /metrics.
var measured atomic.Pointer[database]

// measure has /metrics show the size of the database, as kube-apiserver does, and the free space of
// the disk of an embedded etcd.
func (db *database) measure() {
	measured.Store(db)
	metrics.SetStorageMonitorGetter(func() ([]metrics.Monitor, error) {
		if now := measured.Load(); now != nil {
			return []metrics.Monitor{now}, nil
		}
		return nil, nil
	})
	registerFree()
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

// free is the metric of the free space.
type free struct {
	componentmetrics.BaseStableCollector
}

var freeBytes = componentmetrics.NewDesc("gatehouse_storage_free_bytes", "Bytes that are free on the disk of the embedded etcd. The server refuses writes when they are fewer than --min-free-disk.", nil, nil, componentmetrics.ALPHA, "")

// DescribeWithStability implements StableCollector.
func (*free) DescribeWithStability(to chan<- *componentmetrics.Desc) { to <- freeBytes }

// CollectWithStability implements StableCollector.
func (*free) CollectWithStability(to chan<- componentmetrics.Metric) {
	db := measured.Load()
	if db == nil || db.embedded == nil {
		return
	}
	// What cannot be read is not shown.
	if n, err := etcd.FreeSpace(db.dir); err == nil {
		to <- componentmetrics.NewLazyConstMetric(freeBytes, componentmetrics.GaugeValue, float64(n))
	}
}

var registerFree = sync.OnceFunc(func() { legacyregistry.CustomMustRegister(&free{}) })
