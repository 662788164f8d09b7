package fresh

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/server/marks"
	"github.com/gatehouse-dev/gatehouse/server/registrations"
)

// lookAtAll is how often all keys are looked at, for changes that moved no mark.
const lookAtAll = 10 * time.Second

// Marks returns the marks that a Reader relies on, for every server that writes
// below root.
func Marks(root string) []marks.Mark {
	registered := marks.Mark{Key: RegistrationsMark(root)}
	for _, c := range registrations.Collections(root) {
		registered.Prefixes = append(registered.Prefixes, c.Prefix)
	}
	return []marks.Mark{
		registered,
		{Key: markOf(root, "namespaces"), Prefixes: []string{namespacePrefix(root)}},
	}
}

// RegistrationsMark is the key of the mark of registrations.
func RegistrationsMark(root string) string { return markOf(root, "registrations") }

// markOf is the key of a mark. No resource is stored there: the second part of a
// key is a built-in resource or a group, which has a dot.
func markOf(root, name string) string { return path.Join(root, "gatehouse", "marks", name) }

// Reader reads registrations, and keeps a table of namespaces up to date with
// them. It implements snapshot.Reader and is safe for concurrent use.
type Reader struct {
	etcd        clientv3.KV
	root        string
	collections []registrations.Collection
	namespaces  *Namespaces
	// known is what the last read of all found, nil before the first.
	known atomic.Pointer[known]

	// mu guards what follows; it is held while nothing else is done.
	mu struct {
		sync.Mutex
		// looked is when all registrations were last looked at.
		looked time.Time
	}
}

// NewReader returns a Reader of what is below root in etcd. It reads namespaces
// into the table, which may be nil when nobody asks for them.
func NewReader(etcd clientv3.KV, root string, namespaces *Namespaces) *Reader {
	return &Reader{etcd: etcd, root: root, collections: registrations.Collections(root), namespaces: namespaces}
}

// Read implements snapshot.Reader. The namespaces are at least as fresh as the
// registrations when it returns. The error says that etcd did not answer, or
// names the object that cannot be decoded.
func (r *Reader) Read(ctx context.Context, since snapshot.Version) (snapshot.Registrations, error) {
	begin := time.Now()
	now, err := r.marks(ctx)
	if err != nil {
		return snapshot.Registrations{}, err
	}
	if r.namespaces != nil {
		if err := r.namespaces.refresh(ctx, r.etcd, now.namespaces, begin); err != nil {
			return snapshot.Registrations{}, err
		}
	}
	last, ok := parseVersion(since)
	if !ok || last.mark != now.registrations {
		return r.all(ctx, begin)
	}
	same := snapshot.Registrations{Version: since, Unchanged: true, Revision: strconv.FormatInt(now.revision, 10)}
	if !r.due(begin) {
		return same, nil
	}
	unchanged, err := r.unchanged(ctx, last)
	if err != nil {
		return snapshot.Registrations{}, err
	}
	if !unchanged {
		return r.all(ctx, begin)
	}
	r.look(begin)
	return same, nil
}

// due reports whether all registrations are to be looked at.
func (r *Reader) due(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Sub(r.mu.looked) >= lookAtAll
}

func (r *Reader) look(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.looked = at
}

// state is what the marks say: the revision they were read at, and the revisions
// at which registrations and namespaces were last written, 0 for never.
type state struct{ revision, registrations, namespaces int64 }

func (r *Reader) marks(ctx context.Context) (state, error) {
	response, err := hedged(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return r.etcd.Txn(ctx).Then(
			clientv3.OpGet(RegistrationsMark(r.root)),
			clientv3.OpGet(markOf(r.root, "namespaces")),
		).Commit()
	})
	if err != nil {
		return state{}, fmt.Errorf("reading whether registrations changed: %w", err)
	}
	return state{response.Header.Revision, modified(response, 0), modified(response, 1)}, nil
}

// modified is when the only key of a part of a transaction was last modified, 0
// when there is no such key.
func modified(response *clientv3.TxnResponse, part int) int64 {
	if kvs := response.Responses[part].GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0].ModRevision
	}
	return 0
}

