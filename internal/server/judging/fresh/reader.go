package fresh

import (
	"context"
	"errors"
	"fmt"
	"path"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/registrations"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/encryption"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/revisionmark"
)

// lookAtAll is how often a read lists all keys, to find changes that moved no mark.
const lookAtAll = 10 * time.Second

// Marks returns the marks that a Reader relies on. Every server that writes below root must set
// them.
func Marks(root string) []revisionmark.Mark {
	registered := revisionmark.Mark{Key: RegistrationsMark(root)}
	for _, c := range registrations.Collections(root) {
		registered.Prefixes = append(registered.Prefixes, c.Prefix)
	}
	return []revisionmark.Mark{
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
// them. It keeps no registration. It implements snapshot.Reader and is safe for concurrent use.
type Reader struct {
	etcd        clientv3.KV
	root        string
	collections []registrations.Collection
	// sources are the sources of the collections.
	sources []registration.Source
	// hidden are the kinds that are not read.
	hidden     []string
	namespaces *Namespaces
	values     *encryption.Transformers
	// looked is the time of the last read of all registrations.
	looked atomic.Pointer[time.Time]
}

// NewReader returns a Reader of the registrations below root in etcd. It reads namespaces into the
// table, which may be nil when the caller needs no namespaces. values decrypts stored objects, and
// may be nil. hidden are kinds whose versions are all switched off: such a kind counts as empty and
// causes no error (S11.12). Registrations stay stored.
func NewReader(etcd clientv3.KV, root string, namespaces *Namespaces, values *encryption.Transformers, hidden ...string) *Reader {
	r := &Reader{etcd: etcd, root: root, hidden: hidden, namespaces: namespaces, values: values}
	for _, c := range registrations.Collections(root) {
		for _, d := range registration.Sources() {
			if d.Resource == c.Resource && !slices.Contains(hidden, d.Kind) {
				r.collections, r.sources = append(r.collections, c), append(r.sources, d.Source)
			}
		}
	}
	return r
}

// Read implements snapshot.Reader. The namespaces are at least as fresh as the registrations when
// it returns. The error reports that etcd did not answer, or names the object that cannot be
// decoded.
func (r *Reader) Read(ctx context.Context, since snapshot.Version) (snapshot.Registrations, error) {
	found, err := r.read(ctx, since)
	found.Disabled = r.hidden
	return found, err
}

func (r *Reader) read(ctx context.Context, since snapshot.Version) (snapshot.Registrations, error) {
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
	if !ok || now.revision < last.mark {
		return r.readAll(ctx, begin)
	}
	if last.mark != now.mark.ModRevision {
		keys, first, err := r.written(ctx, &last, now.mark)
		if err != nil {
			return snapshot.Registrations{}, err
		}
		if keys == nil {
			return r.changes(ctx, &last, begin)
		}
		return r.objects(ctx, &last, now, keys, first, begin)
	}
	if r.due(begin) {
		if unchanged, err := r.unchanged(ctx, &last); err != nil {
			return snapshot.Registrations{}, err
		} else if !unchanged {
			return r.changes(ctx, &last, begin)
		}
		r.look(begin)
	}
	return snapshot.Registrations{Version: since, Unchanged: true, Revision: strconv.FormatInt(now.revision, 10)}, nil
}

// due reports whether a read has to list all registrations.
func (r *Reader) due(now time.Time) bool {
	looked := r.looked.Load()
	return looked == nil || now.Sub(*looked) >= lookAtAll
}

func (r *Reader) look(at time.Time) { r.looked.Store(&at) }

// state has the marks at a revision.
type state struct {
	revision int64
	// mark is the mark of the registrations; its numbers are 0 when it does not exist.
	mark *mvccpb.KeyValue
	// namespaces is the revision at which a namespace was last written, 0 for never.
	namespaces int64
}

func (r *Reader) marks(ctx context.Context) (state, error) {
	response, err := r.do(ctx, []clientv3.Op{clientv3.OpGet(RegistrationsMark(r.root)), clientv3.OpGet(markOf(r.root, "namespaces"))})
	if err != nil {
		return state{}, fmt.Errorf("reading whether registrations changed: %w", err)
	}
	return state{response.Header.Revision, only(response, 0), only(response, 1).ModRevision}, nil
}

// only returns the only key of a part of a transaction, or an empty key when there is none.
func only(response *clientv3.TxnResponse, part int) *mvccpb.KeyValue {
	if kvs := response.Responses[part].GetResponseRange().Kvs; len(kvs) > 0 {
		return kvs[0]
	}
	return &mvccpb.KeyValue{}
}

// mostWritten bounds how many writes a read follows one after the other: for more writes, a
// read of all keys takes less time.
const mostWritten = 64

// written returns the keys that were written since a version, each once: every write is a
// version of the mark, and etcd remembers the versions before. first is the revision of the
// first write. The result is nil when the versions of the mark do not show all these keys: last
// is too old, a server of an older release wrote a registration, or etcd has been replaced
// since last.
func (r *Reader) written(ctx context.Context, last *version, mark *mvccpb.KeyValue) (keys []string, first int64, err error) {
	if mark.CreateRevision != last.created || mark.Version <= last.writes || mark.Version-last.writes > mostWritten {
		return nil, 0, nil
	}
	for {
		key := string(mark.Value)
		if mark.ModRevision <= last.mark || r.collection(key) < 0 {
			return nil, 0, nil
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
		if mark.Version == last.writes+1 {
			return keys, mark.ModRevision, nil
		}
		before, err := hedged(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return r.etcd.Get(ctx, RegistrationsMark(r.root), clientv3.WithRev(mark.ModRevision-1))
		})
		if errors.Is(err, rpctypes.ErrCompacted) || err == nil && (len(before.Kvs) != 1 || before.Kvs[0].Version != mark.Version-1) {
			return nil, 0, nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("reading which registrations changed: %w", err)
		}
		mark = before.Kvs[0]
	}
}

// collection is the place of the collection that a key is in, negative when it is in none.
func (r *Reader) collection(key string) int {
	return slices.IndexFunc(r.collections, func(c registrations.Collection) bool { return strings.HasPrefix(key, c.Prefix) })
}

// objects reads the objects of keys, which are all keys that were written since a version.
// first is the revision of the first write.
func (r *Reader) objects(ctx context.Context, last *version, now state, keys []string, first int64, begin time.Time) (snapshot.Registrations, error) {
	ops := make([]clientv3.Op, len(keys), len(keys)+1)
	for i, key := range keys {
		ops[i] = clientv3.OpGet(key, clientv3.WithRev(now.revision))
	}
	response, err := r.do(ctx, append(ops, clientv3.OpGet(RegistrationsMark(r.root), clientv3.WithRev(first-1))))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return r.changes(ctx, last, begin)
	}
	if err != nil {
		return snapshot.Registrations{}, fmt.Errorf("reading registrations: %w", err)
	}
	if only(response, len(keys)).ModRevision != last.mark {
		// etcd was restored from a backup: these writes do not follow the writes that the last
		// read saw.
		return r.readAll(ctx, begin)
	}
	v := version{mark: now.mark.ModRevision, writes: now.mark.Version, created: now.mark.CreateRevision, revision: last.revision}
	found := snapshot.Registrations{Version: v.version(), Revision: strconv.FormatInt(now.revision, 10), Partial: true}
	for i, key := range keys {
		c := r.collection(key)
		change := snapshot.Change{Source: r.sources[c], Name: strings.TrimPrefix(key, r.collections[c].Prefix)}
		if kv := only(response, i); kv.ModRevision > 0 {
			if change.Object, err = r.object(ctx, c, kv); err != nil {
				return snapshot.Registrations{}, err
			}
		}
		found.Changes = append(found.Changes, change)
	}
	return found, nil
}

// unchanged reports whether etcd has the same keys as at the last listing of all keys, and no key
// was written since.
func (r *Reader) unchanged(ctx context.Context, last *version) (bool, error) {
	if last.counts == nil {
		return false, nil
	}
	response, err := r.ask(ctx, r.keys(clientv3.WithMinModRev(last.revision+1), clientv3.WithKeysOnly()))
	if err != nil {
		return false, err
	}
	for i := range r.collections {
		if len(response.Responses[i+1].GetResponseRange().Kvs) > 0 {
			return false, nil
		}
	}
	return slices.Equal(countsOf(response, len(r.collections)), last.counts), nil
}

// changes lists the keys of all registrations, and reads the registrations that were modified since
// the last listing.
func (r *Reader) changes(ctx context.Context, last *version, begin time.Time) (snapshot.Registrations, error) {
	response, err := r.ask(ctx, r.keys(clientv3.WithKeysOnly()), r.keys(clientv3.WithMinModRev(last.revision+1)))
	if err != nil {
		return snapshot.Registrations{}, err
	}
	if response.Header.Revision < last.revision {
		// etcd was restored from a backup.
		return r.readAll(ctx, begin)
	}
	found := r.resultOf(response)
	found.Partial, found.Kept = true, []snapshot.Kept{}
	for i, c := range r.collections {
		for _, kv := range response.Responses[1+len(r.collections)+i].GetResponseRange().Kvs {
			obj, err := r.object(ctx, i, kv)
			if err != nil {
				return snapshot.Registrations{}, err
			}
			found.Changes = append(found.Changes, snapshot.Change{Source: r.sources[i], Name: strings.TrimPrefix(string(kv.Key), c.Prefix), Object: obj})
		}
		for _, kv := range response.Responses[1+i].GetResponseRange().Kvs {
			if kv.ModRevision <= last.revision {
				found.Kept = append(found.Kept, snapshot.Kept{
					Source: r.sources[i], Name: strings.TrimPrefix(string(kv.Key), c.Prefix), Version: strconv.FormatInt(kv.ModRevision, 10),
				})
			}
		}
	}
	r.look(begin)
	return found, nil
}

const (
	// perPage is how many registrations of a kind are read at once.
	perPage = 1000
	// perCollection is the number of pages between two garbage collections. Otherwise the kept
	// objects would lie between garbage in memory, and keep that memory from being freed.
	perCollection = 10
	// pageTimeout bounds how long one page takes.
	pageTimeout = 5 * time.Second
)

// readAll reads every registration. The pages of a kind after the first page are read when the caller
// needs them, so that only a few of very many registrations are decoded at a time.
func (r *Reader) readAll(ctx context.Context, begin time.Time) (snapshot.Registrations, error) {
	response, err := r.ask(ctx, r.keys(clientv3.WithLimit(perPage)))
	if err != nil {
		return snapshot.Registrations{}, err
	}
	found := r.resultOf(response)
	// after has the last key of each kind that has more.
	after := map[int]string{}
	for i := range r.collections {
		page := response.Responses[1+i].GetResponseRange()
		objects, err := r.decode(ctx, i, page.Kvs)
		if err != nil {
			return snapshot.Registrations{}, err
		}
		found.Objects = append(found.Objects, objects...)
		if page.More {
			after[i] = string(page.Kvs[len(page.Kvs)-1].Key)
		}
	}
	if len(after) > 0 {
		found.Rest = func(ctx context.Context, take func([]runtime.Object)) error {
			for i, last := range after {
				if err := r.readRest(ctx, i, last, response.Header.Revision, take); err != nil {
					return err
				}
			}
			return nil
		}
	}
	r.look(begin)
	return found, nil
}

// readRest reads the registrations of a kind after a key, as they were at a revision.
func (r *Reader) readRest(ctx context.Context, kind int, last string, revision int64, take func([]runtime.Object)) error {
	end := clientv3.GetPrefixRangeEnd(r.collections[kind].Prefix)
	for pages := 0; ; {
		limited, cancel := context.WithTimeout(ctx, pageTimeout)
		page, err := hedged(limited, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return r.etcd.Get(ctx, last+"\x00", clientv3.WithRange(end), clientv3.WithLimit(perPage), clientv3.WithRev(revision))
		})
		cancel()
		if err != nil {
			return fmt.Errorf("reading registrations: %w", err)
		}
		objects, err := r.decode(ctx, kind, page.Kvs)
		if err != nil {
			return err
		}
		take(objects)
		if !page.More {
			return nil
		}
		if pages++; pages%perCollection == 0 {
			goruntime.GC()
		}
		last = string(page.Kvs[len(page.Kvs)-1].Key)
	}
}

