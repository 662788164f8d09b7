package offline

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
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
)

// connectTimeout bounds one connection to a webhook, and connectAtOnce the number of concurrent connections.
const (
	connectTimeout = 5 * time.Second
	connectAtOnce  = 16
)

// Connector connects to webhooks to read their certificates. It sends no requests.
type Connector struct {
	World *lint.Input
	// Elsewhere, if set, returns the address of a service that runs outside of the cluster.
	Elsewhere func(namespace, name string, port int32) (address string, ok bool)
	// Inside reports whether this process runs in the cluster, where the cluster IPs of services are reachable.
	Inside bool
}

// InCluster reports whether this process runs in the cluster of a client configuration; false for nil.
func InCluster(config *rest.Config) bool {
	own, err := rest.InClusterConfig()
	return err == nil && config != nil && own.Host == config.Host
}

// Present connects to webhooks, and returns the certificates that they present. progress, which may be nil, is called
// with the number of webhooks done and their total, never concurrently.
func (c *Connector) Present(ctx context.Context, addresses map[lint.Address]*types.NamespacedName, progress func(done, of int)) map[lint.Address]lint.Served {
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
			if progress != nil {
				progress(len(served), len(addresses))
			}
			return nil
		})
	}
	// The functions return no error.
	_ = group.Wait()
	return served
}

// connect returns the certificate of one webhook.
func (c *Connector) connect(ctx context.Context, address lint.Address, service *types.NamespacedName) lint.Served {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{
		ServerName: address.Host,
		// The certificate is only read, and nothing is sent. A lint rule verifies it.
		InsecureSkipVerify: true,
	}}
	targets, err := c.targets(address, service)
	if err != nil {
		return lint.Served{Err: err, Untried: true}
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

// targets returns the addresses to dial for a webhook, in order. The name and the cluster IP of a service are valid in
// the cluster only: elsewhere, another machine may have that IP.
func (c *Connector) targets(address lint.Address, service *types.NamespacedName) ([]string, error) {
	if service == nil {
		return []string{address.String()}, nil
	}
	if c.Elsewhere != nil {
		if target, ok := c.Elsewhere(service.Namespace, service.Name, int32(address.Port)); ok {
			return []string{target}, nil
		}
	}
	if !c.Inside {
		return nil, fmt.Errorf("service %s is reachable in its cluster only: run the command in a pod, or name the address of the service with --service-address", service)
	}
	targets := []string{address.String()}
	if s := c.World.Services[*service]; s != nil && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != "None" {
		targets = []string{net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(address.Port)), address.String()}
	}
	return targets, nil
}
