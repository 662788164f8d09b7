package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

const (
	// minLifetime is how long the announcement of a server that ended without a
	// word lasts at least.
	minLifetime = 15 * time.Second
	// renewals is how often an announcement is renewed in its lifetime.
	renewals = 6
	// rpcTimeout bounds a call of etcd; the next attempt may go to another member.
	rpcTimeout = 2 * time.Second
	// retryAfter is how long after one that failed the next attempt is made.
	retryAfter = 500 * time.Millisecond
	// remembered is how many times of taking in registrations are told.
	remembered = 32
	// maxSkipped and maxReason bound what is told of webhooks that are not called.
	maxSkipped, maxReason = 100, 300
)

// Options are what an Announcer needs.
type Options struct {
	// Etcd is where the servers announce themselves; Prefix begins the keys.
	Etcd   *clientv3.Client
	Prefix string
	// ID names the server; no other one may ever have the same. Address is where
	// clients reach it, for people.
	ID, Address string
	// MaxStaleness is how long after the beginning of a read requests may be judged
	// by it.
	MaxStaleness time.Duration
	// Off are the resources of registrations that the server judges no request by,
	// whatever is stored.
	Off []string
}

// announcement is what a server says of itself.
type announcement struct {
	Address string `json:"address"`
	// Adopted tells when registrations were taken into use, oldest first.
	Adopted []adoption `json:"adopted,omitempty"`
	// Skipped are the webhooks that the server does not call.
	Skipped []Skipped `json:"skipped,omitempty"`
	// Off are the resources of which the server enforces nothing.
	Off []string `json:"off,omitempty"`
}

// Skipped is a webhook that a server does not call, because the webhook's server
// could not be reached several times in a row.
type Skipped struct {
	// Registration is the name of the state of the webhook's registration.
	Registration string `json:"registration"`
	// Webhook is its name, and Target the HOST:PORT of its server.
	Webhook string `json:"webhook"`
	Target  string `json:"target"`
	// Since is when the first call failed, and Reason how a later one did.
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// adoption is the moment from which requests were judged by the registrations of
// a revision.
type adoption struct {
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"`
}

// Announcer announces a server. It is safe for concurrent use.
type Announcer struct {
	options  Options
	key      string
	lifetime time.Duration
	changed  chan struct{}

	// mu guards what follows; etcd is not called while it is held.
	mu struct {
		sync.Mutex
		adopted []adoption
		skipped []Skipped
		// news counts the changes of what is to be told.
		news int64
		// until is how long the announcement is sure to last.
		until time.Time
	}
	// lease and told, which is the news that are in etcd, belong to Announce and then
	// to Run.
	lease clientv3.LeaseID
	told  int64
}

// NewAnnouncer returns an Announcer that has announced nothing.
func NewAnnouncer(o Options) *Announcer {
	return &Announcer{
		options: o, key: path.Join(o.Prefix, o.ID),
		lifetime: max(minLifetime, 3*o.MaxStaleness), changed: make(chan struct{}, 1),
	}
}

// Announce makes the server known. It must have returned before the first read
// that requests may be judged by begins.
func (a *Announcer) Announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	if err := a.grant(ctx); err != nil {
		return fmt.Errorf("announcing this server in etcd: %w", err)
	}
	return nil
}

// Run keeps the announcement up to date until ctx ends, and then withdraws it.
func (a *Announcer) Run(ctx context.Context) {
	period := a.lifetime / renewals
	timer := time.NewTimer(period)
	defer timer.Stop()
	for {
		step, renewing := a.tell, false
		select {
		case <-ctx.Done():
			a.withdraw(context.WithoutCancel(ctx))
			return
		case <-a.changed:
		case <-timer.C:
			step, renewing = a.renew, true
		}
		attempt, cancel := context.WithTimeout(ctx, rpcTimeout)
		err := step(attempt)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			// It was away too long, and so are the keys.
			err = a.grant(attempt)
		}
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			klog.V(1).InfoS("Could not announce this server in etcd; will retry", "err", err)
			timer.Reset(retryAfter)
		case err == nil && renewing:
			timer.Reset(period)
		}
	}
}