// object decodes a stored registration of a kind.
func (r *Reader) object(ctx context.Context, kind int, kv *mvccpb.KeyValue) (runtime.Object, error) {
	c := &r.collections[kind]
	value, err := r.values.Plain(ctx, schema.GroupResource{Group: registrations.Group, Resource: c.Resource}, kv)
	if err != nil {
		return nil, err
	}
	return c.Decode(kv.Key, value, kv.ModRevision)
}

// decode decodes stored registrations of a kind.
func (r *Reader) decode(ctx context.Context, kind int, stored []*mvccpb.KeyValue) ([]runtime.Object, error) {
	objects := make([]runtime.Object, len(stored))
	for i, kv := range stored {
		var err error
		if objects[i], err = r.object(ctx, kind, kv); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// resultOf returns the result of a transaction of ask, without objects.
func (r *Reader) resultOf(response *clientv3.TxnResponse) snapshot.Registrations {
	mark := only(response, 0)
	v := version{
		mark: mark.ModRevision, writes: mark.Version, created: mark.CreateRevision,
		revision: response.Header.Revision, counts: countsOf(response, len(r.collections)),
	}
	return snapshot.Registrations{Version: v.version(), Revision: strconv.FormatInt(v.revision, 10)}
}

// keys returns an operation for each kind, which gets all its keys.
func (r *Reader) keys(options ...clientv3.OpOption) []clientv3.Op {
	ops := make([]clientv3.Op, len(r.collections))
	for i, c := range r.collections {
		ops[i] = clientv3.OpGet(c.Prefix, append([]clientv3.OpOption{clientv3.WithPrefix()}, options...)...)
	}
	return ops
}

// ask gets the mark, and then performs the operations, in one linearizable transaction.
func (r *Reader) ask(ctx context.Context, operations ...[]clientv3.Op) (*clientv3.TxnResponse, error) {
	response, err := r.do(ctx, slices.Concat(append([][]clientv3.Op{{clientv3.OpGet(RegistrationsMark(r.root))}}, operations...)...))
	if err != nil {
		return nil, fmt.Errorf("reading registrations: %w", err)
	}
	return response, nil
}

// do performs operations in one linearizable transaction.
func (r *Reader) do(ctx context.Context, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	return hedged(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return r.etcd.Txn(ctx).Then(ops...).Commit()
	})
}

// countsOf returns the number of objects of each kind, which deletions change.
func countsOf(response *clientv3.TxnResponse, kinds int) []int64 {
	counts := make([]int64, kinds)
	for i := range counts {
		counts[i] = response.Responses[1+i].GetResponseRange().Count
	}
	return counts
}

// version is the content of a snapshot.Version of this Reader.
type version struct {
	// mark and created are the revision and the creation revision of the mark, and writes is its
	// version.
	mark, created, writes int64
	// revision is the revision of the last read of all keys.
	revision int64
	// counts are how many objects of each kind there were at revision; nil when a change was
	// read since.
	counts []int64
}

func (v *version) version() snapshot.Version {
	b := fmt.Appendf(nil, "%d %d %d %d", v.mark, v.created, v.writes, v.revision)
	for _, n := range v.counts {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	return snapshot.Version(b)
}

func parseVersion(s snapshot.Version) (v version, ok bool) {
	var numbers []int64
	for _, word := range strings.Fields(string(s)) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return version{}, false
		}
		numbers = append(numbers, n)
	}
	if len(numbers) < 4 {
		return version{}, false
	}
	v = version{mark: numbers[0], created: numbers[1], writes: numbers[2], revision: numbers[3]}
	if len(numbers) > 4 {
		v.counts = numbers[4:]
	}
	return v, true
}
