package storage

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// counting counts how often the same bytes are decoded.
type counting struct {
	runtime.Codec
	mu      sync.Mutex
	decoded map[string]int
}

func (c *counting) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	c.mu.Lock()
	c.decoded[string(data)]++
	c.mu.Unlock()
	return c.Codec.Decode(data, defaults, into)
}

func newHandover(s *writes) (*handover, *counting) {
	codec, versioner := &counting{Codec: configMaps(), decoded: map[string]int{}}, apistorage.APIObjectVersioner{}
	h := &handover{codec: codec, decoder: etcd3.NewDefaultDecoder(codec, versioner), versioner: versioner, writes: s}
	h.on.Store(true)
	return h, codec
}

// The response and the watch of a write get equal objects whose fields can be set, in whichever order they decode, as
// without a handover.
func TestHandover(t *testing.T) {
	object := func(size int) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "b"}}, Data: map[string]string{"a": strings.Repeat("x", size)}}
	}
	for _, tc := range []struct {
		name string
		size int
		// order has w for the watch and r for the response.
		order   string
		off     bool
		decodes int
	}{
		{"the response first", 1, "rw", false, 1},
		{"the watch first", 1, "wr", false, 1},
		{"a get afterwards", 1, "rwr", false, 2},
		{"two watches", 1, "wwr", false, 2},
		{"a large object", mostBytes, "rw", false, 2},
		{"no watch cache", 1, "rw", true, 2},
	} {
		h, codec := newHandover(newWrites())
		h.on.Store(!tc.off)
		data, err := runtime.Encode(handoverCodec{h}, object(tc.size))
		if err != nil {
			t.Fatal(err)
		}
		want := &corev1.ConfigMap{}
		if err := etcd3.NewDefaultDecoder(configMaps(), h.versioner).Decode(data, want, 7); err != nil {
			t.Fatal(err)
		}
		var got []*corev1.ConfigMap
		for _, who := range tc.order {
			// The bytes from etcd are in other memory.
			data, obj := bytes.Clone(data), &corev1.ConfigMap{Data: map[string]string{"old": ""}}
			if who == 'r' {
				obj = &corev1.ConfigMap{}
				err = handoverDecoder{h}.Decode(data, obj, 7)
			} else {
				var watched runtime.Object
				if watched, err = runtime.Decode(handoverCodec{h}, data); err == nil {
					obj = watched.(*corev1.ConfigMap)
					err = h.versioner.UpdateObject(obj, 7)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, obj)
		}
		for i, obj := range got {
			if diff := cmp.Diff(want, obj); diff != "" {
				t.Errorf("%s: %d (-want +got):\n%s", tc.name, i, diff)
			}
			obj.Labels, obj.Data = nil, map[string]string{"a": "changed"}
		}
		if n := codec.decoded[string(data)]; n != tc.decodes {
			t.Errorf("%s: decoded %d times, want %d", tc.name, n, tc.decodes)
		}
	}
}

// A store takes no object of another one, and failed writes are forgotten.
func TestHandoversAreBounded(t *testing.T) {
	s := newWrites()
	h, _ := newHandover(s)
	other, codec := newHandover(s)
	for i := range 2 * mostWrites {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}
		data, err := runtime.Encode(handoverCodec{h}, obj)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []*handover{h, other} {
			if _, err := runtime.Decode(handoverCodec{from}, data); err != nil {
				t.Fatal(err)
			}
		}
		if n := codec.decoded[string(data)]; n != 1 {
			t.Errorf("the other store decoded %d times, want once", n)
		}
	}
	if len(s.by) != mostWrites {
		t.Errorf("%d writes are remembered, want %d", len(s.by), mostWrites)
	}
	s.forget(other)
	if len(s.by) != mostWrites {
		t.Errorf("%d writes are left after another store was closed", len(s.by))
	}
	if s.forget(h); len(s.by) != 0 || h.on.Load() {
		t.Errorf("%d writes are left after their store was closed", len(s.by))
	}
}

// A store with a watch cache decodes each written object once. The response and the watch have equal objects.
func TestWritesAreDecodedOnce(t *testing.T) {
	codec := &counting{Codec: configMaps(), decoded: map[string]int{}}
	store := openWith(t, newFactory(t), "maps", codec)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	list := &corev1.ConfigMapList{}
	if err := store.GetList(ctx, "/maps/", apistorage.ListOptions{Recursive: true, Predicate: everything()}, list); err != nil {
		t.Fatal(err)
	}
	w, err := store.Watch(ctx, "/maps/", apistorage.ListOptions{Recursive: true, Predicate: everything(), ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	const creates = 100
	for i := range creates {
		key, out := fmt.Sprintf("/maps/%d", i), &corev1.ConfigMap{}
		in := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Labels: map[string]string{"a": "b"}}}
		if err := store.Create(ctx, key, in, out, 0); err != nil {
			t.Fatal(err)
		}
		created := out.DeepCopy()
		// A handler sets fields of the object in its response.
		out.Labels = map[string]string{"a": "changed"}
		updated := &corev1.ConfigMap{}
		if err := store.GuaranteedUpdate(ctx, key, updated, false, nil, func(in runtime.Object, _ apistorage.ResponseMeta) (runtime.Object, *uint64, error) {
			in.(*corev1.ConfigMap).Data = map[string]string{"a": fmt.Sprint(i)}
			return in, nil, nil
		}, nil); err != nil {
			t.Fatal(err)
		}
		for _, want := range []*corev1.ConfigMap{created, updated} {
			select {
			case event, ok := <-w.ResultChan():
				cached, isObject := event.Object.(runtime.CacheableObject)
				if !ok || !isObject {
					t.Fatalf("event %s %+v", event.Type, event.Object)
				}
				if diff := cmp.Diff(want, cached.GetObject()); diff != "" {
					t.Errorf("revision %s (-response +watch):\n%s", want.ResourceVersion, diff)
				}
			case <-ctx.Done():
				t.Fatalf("the event of %s is missing", want.ResourceVersion)
			}
		}
	}
	once := 0
	for _, n := range codec.decoded {
		if n == 1 {
			once++
		}
	}
	// An update whose cache is late also decodes the object that it finds in etcd.
	if once < creates {
		t.Errorf("%d of %d writes were decoded once, want at least the updates", once, 2*creates)
	}
}

// BenchmarkHandover compares decoding a pod twice with decoding and handing over, per write.
func BenchmarkHandover(b *testing.B) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("on=%v", on), func(b *testing.B) {
			h, _ := newHandover(newWrites())
			h.codec, h.decoder = configMaps(), etcd3.NewDefaultDecoder(configMaps(), h.versioner)
			h.on.Store(on)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", Labels: map[string]string{"app": "a"}}}
			for i := range 2 {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "nginx:1.29", Env: []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "C", Value: "d"}}})
				pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(strings.Repeat("f", 500))})
			}
			b.ReportAllocs()
			for b.Loop() {
				data, err := runtime.Encode(handoverCodec{h}, pod)
				if err != nil {
					b.Fatal(err)
				}
				into := &corev1.Pod{}
				if err := (handoverDecoder{h}).Decode(data, into, 7); err != nil || into.Name != "a" {
					b.Fatal(into.Name, err)
				}
				if obj, err := runtime.Decode(handoverCodec{h}, data); err != nil || obj.(*corev1.Pod).Name != "a" {
					b.Fatal(obj, err)
				}
			}
		})
	}
}