// Observe takes in the outcome of a read of registrations. It does no I/O.
func (a *Announcer) Observe(r snapshot.Read) {
	if r.Err != nil || !r.Changed {
		return
	}
	revision, err := strconv.ParseInt(r.Snapshot.Revision, 10, 64)
	if err != nil {
		return
	}
	a.mu.Lock()
	a.mu.adopted = append(a.mu.adopted, adoption{revision, r.Begin.Add(r.Latency).UTC()})
	if extra := len(a.mu.adopted) - remembered; extra > 0 {
		a.mu.adopted = append([]adoption(nil), a.mu.adopted[extra:]...)
	}
	a.mu.news++
	a.mu.Unlock()
	a.poke()
}

// Skip takes in which webhooks the server does not call now. The announcement gives the
// reason once for as long as that lasts. It does no I/O.
func (a *Announcer) Skip(now []Skipped) {
	now = slices.Clone(now[:min(len(now), maxSkipped)])
	for i := range now {
		if r := now[i].Reason; len(r) > maxReason {
			now[i].Reason = strings.ToValidUTF8(r[:maxReason], "") + "..."
		}
	}
	a.mu.Lock()
	same := slices.EqualFunc(a.mu.skipped, now, func(x, y Skipped) bool {
		return x.Registration == y.Registration && x.Webhook == y.Webhook && x.Target == y.Target && x.Since.Equal(y.Since)
	})
	if !same {
		a.mu.skipped = now
		a.mu.news++
	}
	a.mu.Unlock()
	if !same {
		a.poke()
	}
}

func (a *Announcer) poke() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Covers returns an error unless the announcement is sure to last as long as a
// request may be judged by a read that began at the given time.
func (a *Announcer) Covers(begin time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.until.Before(begin.Add(a.options.MaxStaleness)) {
		return errors.New("could not renew the announcement of this server in etcd, so other servers might not wait for it")
	}
	return nil
}

// Alone tells whether no other server is announced. One that starts now reads what is
// stored after it was announced.
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
	response, err := a.options.Etcd.Grant(ctx, int64(a.lifetime/time.Second))
	if err != nil {
		return err
	}
	a.lease, a.told = response.ID, -1
	if err := a.tell(ctx); err != nil {
		return err
	}
	a.last(began)
	return nil
}

// tell writes what is to be known, and renews the lease if that is known already.
func (a *Announcer) tell(ctx context.Context) error {
	a.mu.Lock()
	said := announcement{Address: a.options.Address, Adopted: slices.Clone(a.mu.adopted), Skipped: a.mu.skipped, Off: a.options.Off}
	news := a.mu.news
	a.mu.Unlock()
	if news == a.told {
		return a.renewLease(ctx)
	}
	value, err := json.Marshal(said)
	if err != nil {
		return err
	}
	if _, err := a.options.Etcd.Put(ctx, a.key, string(value), clientv3.WithLease(a.lease)); err != nil {
		return err
	}
	a.told = news
	return nil
}

// renew renews the lease, and tells what could not be told before.
func (a *Announcer) renew(ctx context.Context) error {
	if err := a.renewLease(ctx); err != nil {
		return err
	}
	a.mu.Lock()
	behind := a.mu.news != a.told
	a.mu.Unlock()
	if behind {
		return a.tell(ctx)
	}
	return nil
}

func (a *Announcer) renewLease(ctx context.Context) error {
	began := time.Now()
	if _, err := a.options.Etcd.KeepAliveOnce(ctx, a.lease); err != nil {
		return err
	}
	a.last(began)
	return nil
}

// last notes that the lease was renewed after the given time.
func (a *Announcer) last(began time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.until = began.Add(a.lifetime)
}

func (a *Announcer) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	if _, err := a.options.Etcd.Revoke(ctx, a.lease); err != nil {
		klog.V(1).InfoS("Could not delete the announcement of this server from etcd; it will expire", "err", err)
	}
}

// newest is the last revision that was taken in, 0 if none was.
func (s *announcement) newest() int64 {
	if len(s.Adopted) == 0 {
		return 0
	}
	return s.Adopted[len(s.Adopted)-1].Revision
}

// since is when a revision was taken in at the latest, nil when it was not.
func (s *announcement) since(revision int64) *time.Time {
	for i := range s.Adopted {
		if s.Adopted[i].Revision >= revision {
			return &s.Adopted[i].At
		}
	}
	return nil
}
