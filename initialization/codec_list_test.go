package initialization

import (
	"bytes"
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/testapigroup"
	"k8s.io/apimachinery/pkg/apis/testapigroup/install"
	testv1 "k8s.io/apimachinery/pkg/apis/testapigroup/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// pieces is a writer that knows the size of the largest piece it got.
type pieces struct {
	bytes.Buffer
	largest int
}

func (p *pieces) Write(data []byte) (int, error) {
	p.largest = max(p.largest, len(data))
	return p.Buffer.Write(data)
}

// serializerOf returns the serializer below the conversion to a version.
func serializerOf(c runtime.NegotiatedSerializer, base runtime.Serializer) runtime.Encoder {
	f := c.(*codec).forms[base]
	e := &encoder{inner: base, form: f}
	if f.yaml {
		return e
	}
	return &listEncoder{Encoder: e, form: f, kept: c.(*codec).kept}
}

// Lists are written item by item, also when an object in them is not initialized (S11.36):
// a list takes the memory of its largest object, and only the object that carries
// metadata.initializers is encoded twice.
func TestListsAreWrittenItemByItem(t *testing.T) {
	const count, size = 50, 2 * bufferSize
	remaining := int64(7)
	typed, custom := &corev1.ConfigMapList{}, &unstructured.UnstructuredList{}
	typed.ListMeta = metav1.ListMeta{ResourceVersion: "42", Continue: `"items":[]}`, RemainingItemCount: &remaining}
	custom.SetAPIVersion("example.com/v1")
	custom.SetKind("ThingList")
	custom.SetResourceVersion("42")
	for i := range count {
		name, text := fmt.Sprintf("c%d", i), strings.Repeat("x", size)
		typed.Items = append(typed.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": text}})
		custom.Items = append(custom.Items, unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": name}, "text": text,
		}})
	}
	for _, tc := range []struct {
		name string
		list runtime.Object
		// carry is the object that gets metadata.initializers; nil for none.
		carry runtime.Object
	}{
		{"built-in kinds", typed.DeepCopy(), nil},
		{"built-in kinds, one object not initialized", typed, &typed.Items[3]},
		{"custom resources, one object not initialized", custom, &custom.Items[3]},
	} {
		t.Run(tc.name, func(t *testing.T) {
			codec := NewCodec(Codecs(scheme.Scheme))
			info, _ := runtime.SerializerInfoForMediaType(codec.SupportedMediaTypes(), runtime.ContentTypeJSON)
			var want any
			encode := func() (string, int) {
				var out pieces
				encoder := codec.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
				if _, ok := tc.list.(*unstructured.UnstructuredList); ok {
					// A CRD selects the conversion of its custom resources.
					encoder = serializerOf(codec, info.Serializer)
				}
				if err := encoder.Encode(tc.list, &out); err != nil {
					t.Fatal(err)
				}
				return out.String(), out.largest
			}
			if tc.carry != nil {
				text, _ := encode()
				if err := json.Unmarshal([]byte(text), &want); err != nil {
					t.Fatal(err)
				}
				initializers.Set(tc.carry, &initializers.Initializers{Pending: []initializers.Initializer{{Name: "a.example.com"}}})
				shown := want.(map[string]any)["items"].([]any)[3].(map[string]any)["metadata"].(map[string]any)
				shown["initializers"] = map[string]any{"pending": []any{map[string]any{"name": "a.example.com"}}}
			}
			text, largest := encode()
			if largest > 2*size {
				t.Errorf("%d bytes were written at once, for objects of %d bytes", largest, size)
			}
			if strings.Contains(text, initializers.Annotation) {
				t.Error("the annotation is shown")
			}
			if !strings.HasSuffix(text, "]}\n") && !strings.HasSuffix(text, "}\n") {
				t.Errorf("the text ends with %q", text[len(text)-10:])
			}
			var got any
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatal(err)
			}
			if tc.carry != nil {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("other than the field (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// Lists in protobuf are also written item by item (S11.36).
func TestListsAreWrittenItemByItemInProtobuf(t *testing.T) {
	const count, size = 50, 2 * bufferSize
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "42"}}
	for i := range count {
		list.Items = append(list.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}, Data: map[string]string{"text": strings.Repeat("x", size)}})
	}
	initializers.Set(&list.Items[3], &initializers.Initializers{Pending: []initializers.Initializer{{Name: "a.example.com"}}})
	base := Codecs(scheme.Scheme)
	info, _ := runtime.SerializerInfoForMediaType(base.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	var whole bytes.Buffer
	if err := base.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(list, &whole); err != nil {
		t.Fatal(err)
	}
	want, err := initializers.ExposeProtobuf(whole.Bytes(), true)
	if err != nil {
		t.Fatal(err)
	}
	var got pieces
	if err := NewCodec(base).EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(list, &got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got.Bytes()) {
		t.Error("the list is not what is encoded as a whole")
	}
	if got.largest > 2*size {
		t.Errorf("%d bytes were written at once, for objects of %d bytes", got.largest, size)
	}
}

// Kept objects never change a list: each list equals the encoding of k8s.io/apiserver, byte for byte, after any
// earlier lists.
func TestWhatWasKeptIsWhatIsListed(t *testing.T) {
	base := Codecs(scheme.Scheme)
	codec := NewStoredCodec(base)
	object := func(i, version int) corev1.ConfigMap {
		return corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i), UID: types.UID(fmt.Sprint("uid-", i)), ResourceVersion: fmt.Sprint(version)},
			Data:       map[string]string{"version": fmt.Sprint("<", version, ">")},
		}
	}
	all := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "42"}}
	for i := range 100 {
		all.Items = append(all.Items, object(i, 1))
	}
	changed := all.DeepCopy()
	changed.Items[7], changed.Items[8].UID = object(7, 2), "uid-of-another"
	changed.Items[8].Data["version"] = "another"
	changed.Items = changed.Items[5:]
	changed.Continue, changed.RemainingItemCount = "more", new(int64)
	unstored := all.DeepCopy()
	for i := range unstored.Items {
		unstored.Items[i].ResourceVersion = ""
	}
	metadata := func(version string) *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		for i := range all.Items {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "PartialObjectMetadata"}, ObjectMeta: all.Items[i].ObjectMeta})
		}
		return list
	}
	pods := &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: all.Items[0].ObjectMeta}}}
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf, runtime.ContentTypeYAML} {
		info, _ := runtime.SerializerInfoForMediaType(base.SupportedMediaTypes(), mediaType)
		for n, list := range []runtime.Object{
			all, all, all, changed, changed, all, &corev1.ConfigMapList{}, &corev1.ConfigMapList{Items: []corev1.ConfigMap{}}, pods, pods,
			unstored, unstored, metadata("meta.k8s.io/v1"), metadata("meta.k8s.io/v1"), metadata("meta.k8s.io/v1beta1"), all,
		} {
			var want, got bytes.Buffer
			for out, encoder := range map[*bytes.Buffer]runtime.Encoder{&want: info.Serializer, &got: serializerOf(codec, info.Serializer)} {
				if err := encoder.Encode(list.DeepCopyObject(), out); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(want.Bytes(), got.Bytes()) {
				t.Errorf("%s, list %d: %s", mediaType, n, cmp.Diff(want.String(), got.String()))
			}
		}
	}
}

