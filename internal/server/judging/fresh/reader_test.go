package fresh

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/registrations"
	"github.com/gatehouse-dev/gatehouse/internal/server/controllers/namespaces"
	"github.com/gatehouse-dev/gatehouse/internal/server/storage/revisionmark"
	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

// store is an etcd with a client that writes as servers do.
type store struct {
	t      testing.TB
	client *etcdkubernetes.Client
	marked etcdkubernetes.Interface
}

const root = "/test"

func newStore(t testing.TB) *store {
	t.Helper()
	client := etcdtest.Start(t)
	s := &store{t: t, client: client}
	s.marked = revisionmark.Client(client.Kubernetes, client.KV, Marks(root)...)
	return s
}

// put writes as a server does.
func (s *store) put(key string, obj runtime.Object) {
	s.t.Helper()
	old, err := s.marked.Get(s.t.Context(), root+"/"+key, etcdkubernetes.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	expected := int64(0)
	if old.KV != nil {
		expected = old.KV.ModRevision
	}
	response, err := s.marked.OptimisticPut(s.t.Context(), root+"/"+key, encoded(s.t, obj), expected, etcdkubernetes.PutOptions{})
	if err != nil || !response.Succeeded {
		s.t.Fatalf("put: %+v, %v", response, err)
	}
}

func (s *store) remove(key string) {
	s.t.Helper()
	old, err := s.marked.Get(s.t.Context(), root+"/"+key, etcdkubernetes.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := s.marked.OptimisticDelete(s.t.Context(), root+"/"+key, old.KV.ModRevision, etcdkubernetes.DeleteOptions{})
	if err != nil || !response.Succeeded {
		s.t.Fatalf("delete: %+v, %v", response, err)
	}
}

// behind writes without a mark, as no server does.
func (s *store) behind(key string, obj runtime.Object) {
	s.t.Helper()
	var err error
	if obj == nil {
		_, err = s.client.Client.Delete(s.t.Context(), root+"/"+key)
	} else {
		_, err = s.client.Client.Put(s.t.Context(), root+"/"+key, string(encoded(s.t, obj)))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func encoded(t testing.TB, obj runtime.Object) []byte {
	t.Helper()
	var codec runtime.Encoder
	switch obj.(type) {
	case *corev1.Namespace:
		protobuf, _ := runtime.SerializerInfoForMediaType(legacyscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		codec = legacyscheme.Codecs.EncoderForVersion(protobuf.Serializer, corev1.SchemeGroupVersion)
	case *v1alpha1.InitializerConfiguration:
		codec = registrations.Codecs.LegacyCodec(v1alpha1.SchemeGroupVersion)
	default:
		codec = registrations.Codecs.LegacyCodec(schema.GroupVersion{Group: registrations.Group, Version: "v1"})
	}
	data, err := runtime.Encode(codec, obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mutating(name string) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// TestReadSeesEveryChange proves S11.8 for the reader: it finds every change, and reads
// no unchanged object.
func TestReadSeesEveryChange(t *testing.T) {
	s := newStore(t)
	reader := NewReader(s.client.KV, root, nil, nil)
	late := func() { reader.look(time.Now().Add(-lookAtAll)) }
	known := known{}
	objects := 0
	var version snapshot.Version
	for _, step := range []struct {
		name    string
		change  func()
		objects int
		same    bool
	}{
		{name: "nothing at all", change: func() {}},
		{name: "nothing, again", change: func() {}, same: true},
		{name: "created", change: func() { s.put("mutatingwebhookconfigurations/a", mutating("a")) }, objects: 1},
		{name: "nothing new", change: func() {}, same: true},
		{name: "another kind of object", change: func() { s.put("configmaps/x", mutating("x")) }, same: true},
		{name: "updated", change: func() { s.put("mutatingwebhookconfigurations/a", mutating("a")) }, objects: 1},
		{name: "of another kind", change: func() {
			s.put("initializerconfigurations/i", &v1alpha1.InitializerConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "i"}})
		}, objects: 2},
		{name: "deleted", change: func() { s.remove("mutatingwebhookconfigurations/a") }, objects: 1},
		{name: "deleted and created", change: func() {
			s.remove("initializerconfigurations/i")
			s.put("mutatingwebhookconfigurations/b", mutating("b"))
		}, objects: 1},
		{name: "replaced under its name", change: func() {
			s.remove("mutatingwebhookconfigurations/b")
			s.put("mutatingwebhookconfigurations/b", mutating("b"))
		}, objects: 1},
		{name: "behind the servers' back", change: func() { s.behind("mutatingwebhookconfigurations/c", mutating("c")) }, same: true},
		{name: "noticed ten seconds later", change: late, objects: 2},
		{name: "deleted behind the servers' back", change: func() { s.behind("mutatingwebhookconfigurations/c", nil) }, same: true},
		{name: "noticed, too", change: late, objects: 1},
		{name: "nothing, when looking at all", change: late, same: true},
		{name: "all deleted", change: func() { s.remove("mutatingwebhookconfigurations/b") }},
	} {
		step.change()
		found, err := reader.Read(t.Context(), version)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if found.Unchanged != step.same {
			t.Errorf("%s: Unchanged is %v, want %v", step.name, found.Unchanged, step.same)
		}
		if !known.take(found) {
			if found, err = reader.Read(t.Context(), ""); err != nil || !known.take(found) {
				t.Fatalf("%s: %+v, %v", step.name, found, err)
			}
		}
		if !step.same {
			objects = step.objects
		}
		if len(known) != objects {
			t.Errorf("%s: %d objects are known, want %d", step.name, len(known), objects)
		}
		for name, version := range known {
			if version == "" {
				t.Errorf("%s: %s has no resourceVersion", step.name, name)
			}
		}
		if found.Revision == "" || found.Version == "" {
			t.Errorf("%s: revision %q, version %q", step.name, found.Revision, found.Version)
		}
		version = found.Version
	}
	if got, want := len(registration.Sources()), len(reader.collections); got != want {
		t.Errorf("package registration has %d kinds, this package reads %d", got, want)
	}
}

// known are the resourceVersions of registrations, by kind and name.
type known map[string]string

// take applies a read, as a snapshot.Compiler does, and reports whether the read fits the known
// registrations.
func (k known) take(r snapshot.Registrations) bool {
	if r.Unchanged {
		return true
	}
	there := map[string]bool{}
	place := func(s registration.Source, name string) string { return s.String() + " " + name }
	for _, obj := range r.Objects {
		source, _ := registration.SourceOf(obj)
		name := place(source, obj.(metav1.Object).GetName())
		k[name], there[name] = obj.(metav1.Object).GetResourceVersion(), true
	}
	for _, c := range r.Changes {
		name := place(c.Source, c.Name)
		if there[name] = true; c.Object == nil {
			delete(k, name)
		} else {
			k[name] = c.Object.(metav1.Object).GetResourceVersion()
		}
	}
	for _, kept := range r.Kept {
		name := place(kept.Source, kept.Name)
		if there[name] = true; k[name] != kept.Version {
			return false
		}
	}
	if !r.Partial || r.Kept != nil {
		maps.DeleteFunc(k, func(name, _ string) bool { return !there[name] })
	}
	return true
}

// fromNothing returns the registrations of a complete read.
func fromNothing(r snapshot.Registrations) known {
	k := known{}
	k.take(r)
	return k
}

// TestManyAreReadPageByPage: later pages have the state at which the first page was read.
func TestManyAreReadPageByPage(t *testing.T) {
	s := newStore(t)
	const n = 2*perPage + 100
	key := func(i int) string { return fmt.Sprintf("validatingwebhookconfigurations/c%05d", i) }
	var ops []clientv3.Op
	for i := range n {
		ops = append(ops, clientv3.OpPut(root+"/"+key(i), string(encoded(t, mutating(fmt.Sprintf("c%05d", i))))))
	}
	for part := range slices.Chunk(ops, 100) {
		if _, err := s.client.Client.Txn(t.Context()).Then(part...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	reader := NewReader(s.client.KV, root, nil, nil)
	found, err := reader.Read(t.Context(), "")
	if err != nil || found.Rest == nil || len(found.Objects) != perPage {
		t.Fatalf("found %d objects, %v", len(found.Objects), err)
	}
	s.behind(key(n-1), nil)
	s.behind(key(n), mutating("late"))
	objects := found.Objects
	if err := found.Rest(t.Context(), func(more []runtime.Object) {
		if len(more) > perPage {
			t.Errorf("%d objects at a time", len(more))
		}
		objects = append(objects, more...)
	}); err != nil {
		t.Fatal(err)
	}
	if len(objects) != n || objects[n-1].(metav1.Object).GetName() != fmt.Sprintf("c%05d", n-1) {
		t.Errorf("S11.8 found %d objects, want %d", len(objects), n)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := found.Rest(ended, func([]runtime.Object) {}); err == nil {
		t.Error("a read that was ended succeeded")
	}
}

// counting is an etcd that counts the keys in its answers, with and without values.
type counting struct {
	clientv3.KV
	keys atomic.Int64
}

func (c *counting) Get(ctx context.Context, key string, o ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	found, err := c.KV.Get(ctx, key, o...)
	if err == nil {
		c.keys.Add(int64(len(found.Kvs)))
	}
	return found, err
}

func (c *counting) Txn(ctx context.Context) clientv3.Txn { return &countingTxn{c.KV.Txn(ctx), c} }

type countingTxn struct {
	clientv3.Txn
	c *counting
}

func (t *countingTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *countingTxn) Commit() (*clientv3.TxnResponse, error) {
	response, err := t.Txn.Commit()
	if err == nil {
		for _, part := range response.Responses {
			t.c.keys.Add(int64(len(part.GetResponseRange().GetKvs())))
		}
	}
	return response, err
}

// TestAReadOfAChangeCostsTheChange: a read reads only the written registrations, however many
// registrations there are, also when they were deleted or created again.
func TestAReadOfAChangeCostsTheChange(t *testing.T) {
	s := newStore(t)
	etcd := &counting{KV: s.client.KV}
	reader := NewReader(etcd, root, nil, nil)
	known := known{}
	for i := range 200 {
		name := "c" + strconv.Itoa(i)
		s.put("mutatingwebhookconfigurations/"+name, mutating(name))
	}
	found, err := reader.Read(t.Context(), "")
	if err != nil || !known.take(found) || len(known) != 200 {
		t.Fatalf("%d are known, %v", len(known), err)
	}
	version := found.Version
	for _, step := range []struct {
		name string
		// writes is the number of writes.
		writes  int
		change  func()
		objects int
		all     bool
	}{
		{"updated", 1, func() { s.put("mutatingwebhookconfigurations/c7", mutating("c7")) }, 200, false},
		{"made", 1, func() { s.put("mutatingwebhookconfigurations/new", mutating("new")) }, 201, false},
		{"deleted", 1, func() { s.remove("mutatingwebhookconfigurations/c8") }, 200, false},
		{"made anew under its name", 2, func() {
			s.remove("mutatingwebhookconfigurations/c9")
			s.put("mutatingwebhookconfigurations/c9", mutating("c9"))
		}, 200, false},
		{"made and deleted", 2, func() {
			s.put("mutatingwebhookconfigurations/brief", mutating("brief"))
			s.remove("mutatingwebhookconfigurations/brief")
		}, 200, false},
		{"as many as are followed", mostWritten, func() {
			for range mostWritten {
				s.put("mutatingwebhookconfigurations/c10", mutating("c10"))
			}
		}, 200, false},
		{"more", mostWritten + 2, func() {
			for range mostWritten + 1 {
				s.put("mutatingwebhookconfigurations/c10", mutating("c10"))
			}
			s.remove("mutatingwebhookconfigurations/c10")
		}, 199, true},
		{"by a server of an older release", 1, func() {
			s.remove("mutatingwebhookconfigurations/c11")
			if _, err := s.client.Client.Put(t.Context(), RegistrationsMark(root), ""); err != nil {
				t.Fatal(err)
			}
		}, 198, true},
		{"after a compaction", 2, func() {
			s.put("mutatingwebhookconfigurations/c12", mutating("c12"))
			s.put("mutatingwebhookconfigurations/c13", mutating("c13"))
			now, err := s.client.Client.Get(t.Context(), "x")
			if err == nil {
				_, err = s.client.Client.Compact(t.Context(), now.Header.Revision)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, 198, true},
	} {
		step.change()
		etcd.keys.Store(0)
		found, err := reader.Read(t.Context(), version)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if !found.Partial || !known.take(found) {
			t.Fatalf("%s: all were read: %+v", step.name, found)
		}
		if len(known) != step.objects {
			t.Errorf("S11.8 %s: %d are known, want %d", step.name, len(known), step.objects)
		}
		if keys := etcd.keys.Load(); (keys > int64(2*step.writes+2)) != step.all {
			t.Errorf("%s: read %d keys", step.name, keys)
		}
		again, err := reader.Read(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		all := fromNothing(again)
		if !maps.Equal(all, known) {
			t.Errorf("S11.8 %s (-all +known):\n%s", step.name, cmp.Diff(all, known))
		}
		version = found.Version
	}
}
func namespace(name, team string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}
}

// TestNamespacesAreAsFreshAsRegistrations proves S2.14 with the bound of S11.10: a
// read of registrations brings the labels of namespaces up to date.
func TestNamespacesAreAsFreshAsRegistrations(t *testing.T) {
	s := newStore(t)
	watched := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	table := NewNamespaces(root, namespaces.Stored{Decoder: legacyscheme.Codecs.UniversalDeserializer()}, corelisters.NewNamespaceLister(watched), nil)
	reader := NewReader(s.client.KV, root, table, nil)
	// watch delivers the current state, as a watch does sooner or later.
	watch := func() {
		t.Helper()
		response, err := s.client.Client.Get(t.Context(), root+"/namespaces/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		var list []any
		for _, kv := range response.Kvs {
			ns := &corev1.Namespace{}
			if _, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(kv.Value, nil, ns); err != nil {
				t.Fatal(err)
			}
			ns.ResourceVersion = strconv.FormatInt(kv.ModRevision, 10)
			list = append(list, ns)
		}
		if err := watched.Replace(list, ""); err != nil {
			t.Fatal(err)
		}
	}
	pending := namespace("hidden", "x")
	initializers.Set(pending, &initializers.Initializers{Pending: []initializers.Initializer{{Name: "a.b.c"}}})
	read := func() {
		t.Helper()
		if _, err := reader.Read(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name   string
		change func()
		want   map[string]string
	}{
		{"nothing yet", func() {}, map[string]string{}},
		{"made, and not read yet: not known, so read live", func() { s.put("namespaces/a", namespace("a", "red")) }, map[string]string{}},
		{"read, and the watch does not know: read live", read, map[string]string{}},
		{"both know", watch, map[string]string{"a": "red"}},
		{"changed, neither knows", func() { s.put("namespaces/a", namespace("a", "blue")) }, map[string]string{"a": "red"}},
		{"the read is ahead of the watch", read, map[string]string{"a": "blue"}},
		{"the watch is ahead of the read", func() { s.put("namespaces/a", namespace("a", "green")); watch() }, map[string]string{"a": "green"}},
		{"the watch knows one that was not read", func() { s.put("namespaces/b", namespace("b", "red")); watch() }, map[string]string{"a": "green", "b": "red"}},
		{"the read knows of a deletion, the watch does not", func() { read(); s.remove("namespaces/a"); read() }, map[string]string{"b": "red"}},
		{"the watch knows of a deletion, the read does not", func() { s.remove("namespaces/b"); watch() }, map[string]string{}},
		{"uninitialized", func() { s.put("namespaces/hidden", pending); read() }, map[string]string{}},
		{"replaced under its name, and another one deleted", func() {
			s.put("namespaces/a", namespace("a", "old"))
			read()
			s.remove("namespaces/a")
			s.remove("namespaces/hidden")
			s.put("namespaces/a", namespace("a", "new"))
			read()
			watch()
		}, map[string]string{"a": "new"}},
		{"behind the servers' back", func() { s.behind("namespaces/a", namespace("a", "odd")); read() }, map[string]string{"a": "new"}},
		{"noticed ten seconds later", func() {
			old := *table.current.Load()
			old.looked = old.looked.Add(-lookAtAll)
			table.current.Store(&old)
			read()
		}, map[string]string{"a": "odd"}},
	} {
		step.change()
		got := map[string]string{}
		for _, name := range []string{"a", "b", "hidden"} {
			if ns := table.Cached(name); ns != nil {
				got[name] = ns.Labels["team"]
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	if got := slices.Collect(maps.Keys(table.current.Load().keys)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("keys: %v", got)
	}
}

// TestEtcdThatWentBack reads from an etcd that was restored from a backup.
func TestEtcdThatWentBack(t *testing.T) {
	s := newStore(t)
	known := NewNamespaces(root, namespaces.Stored{Decoder: legacyscheme.Codecs.UniversalDeserializer()}, nil, nil)
	reader := NewReader(s.client.KV, root, known, nil)
	s.put("namespaces/a", namespace("a", "red"))
	known.current.Store(&table{revision: 1 << 40, mark: -1})
	if _, err := reader.Read(t.Context(), ""); err == nil {
		t.Fatal("the read succeeded")
	}
	if _, err := reader.Read(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if ns := known.current.Load().byName["a"]; ns.Namespace == nil || ns.Labels["team"] != "red" {
		t.Errorf("namespace a: %+v", ns)
	}
}

func BenchmarkRead(b *testing.B) {
	for _, objects := range []int{0, 2000} {
		for _, kind := range []string{"unchanged", "all keys", "one changed"} {
			b.Run("registrations="+strconv.Itoa(objects)+"/"+kind, func(b *testing.B) {
				s := newStore(b)
				for i := range objects {
					name := "c" + strconv.Itoa(i)
					s.put("validatingwebhookconfigurations/"+name, hook(name))
				}
				reader := NewReader(s.client.KV, root, nil, nil)
				first, err := reader.Read(context.Background(), "")
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					since := first.Version
					switch kind {
					case "all keys":
						reader.look(time.Time{})
					case "one changed":
						s.put("validatingwebhookconfigurations/changed", hook("changed"))
					}
					again, err := reader.Read(context.Background(), since)
					if err != nil || again.Unchanged != (kind != "one changed") {
						b.Fatalf("%+v, %v", again, err)
					}
					first.Version = again.Version
				}
			})
		}
	}
}

// hook is a registration of usual size.
func hook(name string) runtime.Object {
	url, sideEffects := "https://"+name+".example.com/check", admissionregistrationv1.SideEffectClassNone
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         name + ".example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: make([]byte, 1200)},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{name}},
			}},
			SideEffects: &sideEffects, AdmissionReviewVersions: []string{"v1"},
		}},
	}
}
