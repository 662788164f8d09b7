package server

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/places"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/election"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/kubernetesservice"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
)

// replicaSettle is how long other replicas may take to hear of a new kind, or that a
// namespace is being deleted.
const replicaSettle = 2 * time.Second

// settle returns how long to wait for other replicas; 0 when there are none.
func (a *admitter) settle(ctx context.Context) time.Duration {
	if alone, err := a.announcer.Alone(ctx); err != nil || !alone {
		return replicaSettle
	}
	return 0
}

// leaseOfControllers is the name, in kube-system, of the Lease of the server that runs
// the controllers.
const leaseOfControllers = "gatehouse-controllers"

// controllerParts are what controllers work with.
type controllerParts struct {
	settings *settings
	serving  *serving
	self     *loopback
	admitter *admitter
	stores   *stores
	api      *api
	kinds    []catalog.Group
	etcd     etcdKeys
}

// newControllers sets up the controllers, which work on objects outside of requests
// once the server is ready.
func newControllers(p controllerParts) (*controllers.Controllers, error) {
	s := p.settings
	where := places.Places{Root: s.EtcdPrefix, Static: p.api.static, Storage: p.stores.places}
	builtins := where.Builtin()
	o := controllers.Options{
		Selection: s.Controllers,
		Loopback:  p.self.config, Informers: p.self.informers, RBAC: s.authorizes("RBAC"),
		Etcd: p.etcd, Prefix: where.Prefixes(p.api.aggregator.Remote),
		Namespaces: namespaces.Options{
			Collections: func() []namespaces.Collection {
				return append(slices.Clip(builtins), where.Custom(p.api.custom.Versions())...)
			},
			Remote: p.api.aggregator.Remote,
			Etcd:   p.etcd,
		},
		CheckTypes: p.api.types.Run,
		FakeNodes:  s.FakeNodes,
		Fences:     p.admitter.fences,
		RootCA:     p.serving.ca,
		CAFile:     p.serving.pki.CAFile, CAKeyFile: p.serving.pki.CAKeyFile,
		TokenKey: p.serving.tokens.Key,
	}
	o.Namespaces.Creating = p.admitter.creations.UnderWay
	if !s.sharesEtcd() {
		return controllers.New(o)
	}
	o.Namespaces.Settle = p.admitter.settle
	leases, err := election.Stored(catalog.Find(p.kinds, coordinationv1.SchemeGroupVersion.WithResource("leases")))
	if err != nil {
		return nil, err
	}
	o.Election, err = election.New(election.Options{
		Leases: leases, Namespace: metav1.NamespaceSystem, Name: leaseOfControllers, Identity: replicaID(),
	})
	if err != nil {
		return nil, err
	}
	return controllers.New(o)
}

// etcdKeys reads and watches keys of etcd.
type etcdKeys interface {
	clientv3.KV
	clientv3.Watcher
}

// newPublisher sets up the service kubernetes in the namespace default.
func newPublisher(s *settings, v *serving, self *loopback, db *database) (*kubernetesservice.Publisher, error) {
	return kubernetesservice.New(kubernetesservice.Options{
		Loopback: self.config, Services: self.informers.Core().V1().Services(),
		Etcd: db.client.Client, Prefix: s.ownKey("endpoints"), Server: replicaID(),
		Address: v.advertised, Port: v.port, Range: s.serviceRange,
	})
}
