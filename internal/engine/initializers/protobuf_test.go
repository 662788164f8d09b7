package initializers

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// pendingObject is a ConfigMap that waits for a.example.com, encoded by the client of Kubernetes
// 1.8; the test in bench/legacy runs that client itself.
const pendingObject = "6b3873000a0f0a0276311209436f6e6669674d617012380a360a016f12001a0022002a00320038004200" +
	"620d0a046e6f746512056d696e65217a008201110a0f0a0d612e6578616d706c652e636f6d1a002200"

var configMaps = func() runtime.Serializer {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err)
	}
	return protobuf.NewSerializer(scheme, scheme)
}()

func configMap(annotations map[string]string, field *Initializers) *corev1.ConfigMap {
	c := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "o", Annotations: annotations, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Data:       map[string]string{"k": "v"},
	}
	if field != nil {
		Set(c, field)
	}
	return c
}

func encodeProtobuf(t testing.TB, obj runtime.Object) []byte {
	t.Helper()
	data, err := runtime.Encode(configMaps, obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// An exposed object has no annotation. Hiding it again gives the first object.
func TestProtobufCarriesTheField(t *testing.T) {
	failed := &metav1.Status{Status: "Failure", Message: "no", Reason: "TooMany", Code: 409, Details: &metav1.StatusDetails{Kind: "quota"}}
	for _, c := range []struct {
		name        string
		annotations map[string]string
		field       *Initializers
	}{
		{"no field", map[string]string{"a": "b"}, nil},
		{"a list", nil, &Initializers{Pending: []Initializer{{Name: "a.example.com"}, {Name: "b.example.com"}}}},
		{"a list beside annotations", map[string]string{"a": "b", "z": "y"}, &Initializers{Pending: []Initializer{{Name: "a.example.com"}}}},
		{"S11.54 pairs", nil, &Initializers{Pending: []Initializer{{Name: "a.example.com"}}, Paired: []Pair{
			{Name: "a.example.com", Finalizer: "example.com/a", Claimed: true}, {Name: "b.example.com", Finalizer: "example.com/b"},
		}}},
		{"a result", nil, &Initializers{Pending: []Initializer{{Name: "a.example.com"}}, Result: failed}},
		{"neither", nil, &Initializers{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj := configMap(c.annotations, c.field)
			single, err := ExposeProtobuf(encodeProtobuf(t, obj), false)
			if err != nil {
				t.Fatal(err)
			}
			list, err := ExposeProtobuf(encodeProtobuf(t, &corev1.ConfigMapList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"},
				ListMeta: metav1.ListMeta{ResourceVersion: "7"},
				Items:    []corev1.ConfigMap{*configMap(nil, nil), *obj},
			}), true)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := obj.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if raw, err = ExposeProtobuf(raw, false); err != nil {
				t.Fatal(err)
			}
			for _, data := range [][]byte{single, list, raw} {
				if strings.Contains(string(data), Annotation) {
					t.Errorf("the annotation shows: %q", data)
				}
			}
			if !strings.Contains(string(list), string(raw)) {
				t.Errorf("the list has another item than the object: %q, %q", list, raw)
			}
			decoded := &corev1.ConfigMap{}
			if _, _, err := configMaps.Decode(single, nil, decoded); err != nil {
				t.Fatal(err)
			}
			if Has(decoded) {
				t.Error("the decoder of today knows the field")
			}
			if err := HideProtobuf(single, decoded); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(obj, decoded); diff != "" {
				t.Errorf("the object changed (-want +got):\n%s", diff)
			}
			alone := &corev1.ConfigMap{}
			if err := HideProtobuf(raw, alone); err != nil || Has(alone) != (c.field != nil) {
				t.Errorf("an object in a stream: %v, %v", alone, err)
			}
		})
	}
}

func TestHideProtobuf(t *testing.T) {
	known, err := hex.DecodeString(pendingObject)
	if err != nil {
		t.Fatal(err)
	}
	// wrapped returns an envelope around an object with the given metadata.
	wrapped := func(metadata ...string) []byte {
		object := ""
		for _, m := range metadata {
			object += "\x0a" + string(rune(len(m))) + m
		}
		return []byte("k8s\x00\x12" + string(rune(len(object))) + object)
	}
	const a, b = "\x0a\x0f\x0a\x0da.example.com", "\x0a\x0f\x0a\x0db.example.com"
	for _, c := range []struct {
		name, want string
		data       []byte
		fails      bool
	}{
		{"what the client of 2017 writes", "a.example.com", known, false},
		{"an empty message is a field", "", wrapped("\x82\x01\x00"), false},
		{"no field", "none", wrapped("\x0a\x01o"), false},
		{"a message that occurs twice is one", "a.example.com b.example.com", wrapped("\x82\x01\x11" + a + "\x82\x01\x11" + b), false},
		{"metadata that occurs twice is one", "a.example.com b.example.com", wrapped("\x82\x01\x11"+a, "\x82\x01\x11"+b), false},
		{"unknown fields are skipped", "a.example.com", wrapped("\x82\x01\x13" + a + "\x38\x05"), false},
		{"of an entry whose name occurs twice the last counts", "z", wrapped("\x82\x01\x08\x0a\x06\x0a\x01y\x0a\x01z"), false},
		{"a number", "", wrapped("\x80\x01\x05"), true},
		{"a list that is a number", "", wrapped("\x82\x01\x02\x08\x05"), true},
		{"a result that is none", "", wrapped("\x82\x01\x03\x12\x01\xff"), true},
		{"a name that is a number", "", wrapped("\x82\x01\x04\x0a\x02\x08\x05"), true},
		{"a name that is cut off", "", wrapped("\x82\x01\x05\x0a\x03\x0a\x09x"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj := &corev1.ConfigMap{}
			err := HideProtobuf(c.data, obj)
			if c.fails {
				if err == nil || !strings.Contains(err.Error(), "metadata.initializers") || Has(obj) {
					t.Errorf("error %v, object %v", err, obj)
				}
				return
			}
			field, fieldErr := Get(obj)
			if err != nil || fieldErr != nil {
				t.Fatal(err, fieldErr)
			}
			got := "none"
			if field != nil {
				var names []string
				for _, p := range field.Pending {
					names = append(names, p.Name)
				}
				got = strings.Join(names, " ")
			}
			if got != c.want {
				t.Errorf("it waits for %q, want %q", got, c.want)
			}
		})
	}
	t.Run("what has no metadata has no field", func(t *testing.T) {
		if err := HideProtobuf(wrapped("\x82\x01\x11"+a), &metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// The field of every object that can be decoded can be encoded and decoded again, or gives an
// error.
func FuzzProtobuf(f *testing.F) {
	known, err := hex.DecodeString(pendingObject)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(known)
	for _, field := range []*Initializers{nil, {}, {Pending: []Initializer{{Name: "a.example.com"}}, Result: &metav1.Status{Status: "Failure"}}} {
		data, err := ExposeProtobuf(encodeProtobuf(f, configMap(map[string]string{"a": "b"}, field)), false)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		obj := &corev1.ConfigMap{}
		if _, _, err := configMaps.Decode(data, nil, obj); err != nil || Has(obj) {
			return
		}
		if err := HideProtobuf(data, obj); err != nil {
			return
		}
		exposed, err := ExposeProtobuf(encodeProtobuf(t, obj), false)
		if err != nil {
			t.Fatal(err)
		}
		again := &corev1.ConfigMap{}
		if _, _, err := configMaps.Decode(exposed, nil, again); err != nil {
			t.Fatal(err)
		}
		if err := HideProtobuf(exposed, again); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(encodeProtobuf(t, obj), encodeProtobuf(t, again)) {
			t.Errorf("the object changed (-want +got):\n%s", cmp.Diff(obj, again))
		}
	})
}
