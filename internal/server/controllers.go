package server

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/places"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/stores"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/election"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/kubernetesservice"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
)

// leaseOfControllers is the name, in kube-system, of the Lease of the server that runs
// the controllers.
const leaseOfControllers = "gatehouse-controllers"

// controlled is the phase in which the controllers are made. Controllers work on objects outside of
// requests.
type controlled struct {
	*exposed
	// controllers are run once the server is ready.
	controllers *controllers.Controllers
	// publisher adds this server to the service kubernetes.
	publisher *kubernetesservice.Publisher
}

func newControlled(e *exposed) (*controlled, error) {
	c := &controlled{exposed: e}
	var err error
	if c.controllers, err = newControllers(e); err != nil {
		return nil, err
	}
	if c.publisher, err = newPublisher(e); err != nil {
		return nil, err
	}
	return c, nil
}

func newControllers(e *exposed) (*controllers.Controllers, error) {
	s, etcd := e.settings, e.db.client.Client
	where := places.Places{Root: s.EtcdPrefix, Static: e.api.static, Storage: e.places}
	elsewhere := places.Elsewhere(e.api.aggregator.Remote)
	builtins := where.Builtin()
	o := controllers.Options{
		Selection: s.Controllers,
		Loopback:  e.loopback.config, Informers: e.loopback.informers, RBAC: s.authorizes("RBAC"),
		Etcd: etcd, Prefix: where.Prefixes(elsewhere), Values: e.db.values, Custom: where.Read(elsewhere),
		Namespaces: namespaces.Options{
			Collections: func() []namespaces.Collection {
				return append(slices.Clip(builtins), where.Custom(e.api.custom.Versions())...)
			},
			Remote:   e.api.aggregator.Remote,
			Etcd:     etcd,
			Creating: e.admitter.creations.UnderWay,
		},
		CheckTypes: e.api.types.Run,
		FakeNodes:  s.FakeNodes,
		Fences:     e.admitter.fences,
		Rejections: e.admitter.rejected,
		RootCA:     e.serving.roots,
		CAFile:     e.serving.pki().CAFile, CAKeyFile: e.serving.pki().CAKeyFile,
		Tokens: e.serving.tokens.Kept,
	}
	if !s.sharesEtcd() {
		return controllers.New(o)
	}
	o.Namespaces.Settle = e.admitter.settle
	leases, err := election.Stored(stores.Find(e.kinds, coordinationv1.SchemeGroupVersion.WithResource("leases")))
	if err != nil {
		return nil, err
	}
	o.Election = election.New(election.Options{
		Leases: leases, Namespace: metav1.NamespaceSystem, Name: leaseOfControllers, Identity: replicaID(),
	})
	return controllers.New(o)
}

// newPublisher sets up the service kubernetes in the namespace default.
func newPublisher(e *exposed) (*kubernetesservice.Publisher, error) {
	s, v := e.settings, e.serving
	publisher, err := kubernetesservice.New(kubernetesservice.Options{
		Loopback: e.loopback.config, Services: e.loopback.informers.Core().V1().Services(),
		Etcd: e.db.client.Client, Prefix: s.ownKey("endpoints"), Server: replicaID(),
		Address: v.advertised, Port: v.port, Range: s.serviceRange,
	})
	if err != nil || s.EndAtOnce {
		return publisher, err
	}
	return publisher, e.generic.AddPreShutdownHook("stop-kubernetes-service-controller", func() error {
		publisher.Withdraw()
		// New requests are refused from now on. Clients of watches that ended before would connect
		// again at once.
		close(e.stopping)
		return nil
	})
}
