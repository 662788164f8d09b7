package fresh

import (
	"context"
	"fmt"
	"maps"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
)

// namespacePrefix begins the keys of namespaces; the rest of a key is a name.
func namespacePrefix(root string) string { return path.Join(root, "namespaces") + "/" }

// Namespaces is a table of the existing namespaces, as of the last read of a Reader, with changes
// that a watch has delivered since. It has all fields of a namespace except managedFields, which
// admission does not need. Uninitialized namespaces are not in the table. It implements
// admission.Namespaces and is safe for concurrent use.
type Namespaces struct {
	prefix  string
	stored  namespaces.Stored
	watched corelisters.NamespaceLister
	client  kubernetes.Interface
	current atomic.Pointer[table]
	// reading is held by the goroutine that replaces the table.
	reading sync.Mutex
}

// table has the namespaces of one revision. It is immutable.
type table struct {
	// mark is the revision of the mark at the revision of the table, and looked is the time of the
	// last read of all namespaces.
	mark, revision int64
	looked         time.Time
	// keys has the names of all namespaces, including uninitialized ones.
	keys   map[string]bool
	byName map[string]entry
}

type entry struct {
	*corev1.Namespace
	revision int64
}

// NewNamespaces returns a table that is empty before the first read. stored reads a namespace as it
// is in etcd; watched has the namespaces of a watch, and client reads namespaces that are missing.
func NewNamespaces(root string, stored namespaces.Stored, watched corelisters.NamespaceLister, client kubernetes.Interface) *Namespaces {
	n := &Namespaces{prefix: namespacePrefix(root), stored: stored, watched: watched, client: client}
	n.current.Store(&table{mark: -1})
	return n
}

// Cached implements admission.Namespaces. Its result is not older than the last read.
// It returns nil for a namespace that the watch does not have, or that the last read found
// deleted, which happens only shortly after a namespace was created or deleted.
func (n *Namespaces) Cached(name string) *corev1.Namespace {
	watched, err := n.watched.Get(name)
	if err != nil {
		return nil
	}
	t := n.current.Load()
	read := t.byName[name]
	if read.Namespace != nil && read.ResourceVersion == watched.ResourceVersion {
		return watched
	}
	revision, err := strconv.ParseInt(watched.ResourceVersion, 10, 64)
	switch {
	case err != nil:
		return nil
	case revision > t.revision || revision > read.revision && read.Namespace != nil:
		return watched
	}
	// The watch is behind. If the last read has no entry, the watch has not delivered the deletion
	// yet.
	return read.Namespace
}

// Live implements admission.Namespaces.
func (n *Namespaces) Live(ctx context.Context, name string) (*corev1.Namespace, error) {
	return n.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
}

// refresh brings the table up to a mark that was read at the given time or later.
func (n *Namespaces) refresh(ctx context.Context, etcd clientv3.KV, mark int64, now time.Time) error {
	n.reading.Lock()
	defer n.reading.Unlock()
	t := n.current.Load()
	if t.mark == mark && now.Sub(t.looked) < lookAtAll {
		return nil
	}
	changed, err := hedged(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return etcd.Get(ctx, n.prefix, clientv3.WithPrefix(), clientv3.WithMinModRev(t.revision+1))
	})
	if err != nil {
		return fmt.Errorf("reading namespaces: %w", err)
	}
	if changed.Header.Revision < t.revision {
		// etcd was restored from a backup.
		n.current.Store(&table{mark: -1})
		return fmt.Errorf("reading namespaces: etcd went back from revision %d to %d", t.revision, changed.Header.Revision)
	}
	next := &table{mark: mark, revision: changed.Header.Revision, looked: now, keys: t.keys, byName: t.byName}
	if len(changed.Kvs) > 0 || len(t.keys) != int(changed.Count) {
		next.keys, next.byName = maps.Clone(t.keys), maps.Clone(t.byName)
		if next.keys == nil {
			next.keys, next.byName = map[string]bool{}, map[string]entry{}
		}
		for _, kv := range changed.Kvs {
			if err := n.put(ctx, next, kv); err != nil {
				return err
			}
		}
		if len(next.keys) != int(changed.Count) {
			if err := n.forget(ctx, etcd, next); err != nil {
				return err
			}
		}
	}
	n.current.Store(next)
	return nil
}

// put adds a namespace to a table under construction.
func (n *Namespaces) put(ctx context.Context, t *table, kv *mvccpb.KeyValue) error {
	name := strings.TrimPrefix(string(kv.Key), n.prefix)
	ns, err := n.stored.Read(ctx, kv)
	if err != nil {
		return err
	}
	t.keys[name] = true
	if initializers.Has(ns) {
		delete(t.byName, name)
		return nil
	}
	ns.ResourceVersion, ns.ManagedFields = strconv.FormatInt(kv.ModRevision, 10), nil
	t.byName[name] = entry{ns, kv.ModRevision}
	return nil
}

// forget removes deleted namespaces from a table under construction.
func (n *Namespaces) forget(ctx context.Context, etcd clientv3.KV, t *table) error {
	there, err := hedged(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return etcd.Get(ctx, n.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithRev(t.revision))
	})
	if err != nil {
		return fmt.Errorf("reading the names of namespaces: %w", err)
	}
	keys := make(map[string]bool, len(there.Kvs))
	for _, kv := range there.Kvs {
		keys[strings.TrimPrefix(string(kv.Key), n.prefix)] = true
	}
	maps.DeleteFunc(t.byName, func(name string, _ entry) bool { return !keys[name] })
	t.keys = keys
	return nil
}