// A list equals the encoding of k8s.io/apiserver also if its objects are converted to a version first and some
// are kept. Only the other objects are converted.
func TestListsThatAreConverted(t *testing.T) {
	known := runtime.NewScheme()
	install.Install(known)
	metav1.AddToGroupVersion(known, testv1.SchemeGroupVersion)
	base := Codecs(known)
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf, runtime.ContentTypeYAML} {
		t.Run(mediaType, func(t *testing.T) {
			codec := NewStoredCodec(base)
			info, _ := runtime.SerializerInfoForMediaType(base.SupportedMediaTypes(), mediaType)
			all := carps(20, "1")
			all.Continue, all.RemainingItemCount = "more", new(int64)
			changed := carps(20, "1")
			changed.Items[3].ResourceVersion, changed.Items[3].Spec.Hostname = "2", "changed"
			changed.Items = append(changed.Items[1:], carps(25, "1").Items[20:]...)
			for n, list := range []*testapigroup.CarpList{all, all, all, changed, changed, changed, {}, {Items: []testapigroup.Carp{}}, all} {
				var want, got bytes.Buffer
				for out, c := range map[*bytes.Buffer]runtime.NegotiatedSerializer{&want: base, &got: codec} {
					if err := c.EncoderForVersion(info.Serializer, testv1.SchemeGroupVersion).Encode(list.DeepCopy(), out); err != nil {
						t.Fatal(err)
					}
				}
				if !bytes.Equal(want.Bytes(), got.Bytes()) {
					t.Errorf("list %d: %s", n, cmp.Diff(want.String(), got.String()))
				}
			}
		})
	}
}

