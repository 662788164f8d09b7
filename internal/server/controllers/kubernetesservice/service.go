package kubernetesservice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controlplane/controller/kubernetesservice"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
	netutils "k8s.io/utils/net"
)

const (
	// servicePort is the port of the service, as in every cluster.
	servicePort = 443
	// interval is how often endpoints are compared with the leases, and ttl how long the address of
	// a server that was killed stays. Both are the values of kube-apiserver.
	interval, ttl = 10 * time.Second, 15 * time.Second
	// parting bounds how long removing the address may delay the end of a server.
	parting = 2 * time.Second
)

// Etcd is the part of a client of etcd that a Publisher needs.
type Etcd interface {
	clientv3.KV
	clientv3.Lease
}

// Options are the inputs of a Publisher. All except Address must be set.
type Options struct {
	// Loopback reaches the server itself, as a superuser.
	Loopback *restclient.Config
	// Services is started by the caller.
	Services coreinformers.ServiceInformer
	// Etcd keeps the leases, below Prefix; Server names this server there.
	Etcd           Etcd
	Prefix, Server string
	// Address is the address of this server for clients; nil publishes the service without
	// endpoints. Port is the port on which the server listens.
	Address net.IP
	Port    int
	// Range is the range of cluster IPs. The service has its first address.
	Range *net.IPNet
}

// Publisher maintains the service and this server among its endpoints.
type Publisher struct {
	options    Options
	controller *kubernetesservice.Controller
	// life bounds every request, because upstream's controller has no contexts.
	life context.Context
	end  context.CancelFunc
}

// IP returns the cluster IP of the service: the first address of the range. It returns an error if
// the range is too small.
func IP(serviceRange *net.IPNet) (net.IP, error) {
	ip, err := netutils.GetIndexedIP(serviceRange, 1)
	if err != nil {
		return nil, fmt.Errorf("cluster IP of the service kubernetes: %w", err)
	}
	return ip, nil
}

// New checks the options and publishes nothing.
func New(o Options) (*Publisher, error) {
	ip, err := IP(o.Range)
	if err != nil {
		return nil, err
	}
	p := &Publisher{options: o}
	p.life, p.end = context.WithCancel(context.Background())
	config := restclient.CopyConfig(o.Loopback)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next, p.life} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	reconciler := reconcilers.NewNoneEndpointReconciler()
	if o.Address != nil {
		reconciler = reconcilers.NewLeaseEndpointReconciler(
			reconcilers.NewEndpointsAdapter(client.CoreV1(), client.DiscoveryV1()),
			leases{ctx: p.life, etcd: o.Etcd, prefix: o.Prefix, server: o.Server, ttl: ttl})
		if err := reconciler.ValidateIP(o.Address); err != nil {
			return nil, fmt.Errorf("%s cannot be advertised: %w", o.Address, err)
		}
		reconciler = persistent{reconciler}
	}
	p.controller = kubernetesservice.New(kubernetesservice.Config{
		PublicIP: o.Address, EndpointReconciler: reconciler, EndpointInterval: interval,
		ServiceIP: ip, ServicePort: servicePort, PublicServicePort: o.Port,
	}, client, copied{o.Services})
	return p, nil
}

// others is how often a change of the endpoints is retried when another server was faster: servers
// that start or end together change the same objects.
var others = wait.Backoff{Steps: 8, Duration: 10 * time.Millisecond, Factor: 1.6, Jitter: 0.5}

// persistent retries a change when another server has changed the endpoints meanwhile.
type persistent struct{ reconcilers.EndpointReconciler }

// ReconcileEndpoints implements reconcilers.EndpointReconciler.
func (p persistent) ReconcileEndpoints(service string, ip net.IP, ports []corev1.EndpointPort, reconcilePorts bool) error {
	return retry.OnError(others, overtaken, func() error {
		return p.EndpointReconciler.ReconcileEndpoints(service, ip, ports, reconcilePorts)
	})
}

// RemoveEndpoints implements reconcilers.EndpointReconciler.
func (p persistent) RemoveEndpoints(service string, ip net.IP, ports []corev1.EndpointPort) error {
	return retry.OnError(others, overtaken, func() error {
		return p.EndpointReconciler.RemoveEndpoints(service, ip, ports)
	})
}

// overtaken reports whether an error means that another server was faster.
func overtaken(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// copied returns copies of the informer's services, because upstream's controller writes into the
// objects that it reads. Without copies, it would treat a change that the API refused as made.
type copied struct{ coreinformers.ServiceInformer }

// Lister implements coreinformers.ServiceInformer.
func (c copied) Lister() corelisters.ServiceLister {
	return corelisters.NewServiceLister(copies{c.Informer().GetIndexer()})
}

type copies struct{ cache.Indexer }

// GetByKey implements cache.Store.
func (c copies) GetByKey(key string) (any, bool, error) {
	found, ok, err := c.Indexer.GetByKey(key)
	if ok {
		found = found.(*corev1.Service).DeepCopy()
	}
	return found, ok, err
}

// Publish makes the service, or repairs its ports, and adds this server to its
// endpoints. It waits until the informer has synced. When ctx ends before Publish returns, the
// Publisher cannot be used any more.
func (p *Publisher) Publish(ctx context.Context) error {
	defer context.AfterFunc(ctx, p.end)()
	if !cache.WaitForCacheSync(ctx.Done(), p.options.Services.Informer().HasSynced) {
		return context.Cause(ctx)
	}
	// Only this call compares the ports, too: a server may listen on another port than before.
	return p.controller.UpdateKubernetesService(true)
}

// Run maintains the objects of Publish until ctx ends.
func (p *Publisher) Run(ctx context.Context) { p.controller.Run(ctx.Done()) }

// Withdraw removes this server from the endpoints. The caller calls it once, while the server
// still serves. It takes two seconds at most, and ends Run.
func (p *Publisher) Withdraw() {
	defer p.end()
	timer := time.AfterFunc(parting, p.end)
	defer timer.Stop()
	p.controller.Stop()
}

// bounded ends requests with the life of the Publisher, not with their own contexts.
type bounded struct {
	http.RoundTripper
	life context.Context
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	return b.RoundTripper.RoundTrip(req.WithContext(b.life))
}

// allocatorStart bounds the time until the allocator of cluster IPs has seen the ServiceCIDR.
// Before, the allocator refuses every address as invalid.
const allocatorStart = 10 * time.Second

// Start makes the service and adds this server to it while the server starts. It returns only
// errors of the API. It logs other errors, and Run tries again later.
func (p *Publisher) Start(ctx context.Context) error {
	var err error
	_ = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, allocatorStart, true, func(ctx context.Context) (bool, error) {
		err = p.Publish(ctx)
		return !ofAllocator(err), nil
	})
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return fmt.Errorf("service kubernetes: %w", err)
	}
	if err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "Could not create the service kubernetes; will retry")
	}
	return nil
}

// ofAllocator reports whether an error may mean that the allocator of cluster IPs has not seen the
// ServiceCIDR. The error of a policy that denies has the same reason, but names no such field.
func ofAllocator(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return strings.HasPrefix(c.Field, "spec.clusterIP")
	})
}
