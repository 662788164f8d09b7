package before

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/internal/lint"
	"github.com/gatehouse-dev/gatehouse/internal/server/judging/webhookservices"
)

// connectTimeout bounds one connection to a webhook, and connectAtOnce how many are made at a
// time.
const (
	connectTimeout = 5 * time.Second
	connectAtOnce  = 16
)

// connector connects to webhooks.
type connector struct {
	world *lint.World
	// addresses are those of services outside of the cluster. inside reports whether this
	// process runs in the cluster, where the cluster IPs of services are reachable.
	addresses webhookservices.Addresses
	inside    bool
}

// present connects to webhooks, and returns the certificates that they present. progress is called
// with how many are done, and of how many.
func (c *connector) present(ctx context.Context, addresses map[lint.Address]*types.NamespacedName, progress func(done, of int)) map[lint.Address]lint.Served {
	served := map[lint.Address]lint.Served{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(connectAtOnce)
	for address, service := range addresses {
		group.Go(func() error {
			one := c.connect(ctx, address, service)
			mu.Lock()
			defer mu.Unlock()
			served[address] = one
			progress(len(served), len(addresses))
			return nil
		})
	}
	// The functions return no error.
	_ = group.Wait()
	return served
}

// connect returns the certificate of one webhook.
func (c *connector) connect(ctx context.Context, address lint.Address, service *types.NamespacedName) lint.Served {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{
		ServerName: address.Host,
		// The certificate is only looked at, and nothing is sent. A rule judges it.
		InsecureSkipVerify: true,
	}}
	targets, err := c.targets(address, service)
	if err != nil {
		return lint.Served{Err: err}
	}
	var failures []error
	for _, target := range targets {
		conn, err := dialer.DialContext(ctx, "tcp", target)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		chain := conn.(*tls.Conn).ConnectionState().PeerCertificates
		_ = conn.Close()
		return lint.Served{Chain: chain}
	}
	return lint.Served{Err: errors.Join(failures...)}
}

// targets returns where a webhook is dialled, in order. The name and the cluster IP of a
// service mean something in the cluster only: elsewhere, another machine may have that IP.
func (c *connector) targets(address lint.Address, service *types.NamespacedName) ([]string, error) {
	if service == nil {
		return []string{address.String()}, nil
	}
	if target, ok := c.addresses.Of(service.Namespace, service.Name, int32(address.Port)); ok {
		return []string{target}, nil
	}
	if !c.inside {
		return nil, fmt.Errorf("service %s is reachable in its cluster only: run the command in a pod, or name the address of the service with --service-address", service)
	}
	targets := []string{address.String()}
	if s := c.world.Services[*service]; s != nil && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != "None" {
		targets = []string{net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(address.Port)), address.String()}
	}
	return targets, nil
}
