package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/admission/lint"
)

// connectTimeout bounds one connection to a webhook, and connectAtOnce how many are made at a
// time.
const (
	connectTimeout = 5 * time.Second
	connectAtOnce  = 16
)

// present connects to each webhook, and returns the certificates that they present.
func present(ctx context.Context, w *lint.World) map[lint.Address]lint.Served {
	served := map[lint.Address]lint.Served{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(connectAtOnce)
	for address, service := range w.Addresses() {
		group.Go(func() error {
			one := connect(ctx, w, address, service)
			mu.Lock()
			defer mu.Unlock()
			served[address] = one
			return nil
		})
	}
	// The functions return no error.
	_ = group.Wait()
	return served
}

// connect returns the certificate of one webhook. The name of a service is known in the
// cluster only; elsewhere its cluster IP may be reachable.
func connect(ctx context.Context, w *lint.World, address lint.Address, service *types.NamespacedName) lint.Served {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{
		ServerName: address.Host,
		// The certificate is only looked at, and nothing is sent. A rule judges it.
		InsecureSkipVerify: true,
	}}
	hosts := []string{address.Host}
	if service != nil {
		if s := w.Services[*service]; s != nil && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != "None" {
			hosts = []string{s.Spec.ClusterIP, address.Host}
		}
	}
	var failures []error
	for _, host := range hosts {
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(address.Port)))
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
