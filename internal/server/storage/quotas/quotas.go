package quotas

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/lru"
)

const (
	// maxKnown bounds the cached fences.
	maxKnown = 4096
	// patience bounds how long writes and counts of one server wait for each other.
	patience = time.Second
)

// Fences are the fences of namespaces, as cached by one server. They are made by New, and safe for
// concurrent use.
type Fences struct {
	etcd clientv3.KV
	// prefix is the prefix of fences in etcd, and namespaces the prefix of namespaces.
	prefix, namespaces string

	mu sync.Mutex
	// known caches the revisions of fences.
	known *lru.Cache
	// busy are the namespaces with charged writes or a running count.
	busy map[string]*traffic
}

// traffic counts the charged writes and the counts of quotas that run in a namespace.
type traffic struct {
	charged, counting int
	// changed is closed when either number decreases.
	changed chan struct{}
}

// New returns fences that are stored in etcd below root, where no resource is stored.
func New(etcd clientv3.KV, root string) *Fences {
	return &Fences{
		etcd: etcd, prefix: path.Join(root, "gatehouse", "quotas") + "/", namespaces: path.Join(root, "namespaces") + "/",
		known: lru.New(maxKnown), busy: map[string]*traffic{},
	}
}

// charge records how a request was charged.
type charge struct {
	mu        sync.Mutex
	namespace string
	// fence is the revision of the fence before the charge.
	fence int64
	// again charges the request again; nil when it was not charged.
	again func() error
	leave func()
}

type chargeKey struct{}

func chargeOf(ctx context.Context) *charge {
	c, _ := ctx.Value(chargeKey{}).(*charge)
	return c
}

// Handler returns a handler whose writes in namespaces can be charged. It needs a RequestInfo in the
// context.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || !info.IsResourceRequest || info.Namespace == "" || (info.Verb != "create" && info.Verb != "update" && info.Verb != "patch") {
			next.ServeHTTP(w, req)
			return
		}
		c := &charge{}
		defer c.end()
		next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), chargeKey{}, c)))
	})
}

// end is called when the request makes no more writes.
func (c *charge) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// Charging returns a plugin that charges quotas as inner does, and records the charges.
func (f *Fences) Charging(inner admission.ValidationInterface, limits Limits) admission.ValidationInterface {
	return &charging{inner, f, limits}
}

type charging struct {
	admission.ValidationInterface
	fences *Fences
	limits Limits
}

// Validate implements admission.ValidationInterface. It returns the errors of inner and of etcd.
func (p *charging) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	c, namespace := chargeOf(ctx), a.GetNamespace()
	status := a.GetResource().Resource == "resourcequotas" && a.GetSubresource() != ""
	if namespace == "" || status {
		return p.ValidationInterface.Validate(ctx, a, o)
	}
	limited, err := p.limits.hold(ctx, namespace)
	if err != nil {
		return err
	}
	if c == nil || a.IsDryRun() || !limited {
		return p.ValidationInterface.Validate(ctx, a, o)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leave == nil {
		c.leave = p.fences.enter(ctx, namespace)
	}
	fence, err := p.fences.read(ctx, namespace)
	if err != nil {
		return err
	}
	if err := p.ValidationInterface.Validate(ctx, a, o); err != nil {
		return err
	}
	c.namespace, c.fence = namespace, fence
	c.again = func() error { return p.ValidationInterface.Validate(ctx, a, o) }
	return nil
}

// enter waits while a count runs, for the time of patience at most. The caller calls leave when
// the write is over.
func (f *Fences) enter(ctx context.Context, namespace string) (leave func()) {
	f.await(ctx, namespace, func(t *traffic) bool { return t.counting == 0 }, func(t *traffic) { t.charged++ })
	return func() { f.less(namespace, func(t *traffic) { t.charged-- }) }
}

// Pause keeps writes of this server from being charged in a namespace until resume is called,
// and returns when no such write is running, or after the time of patience.
func (f *Fences) Pause(ctx context.Context, namespace string) (resume func()) {
	f.mu.Lock()
	f.at(namespace).counting++
	f.mu.Unlock()
	f.await(ctx, namespace, func(t *traffic) bool { return t.charged == 0 }, func(*traffic) {})
	return func() { f.less(namespace, func(t *traffic) { t.counting-- }) }
}

// at returns the traffic of a namespace. The lock is held.
func (f *Fences) at(namespace string) *traffic {
	t := f.busy[namespace]
	if t == nil {
		t = &traffic{changed: make(chan struct{})}
		f.busy[namespace] = t
	}
	return t
}

// await waits until holds reports true, or for the time of patience, and then calls do.
func (f *Fences) await(ctx context.Context, namespace string, holds func(*traffic) bool, do func(*traffic)) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for late := false; ; {
		f.mu.Lock()
		t := f.at(namespace)
		if late || holds(t) {
			do(t)
			f.mu.Unlock()
			return
		}
		changed := t.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			late = true
		case <-ctx.Done():
			late = true
		}
	}
}

// less calls do, which lowers a number of the traffic, and wakes the callers that wait.
func (f *Fences) less(namespace string, do func(*traffic)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.at(namespace)
	do(t)
	close(t.changed)
	t.changed = make(chan struct{})
	if t.charged == 0 && t.counting == 0 {
		delete(f.busy, namespace)
	}
}