// unchanged reports whether the keys are those of an earlier read.
func (r *Reader) unchanged(ctx context.Context, last version) (bool, error) {
	response, err := r.ask(ctx, r.keys(clientv3.WithMinModRev(last.revision+1), clientv3.WithKeysOnly()))
	if err != nil {
		return false, err
	}
	for i := range r.collections {
		if len(response.Responses[i+1].GetResponseRange().Kvs) > 0 {
			return false, nil
		}
	}
	return countsOf(response, len(r.collections)) == last.counts, nil
}

// known is the registrations of one revision. Neither it nor an object is ever
// changed.
type known struct {
	revision int64
	objects  map[string]object
}

// object is one registration, as it was stored at a revision.
type object struct {
	runtime.Object
	revision int64
}

// all reads every registration. Of those that it knows it reads the keys only, which
// tell at which revision each was modified: the cost of a change is that of what
// changed, however much is registered.
func (r *Reader) all(ctx context.Context, begin time.Time) (snapshot.Registrations, error) {
	last := r.known.Load()
	if last == nil {
		last = &known{}
	}
	response, err := r.ask(ctx, r.keys(clientv3.WithKeysOnly()), r.keys(clientv3.WithMinModRev(last.revision+1)))
	if err != nil {
		return snapshot.Registrations{}, err
	}
	v := version{mark: modified(response, 0), revision: response.Header.Revision, counts: countsOf(response, len(r.collections))}
	next := &known{revision: v.revision, objects: map[string]object{}}
	found := snapshot.Registrations{Version: v.version(), Revision: strconv.FormatInt(v.revision, 10)}
	for i := range r.collections {
		changed := map[string]*mvccpb.KeyValue{}
		for _, kv := range response.Responses[1+len(r.collections)+i].GetResponseRange().Kvs {
			changed[string(kv.Key)] = kv
		}
		for _, kv := range response.Responses[1+i].GetResponseRange().Kvs {
			key := string(kv.Key)
			one := last.objects[key]
			if one.revision != kv.ModRevision {
				stored := changed[key]
				if stored == nil {
					// Somebody restored etcd from a backup: the known state is of another past.
					r.known.Store(nil)
					return r.all(ctx, begin)
				}
				obj, err := r.collections[i].Decode(stored.Key, stored.Value, stored.ModRevision)
				if err != nil {
					return snapshot.Registrations{}, err
				}
				one = object{obj, stored.ModRevision}
			}
			next.objects[key] = one
			found.Objects = append(found.Objects, one.Object)
		}
	}
	r.known.Store(next)
	r.look(begin)
	return found, nil
}

// keys returns an operation for each kind, which gets all its keys.
func (r *Reader) keys(options ...clientv3.OpOption) []clientv3.Op {
	ops := make([]clientv3.Op, len(r.collections))
	for i, c := range r.collections {
		ops[i] = clientv3.OpGet(c.Prefix, append([]clientv3.OpOption{clientv3.WithPrefix()}, options...)...)
	}
	return ops
}

// ask gets the mark, and then does the operations, in one linearizable transaction.
func (r *Reader) ask(ctx context.Context, operations ...[]clientv3.Op) (*clientv3.TxnResponse, error) {
	ops := slices.Concat(append([][]clientv3.Op{{clientv3.OpGet(RegistrationsMark(r.root))}}, operations...)...)
	response, err := hedged(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return r.etcd.Txn(ctx).Then(ops...).Commit()
	})
	if err != nil {
		return nil, fmt.Errorf("reading registrations: %w", err)
	}
	return response, nil
}

// countsOf returns the number of objects of each kind, which deletions change.
func countsOf(response *clientv3.TxnResponse, kinds int) string {
	var b []byte
	for _, one := range response.Responses[1 : 1+kinds] {
		b = strconv.AppendInt(append(b, '/'), one.GetResponseRange().Count, 10)
	}
	return string(b)
}

// version is what snapshot.Version says here.
type version struct {
	// mark is the revision of the mark, revision that of the read.
	mark, revision int64
	counts         string
}

func (v version) version() snapshot.Version {
	return snapshot.Version(fmt.Sprintf("%d %d %s", v.mark, v.revision, v.counts))
}

func parseVersion(s snapshot.Version) (v version, ok bool) {
	_, err := fmt.Sscanf(string(s), "%d %d %s", &v.mark, &v.revision, &v.counts)
	return v, err == nil
}