// carps returns objects in the version that the memory has, as a store has them.
func carps(count int, version string) *testapigroup.CarpList {
	list := &testapigroup.CarpList{ListMeta: metav1.ListMeta{ResourceVersion: "42"}}
	for i := range count {
		list.Items = append(list.Items, testapigroup.Carp{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i), UID: types.UID(fmt.Sprint("uid-", i)), ResourceVersion: version},
			Spec:       testapigroup.CarpSpec{Hostname: fmt.Sprint("<", i, ">"), NodeSelector: map[string]string{"a": "b"}},
		})
	}
	return list
}

// looking is a writer that inspects the memory when the first bytes of a list are written.
type looking struct {
	bytes.Buffer
	look func()
}

func (l *looking) Write(data []byte) (int, error) {
	if l.Len() == 0 {
		l.look()
	}
	return l.Buffer.Write(data)
}

// A list whose objects are all kept holds none of them while a client reads it.
func TestAListThatIsWrittenHoldsNoObject(t *testing.T) {
	known := runtime.NewScheme()
	install.Install(known)
	base := Codecs(known)
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(mediaType, func(t *testing.T) {
			codec := NewStoredCodec(base)
			info, _ := runtime.SerializerInfoForMediaType(base.SupportedMediaTypes(), mediaType)
			var held weak.Pointer[testapigroup.Carp]
			list := func() *testapigroup.CarpList {
				list := carps(100, "1")
				held = weak.Make(&list.Items[0])
				return list
			}
			for range 2 {
				if err := codec.EncoderForVersion(info.Serializer, testv1.SchemeGroupVersion).Encode(list(), &bytes.Buffer{}); err != nil {
					t.Fatal(err)
				}
			}
			w := &looking{look: func() {
				goruntime.GC()
				if held.Value() != nil {
					t.Error("the objects are in memory while the list is written")
				}
			}}
			if err := codec.EncoderForVersion(info.Serializer, testv1.SchemeGroupVersion).Encode(list(), w); err != nil {
				t.Fatal(err)
			}
			if w.Len() == 0 {
				t.Error("nothing was written")
			}
		})
	}
}

// Kept objects expire when clients no longer list them, and never exceed keptBytes.
func TestWhatWasKeptGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{}
		items := func(from, count int) (items []runtime.Object, data [][]byte) {
			for i := range count {
				items = append(items, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(from + i)), ResourceVersion: "1"}})
			}
			return items, make([][]byte, count)
		}
		list := func(from, count, size int) (known int) {
			items, data := items(from, count)
			room := k.recall(keptKind{}, items, data)
			var fresh []int
			for i := range data {
				if data[i] != nil {
					known++
				} else if room > 0 {
					data[i], fresh = make([]byte, size), append(fresh, i)
				}
			}
			if room > 0 {
				// Meanwhile, no other list may add items.
				if again := k.recall(keptKind{}, items, make([][]byte, count)); again > 0 {
					t.Error("two lists add what they have at once")
				}
				k.keep(keptKind{}, items, data, fresh)
			}
			return known
		}
		for range 2 {
			if list(0, 10, 1) > 0 {
				t.Error("what is listed once is kept")
			}
		}
		if known := list(0, 10, 1); known != 10 {
			t.Errorf("%d objects are known", known)
		}
		for range 6 {
			time.Sleep(keptFor / 4)
			list(0, 5, 1)
		}
		if known := list(0, 10, 1); known != 5 {
			t.Errorf("%d objects are known, when 5 were listed for a while", known)
		}
		const large = 1 << 20
		list(100, 100, large)
		held := func() (bytes, kinds int) {
			k.mu.RLock()
			defer k.mu.RUnlock()
			return k.bytes, len(k.kinds)
		}
		if bytes, _ := held(); bytes > keptBytes+2*large {
			t.Errorf("%d bytes are kept", bytes)
		}
		time.Sleep(2 * keptFor)
		if bytes, kinds := held(); bytes != 0 || kinds != 0 {
			t.Errorf("%d bytes of %d kinds are kept after a while without lists", bytes, kinds)
		}
	})
}
