package kubernetesservice

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// leases implements reconcilers.Leases on keys PREFIX/ADDRESS/SERVER. ListLeases returns an
// address as long as at least one server has it.
type leases struct {
	ctx    context.Context
	etcd   Etcd
	prefix string
	server string
	ttl    time.Duration
}

// rpcTimeout is the timeout of etcd for one step.
const rpcTimeout = 5 * time.Second

func (l leases) key(ip string) string { return path.Join(l.prefix, ip, l.server) }

// ListLeases returns the addresses in order, each once.
func (l leases) ListLeases() ([]string, error) {
	ctx, cancel := context.WithTimeout(l.ctx, rpcTimeout)
	defer cancel()
	found, err := l.etcd.Get(ctx, l.prefix+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of servers: %w", err)
	}
	var list []string
	for _, kv := range found.Kvs {
		ip, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), l.prefix+"/"), "/")
		list = append(list, ip)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// UpdateLease extends the lease of this server's address by ttl.
func (l leases) UpdateLease(ip string) error {
	ctx, cancel := context.WithTimeout(l.ctx, rpcTimeout)
	defer cancel()
	lease, err := l.etcd.Grant(ctx, int64(l.ttl/time.Second))
	if err == nil {
		// A key belongs to the lease of its last write.
		_, err = l.etcd.Put(ctx, l.key(ip), "", clientv3.WithLease(lease.ID))
	}
	if err != nil {
		return fmt.Errorf("writing the address of this server: %w", err)
	}
	return nil
}

// RemoveLease removes the address of this server.
func (l leases) RemoveLease(ip string) error {
	ctx, cancel := context.WithTimeout(l.ctx, rpcTimeout)
	defer cancel()
	if _, err := l.etcd.Delete(ctx, l.key(ip)); err != nil {
		return fmt.Errorf("removing the address of this server: %w", err)
	}
	return nil
}

// Destroy implements reconcilers.Leases. The client belongs to the caller of New.
func (l leases) Destroy() {}