// read returns the revision of a fence, 0 if there is none yet. The revision may be old: if the
// fence has moved, the transaction fails, and the fence is read again.
func (f *Fences) read(ctx context.Context, namespace string) (int64, error) {
	if known, ok := f.known.Get(namespace); ok {
		return known.(int64), nil
	}
	found, err := f.etcd.Get(ctx, f.prefix+namespace, clientv3.WithKeysOnly())
	if err != nil {
		return 0, fmt.Errorf("reading the fence of the quotas of namespace %s: %w", namespace, err)
	}
	var revision int64
	if len(found.Kvs) > 0 {
		revision = found.Kvs[0].ModRevision
	}
	f.known.Add(namespace, revision)
	return revision, nil
}

// Move moves the fence of a namespace: no write that was charged before is stored from now on.
func (f *Fences) Move(ctx context.Context, namespace string) error {
	moved, err := f.etcd.Put(ctx, f.prefix+namespace, "")
	if err != nil {
		return fmt.Errorf("moving the fence of the quotas of namespace %s: %w", namespace, err)
	}
	f.known.Add(namespace, moved.Header.Revision)
	return nil
}

// Namespaces returns the namespaces that have a fence, in order: at most limit namespaces that sort
// after a name. An empty name begins with the first.
func (f *Fences) Namespaces(ctx context.Context, after string, limit int64) ([]string, error) {
	from := f.prefix + after
	if after != "" {
		from += "\x00"
	}
	found, err := f.etcd.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(f.prefix)), clientv3.WithKeysOnly(), clientv3.WithLimit(limit))
	if err != nil {
		return nil, fmt.Errorf("reading which namespaces have a fence: %w", err)
	}
	names := make([]string, len(found.Kvs))
	for i, kv := range found.Kvs {
		names[i] = strings.TrimPrefix(string(kv.Key), f.prefix)
	}
	return names, nil
}

// Forget deletes the fence of a namespace unless the namespace exists. Writes that were charged
// before are not stored any more, because their namespace is deleted. A new namespace of the same
// name begins without a fence. A server that has cached the old fence only has to charge its next
// write again.
func (f *Fences) Forget(ctx context.Context, namespace string) error {
	_, err := f.etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(f.namespaces+namespace), "=", 0)).
		Then(clientv3.OpDelete(f.prefix + namespace)).Commit()
	if err != nil {
		return fmt.Errorf("deleting the fence of the quotas of namespace %s: %w", namespace, err)
	}
	return nil
}

// KV returns an etcd client that works like inner, but stores the write of a charged request only
// if the fence has not moved since the charge; otherwise it charges the request again first. The
// errors of this charge are errors of the plugin.
func (f *Fences) KV(inner clientv3.KV) clientv3.KV { return kv{inner, f} }

type kv struct {
	clientv3.KV
	fences *Fences
}

// Txn implements clientv3.KV.
func (k kv) Txn(ctx context.Context) clientv3.Txn {
	c := chargeOf(ctx)
	if c == nil || !c.charged() {
		return k.KV.Txn(ctx)
	}
	return &txn{kv: k, ctx: ctx, charge: c}
}

func (c *charge) charged() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.again != nil
}

// txn is a transaction that also compares the fence.
type txn struct {
	kv     kv
	ctx    context.Context
	charge *charge
	cmps   []clientv3.Cmp
	thens  []clientv3.Op
	elses  []clientv3.Op
}

// If implements clientv3.Txn.
func (t *txn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.cmps = append(t.cmps, cs...)
	return t
}

// Then implements clientv3.Txn.
func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.thens = append(t.thens, ops...)
	return t
}

// Else implements clientv3.Txn.
func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.elses = append(t.elses, ops...)
	return t
}

// Commit implements clientv3.Txn.
func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	c, f := t.charge, t.kv.fences
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		fence := f.prefix + c.namespace
		response, err := t.kv.KV.Txn(t.ctx).
			If(append(t.cmps[:len(t.cmps):len(t.cmps)], clientv3.Compare(clientv3.ModRevision(fence), "=", c.fence))...).
			Then(t.thens...).
			Else(append(t.elses[:len(t.elses):len(t.elses)], clientv3.OpGet(fence, clientv3.WithKeysOnly()))...).
			Commit()
		if err != nil {
			return nil, err
		}
		if response.Succeeded {
			c.again = nil
			if c.leave != nil {
				c.leave()
				c.leave = nil
			}
			return response, nil
		}
		last := len(response.Responses) - 1
		var now int64
		if kvs := response.Responses[last].GetResponseRange().Kvs; len(kvs) > 0 {
			now = kvs[0].ModRevision
		}
		response.Responses = response.Responses[:last]
		if now == c.fence {
			return response, nil
		}
		f.known.Add(c.namespace, now)
		c.fence = now
		if err := c.again(); err != nil {
			return nil, err
		}
	}
}

// Client returns a client that works like raw, but stores charged writes through guarded, whose KV
// comes from KV. Other writes go through raw at no extra cost.
func Client(raw kubernetes.Interface, guarded *clientv3.Client) kubernetes.Interface {
	return client{raw, &kubernetes.Client{Client: guarded}}
}

type client struct {
	kubernetes.Interface
	guarded kubernetes.Interface
}

// OptimisticPut implements kubernetes.Interface.
func (c client) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, o kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	if charge := chargeOf(ctx); charge != nil && charge.charged() {
		return c.guarded.OptimisticPut(ctx, key, value, expected, o)
	}
	return c.Interface.OptimisticPut(ctx, key, value, expected, o)
}
