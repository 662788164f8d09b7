package storage

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	etcdfeature "k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/test/etcdtest"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// newFactory returns a factory on an etcd of its own.
func newFactory(t *testing.T) *Factory {
	t.Helper()
	client := etcdtest.Start(t)
	factory := NewFactory(nil, client, nil)
	t.Cleanup(factory.Close)
	return factory
}

// open returns a store of config maps under the name of a resource.
func open(t *testing.T, f *Factory, resource string) apistorage.Interface {
	t.Helper()
	return openWith(t, f, resource, configMaps())
}

// configMaps is the codec of stored config maps.
func configMaps() runtime.Codec {
	format := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	return scheme.Codecs.CodecForVersions(format, format, corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)
}

func openWith(t *testing.T, f *Factory, resource string, codec runtime.Codec) apistorage.Interface {
	t.Helper()
	config := storagebackend.NewDefaultConfig("/registry", codec).ForResource(schema.GroupResource{Resource: resource})
	options := f.For(config, "/"+resource)
	store, destroy, err := options.Decorator(config, options.ResourcePrefix,
		func(obj runtime.Object) (string, error) {
			return "/" + resource + "/" + obj.(*corev1.ConfigMap).Name, nil
		},
		func() runtime.Object { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} },
		apistorage.DefaultNamespaceScopedAttr, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(destroy)
	return store
}

// awaitProgress waits until the client has found that etcd reports the progress of watches, which
// NewFactory checks in the background: until then consistent lists are read from etcd.
func awaitProgress(ctx context.Context, t *testing.T) {
	t.Helper()
	for !etcdfeature.DefaultFeatureSupportChecker.Supports(apistorage.RequestWatchProgress) {
		select {
		case <-ctx.Done():
			t.Fatal("etcd was not asked whether it reports progress")
		case <-time.After(time.Millisecond):
		}
	}
}

func create(t *testing.T, store apistorage.Interface, resource, name string) {
	t.Helper()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	if err := store.Create(t.Context(), "/"+resource+"/"+name, obj, nil, 0); err != nil {
		t.Fatal(err)
	}
}

func everything() apistorage.SelectionPredicate {
	return apistorage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), GetAttrs: apistorage.DefaultNamespaceScopedAttr}
}

// A cache gets the current revision of etcd although no object of its resource is written: the
// cache requests the progress of its watch. Without that, a consistent watch fails after three
// seconds and every consistent list is read from etcd.
func TestCachesCatchUpWithWritesOfOtherResources(t *testing.T) {
	f := newFactory(t)
	quiet, busy := open(t, f, "quiet"), open(t, f, "busy")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	awaitProgress(ctx, t)
	create(t, quiet, "quiet", "one")
	if err := quiet.GetList(ctx, "/quiet/", apistorage.ListOptions{Recursive: true, Predicate: everything()}, &corev1.ConfigMapList{}); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		create(t, busy, "busy", fmt.Sprint(i))
	}
	initial := true
	predicate := everything()
	predicate.AllowWatchBookmarks = true
	w, err := quiet.Watch(ctx, "/quiet/", apistorage.ListOptions{Recursive: true, Predicate: predicate, SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var got []watch.EventType
	for len(got) < 2 {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended after %v", got)
			}
			if event.Type == watch.Error {
				t.Fatalf("event %v", event.Object)
			}
			got = append(got, event.Type)
		case <-ctx.Done():
			t.Fatalf("the list was not complete in a minute: %v", got)
		}
	}
	if diff := cmp.Diff([]watch.EventType{watch.Added, watch.Bookmark}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// An unused store is not opened, a store that is only written and got has no watch cache, and a
// closed store is not opened again.
func TestStoresAreOpenedByTheirFirstUse(t *testing.T) {
	f := newFactory(t)
	unused, written, used := open(t, f, "unused").(*lazy), open(t, f, "written").(*lazy), open(t, f, "used").(*lazy)
	create(t, written, "written", "one")
	create(t, used, "used", "one")
	update := func(in runtime.Object, _ apistorage.ResponseMeta) (runtime.Object, *uint64, error) {
		in.(*corev1.ConfigMap).Data = map[string]string{"a": "b"}
		return in, nil, nil
	}
	got := &corev1.ConfigMap{}
	if err := written.GuaranteedUpdate(t.Context(), "/written/one", got, false, nil, update, nil); err != nil || got.Data["a"] != "b" {
		t.Errorf("the update: %v, %v", got, err)
	}
	if err := written.Get(t.Context(), "/written/one", apistorage.GetOptions{ResourceVersion: "0"}, got); err != nil || got.Data["a"] != "b" {
		t.Errorf("the get: %v, %v", got, err)
	}
	if err := used.GetList(t.Context(), "/used/", apistorage.ListOptions{Recursive: true, Predicate: apistorage.Everything}, &corev1.ConfigMapList{}); err != nil {
		t.Error(err)
	}
	if unused.mu.direct != nil || written.mu.direct == nil || unused.used() != nil || written.used() != nil || used.used() == nil {
		t.Errorf("opened: unused %v, written %v and %v, used %v", unused.mu.direct != nil, written.mu.direct != nil, written.used() != nil, used.used() != nil)
	}
	if err := unused.ReadinessCheck(); err != nil {
		t.Errorf("a store that nobody used is not ready: %v", err)
	}
	// When the cache is filled, the server finds work that an earlier server left undone.
	later := NewFactory(nil, f.client, nil)
	t.Cleanup(later.Close)
	with := open(t, later, "written").(*lazy)
	create(t, with, "written", "two")
	if with.used() == nil {
		t.Error("a kind that had objects has no watch cache")
	}
	f.Close()
	for name, l := range map[string]*lazy{"unused": unused, "written": written, "used": used} {
		if err := l.Get(t.Context(), "/x", apistorage.GetOptions{}, &corev1.ConfigMap{}); !apistorage.IsInternalError(err) {
			t.Errorf("%s after Close: %v, want an internal error", name, err)
		}
	}
}
