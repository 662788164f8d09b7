package server

import (
	"context"
	"fmt"
	"net"
	"time"

	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/server/kubernetesservice"
)

// publish sets up the service kubernetes in the namespace default.
func (a *assembly) publish(etcd *etcdkubernetes.Client) error {
	address, err := a.options.advertised()
	if err != nil {
		klog.ErrorS(err, "The service kubernetes has no endpoint for this server: set --advertise-address")
	}
	a.publisher, err = kubernetesservice.New(kubernetesservice.Options{
		Loopback: a.loopback, Services: a.informers.Core().V1().Services(),
		Etcd: etcd.Client, Prefix: a.options.ownKey("endpoints"), Server: replicaID(),
		Address: address, Port: a.port, Range: a.options.serviceRange,
	})
	if err != nil {
		return err
	}
	a.controllers = append(a.controllers, a.publisher.Run)
	return a.generic.AddPreShutdownHook("stop-kubernetes-service-controller", func() error {
		a.publisher.Withdraw()
		return nil
	})
}

// allocatorStart is how long the allocator of cluster IPs may take until it has seen the
// ServiceCIDR. Before, it refuses every address as invalid.
const allocatorStart = 10 * time.Second

// publishService makes the service and adds this server to it. What is refused, or
// cannot be done now, the publisher tries again.
func (a *assembly) publishService(ctx context.Context) error {
	var err error
	_ = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, allocatorStart, true, func(ctx context.Context) (bool, error) {
		err = a.publisher.Publish(ctx)
		return !apierrors.IsInvalid(err), nil
	})
	if err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "The service kubernetes cannot be made; the server starts without it and tries again")
	}
	return nil
}

// reachedAt lists the addresses at which pods reach this server: that of the service,
// and its own.
func (o *settings) reachedAt() []string {
	list := []string{o.serviceIP.String()}
	if ip, err := o.advertised(); err == nil {
		list = append(list, ip.String())
	}
	return list
}

// advertised returns the address under which others reach this server. The error
// says that there is none.
func (o *settings) advertised() (net.IP, error) {
	if o.AdvertiseAddress != "" {
		return net.ParseIP(o.AdvertiseAddress), nil
	}
	ip, err := utilnet.ResolveBindAddress(net.ParseIP(o.BindAddress))
	if err != nil {
		return nil, fmt.Errorf("address of this host: %w", err)
	}
	return ip, nil
}
