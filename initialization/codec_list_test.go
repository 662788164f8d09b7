package initialization

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
	return &encoder{inner: base, form: c.(*codec).forms[base]}
}

// Lists are written item by item, also when an object in them is not initialized (S11.36):
// a list takes the memory of its largest object, and only the object that carries
// metadata.initializers is encoded twice.
func TestListsAreWrittenItemByItem(t *testing.T) {
	const count, size = 50, 1 << 10
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
					// The conversion of custom resources is that of their definition.
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
