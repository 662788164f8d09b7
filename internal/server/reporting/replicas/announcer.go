package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/announce"
)

const (
	// rpcTimeout bounds a call of etcd; the next attempt may go to another member of etcd.
	rpcTimeout = 2 * time.Second
	// retryAfter is the time between a failed attempt and the next one.
	retryAfter = 500 * time.Millisecond
)

// Options are the inputs of an Announcer.
type Options struct {
	// Etcd is where the servers announce themselves; Prefix begins the keys.
	Etcd   *clientv3.Client
	Prefix string
	// ID identifies the server; no other server may ever have the same ID. Address is where clients
	// reach the server, for people.
	ID, Address string
	// MaxStaleness is how long after the beginning of a read the server may use the registrations
	// of that read.
	MaxStaleness time.Duration
	// Off are the resources of registrations that the server never uses, whatever is stored.
	Off []string
}

// Announcer announces a server. It is safe for concurrent use.
type Announcer struct {
	*announce.Log
	options Options
	key     string
	// lease is the lease of the key. told is the number of the latest news in etcd. Both belong to
	// Announce and then to Run.
	lease clientv3.LeaseID
	told  int64
	// encryption is the hash of the EncryptionConfiguration that the server uses, and reencrypts
	// receives a value when it has changed.
	encryption atomic.Pointer[string]
	reencrypts chan struct{}
	// full reports whether the last attempt found that the database of etcd is full.
	full atomic.Bool
}

// NewAnnouncer returns an Announcer that has announced nothing.
func NewAnnouncer(o Options) *Announcer {
	return &Announcer{Log: announce.NewLog(o.Address, o.MaxStaleness, o.Off), options: o, key: path.Join(o.Prefix, o.ID), reencrypts: make(chan struct{}, 1)}
}

// Announce announces the server to others. It must have returned before the first read of
// registrations begins. When the database of etcd is full, Announce returns nil, and Run announces
// the server when there is room.
func (a *Announcer) Announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	err := a.noting(a.grant(ctx))
	switch {
	case a.full.Load():
		klog.ErrorS(err, "Cannot announce this server in etcd, whose database is full; requests are decided without the announcement")
	case err != nil:
		return fmt.Errorf("announcing this server in etcd: %w", err)
	}
	return nil
}

// noting records whether an attempt failed because the database is full.
func (a *Announcer) noting(err error) error {
	a.full.Store(errors.Is(err, rpctypes.ErrNoSpace))
	return err
}

// Covers returns an error unless the announcement is sure to last as long as admission may use a
// read that began at the given time. While the database of etcd is full, no server can write a
// registration, or delete one, since each such write moves a mark. No server then has to wait for
// this one.
func (a *Announcer) Covers(begin time.Time) error {
	if err := a.Log.Covers(begin); err != nil && !a.full.Load() {
		return err
	}
	return nil
}

// Run keeps the announcement up to date until ctx ends, and then withdraws it.
func (a *Announcer) Run(ctx context.Context) {
	period := a.Lifetime() / announce.Renewals
	timer := time.NewTimer(period)
	defer timer.Stop()
	if a.full.Load() {
		timer.Reset(retryAfter)
	}
	for {
		step, renewing := a.tell, false
		select {
		case <-ctx.Done():
			a.withdraw(context.WithoutCancel(ctx))
			return
		case <-a.Changed():
		case <-a.reencrypts:
			// The announcement in etcd has the old hash.
			a.told = -1
		case <-timer.C:
			step, renewing = a.renew, true
		}
		attempt, cancel := context.WithTimeout(ctx, rpcTimeout)
		err := step(attempt)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			// The lease has expired, and its key is deleted.
			err = a.grant(attempt)
		}
		cancel()
		a.noting(err)
		switch {
		case err != nil && ctx.Err() == nil:
			klog.V(1).InfoS("Could not announce this server in etcd; will retry", "err", err)
			timer.Reset(retryAfter)
		case err == nil && renewing:
			timer.Reset(period)
		}
	}
}

// Alone reports whether no other server is announced. A server that starts later reads the
// registrations only after its announcement.
func (a *Announcer) Alone(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	found, err := a.options.Etcd.Get(ctx, a.options.Prefix+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return false, fmt.Errorf("reading from etcd which servers there are: %w", err)
	}
	return !slices.ContainsFunc(found.Kvs, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) != a.key }), nil
}

// grant gets a lease and announces the server with it.
func (a *Announcer) grant(ctx context.Context) error {
	began := time.Now()
	response, err := a.options.Etcd.Grant(ctx, int64(a.Lifetime()/time.Second))
	if err != nil {
		return err
	}
	a.lease, a.told = response.ID, -1
	if err := a.tell(ctx); err != nil {
		return err
	}
	a.Renewed(began)
	return nil
}

// tell writes the current announcement, or only renews the lease if etcd has that announcement
// already.
func (a *Announcer) tell(ctx context.Context) error {
	said, news := a.Current()
	if news == a.told {
		return a.renewLease(ctx)
	}
	// Servers that are announced through the API read no manifests.
	said.ReadsManifests = true
	value, err := json.Marshal(announced{said, a.encryption.Load()})
	if err != nil {
		return err
	}
	if _, err := a.options.Etcd.Put(ctx, a.key, string(value), clientv3.WithLease(a.lease)); err != nil {
		return err
	}
	a.told = news
	return nil
}

// renew renews the lease, and writes news that could not be written before.
func (a *Announcer) renew(ctx context.Context) error {
	began := time.Now()
	if err := a.renewLease(ctx); err != nil {
		return err
	}
	if a.News() == a.told {
		return nil
	}
	if err := a.tell(ctx); err != nil {
		return err
	}
	a.Renewed(began)
	return nil
}

// renewLease renews the lease. Without an announcement, the lease covers nothing.
func (a *Announcer) renewLease(ctx context.Context) error {
	began := time.Now()
	if _, err := a.options.Etcd.KeepAliveOnce(ctx, a.lease); err != nil {
		return err
	}
	if a.told >= 0 {
		a.Renewed(began)
	}
	return nil
}

func (a *Announcer) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	if _, err := a.options.Etcd.Revoke(ctx, a.lease); err != nil {
		klog.V(1).InfoS("Could not delete the announcement of this server from etcd; it will expire", "err", err)
	}
}
