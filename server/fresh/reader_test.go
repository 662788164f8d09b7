package fresh

import (
	"context"
	"maps"
	"slices"
	"strconv"
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

	"github.com/gatehouse-dev/gatehouse/admission/initializers"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/server/etcd/etcdtest"
	"github.com/gatehouse-dev/gatehouse/server/marks"
	"github.com/gatehouse-dev/gatehouse/server/registrations"
)

// store is an etcd with the servers' way to write to it.
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
	s.marked = marks.Client(client.Kubernetes, client.KV, Marks(root)...)
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

// behind writes as no server does.
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
	reader := NewReader(s.client.KV, root, nil)
	late := func() { reader.look(time.Now().Add(-lookAtAll)) }
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
		if len(found.Objects) != step.objects {
			t.Errorf("%s: found %d objects, want %d", step.name, len(found.Objects), step.objects)
		}
		for _, obj := range found.Objects {
			if obj.(metav1.Object).GetResourceVersion() == "" {
				t.Errorf("%s: %T has no resourceVersion", step.name, obj)
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

// TestAReadOfAChangeCostsTheChange: unchanged objects are not read and decoded again,
// unless etcd has another past.
func TestAReadOfAChangeCostsTheChange(t *testing.T) {
	s := newStore(t)
	reader := NewReader(s.client.KV, root, nil)
	read := func() map[string]runtime.Object {
		t.Helper()
		found, err := reader.Read(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]runtime.Object{}
		for _, obj := range found.Objects {
			byName[obj.(metav1.Object).GetName()] = obj
		}
		return byName
	}
	for _, name := range []string{"a", "b", "c"} {
		s.put("mutatingwebhookconfigurations/"+name, mutating(name))
	}
	before := read()
	s.put("mutatingwebhookconfigurations/b", mutating("b"))
	s.remove("mutatingwebhookconfigurations/c")
	s.put("mutatingwebhookconfigurations/d", mutating("d"))
	after := read()
	if names := slices.Sorted(maps.Keys(after)); !slices.Equal(names, []string{"a", "b", "d"}) {
		t.Errorf("S11.8 found %q", names)
	}
	if after["a"] != before["a"] {
		t.Error("what did not change was decoded again")
	}
	if after["b"] == before["b"] {
		t.Error("S11.8 what changed was not read")
	}
	reader.known.Store(&known{revision: 1 << 40, objects: map[string]object{
		root + "/mutatingwebhookconfigurations/a": {mutating("a"), 1 << 39},
		root + "/mutatingwebhookconfigurations/e": {mutating("e"), 1 << 39},
	}})
	restored := read()
	if names := slices.Sorted(maps.Keys(restored)); !slices.Equal(names, []string{"a", "b", "d"}) {
		t.Errorf("S11.8 found %q in an etcd that was restored", names)
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
	table := NewNamespaces(root, legacyscheme.Codecs.UniversalDeserializer(), corelisters.NewNamespaceLister(watched), nil)
	reader := NewReader(s.client.KV, root, table)
	// watch shows the state of now, as a watch does sooner or later.
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
	namespaces := NewNamespaces(root, legacyscheme.Codecs.UniversalDeserializer(), nil, nil)
	reader := NewReader(s.client.KV, root, namespaces)
	s.put("namespaces/a", namespace("a", "red"))
	namespaces.current.Store(&table{revision: 1 << 40, mark: -1})
	if _, err := reader.Read(t.Context(), ""); err == nil {
		t.Fatal("the read succeeded")
	}
	if _, err := reader.Read(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if ns := namespaces.current.Load().byName["a"]; ns.Namespace == nil || ns.Labels["team"] != "red" {
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
				reader := NewReader(s.client.KV, root, nil)
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
						since = ""
					}
					again, err := reader.Read(context.Background(), since)
					if err != nil || again.Unchanged != (since != "") {
						b.Fatalf("%+v, %v", again, err)
					}
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
