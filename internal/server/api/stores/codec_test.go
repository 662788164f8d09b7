package stores_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/server/api/resources"
	"github.com/gatehouse-dev/gatehouse/test/catalogtest"
)

// carried is metadata.initializers with one name, as field 16 of ObjectMeta.
const carried = "\x82\x01\x11\x0a\x0f\x0a\x0da.example.com"

// Every built-in kind has metadata.initializers in protobuf as field 16 of its
// metadata, alone and in lists, and no annotation in its place.
func TestProtobufOfEveryKind(t *testing.T) {
	kinds := map[schema.GroupVersionKind]*resources.Endpoint{}
	for _, v := range catalogtest.Build(t) {
		for _, e := range v.Endpoints {
			kinds[e.Kind] = e
		}
	}
	if len(kinds) < 80 {
		t.Fatalf("there are %d kinds", len(kinds))
	}
	objects, lists := 0, 0
	for kind, e := range kinds {
		codec := e.Scope.Serializer
		info, ok := runtime.SerializerInfoForMediaType(codec.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
		if !ok {
			t.Fatalf("%s: no protobuf", kind)
		}
		encoder := codec.EncoderForVersion(info.Serializer, kind.GroupVersion())
		encode := func(obj runtime.Object) string {
			data, err := runtime.Encode(encoder, obj)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if strings.Contains(string(data), initializers.Annotation) {
				t.Errorf("%s: %T shows the annotation", kind, obj)
			}
			return string(data)
		}
		obj, err := e.Scope.Creater.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := obj.(metav1.Object); !ok {
			continue
		}
		objects++
		initializers.Set(obj, &initializers.Initializers{Pending: []initializers.Initializer{{Name: "a.example.com"}}})
		data := encode(obj)
		if got := metadataOf(t, data); !strings.HasSuffix(got, carried) {
			t.Errorf("%s: the metadata is %q", kind, got)
		}
		decoded, _, err := codec.DecoderToVersion(info.Serializer, kind.GroupVersion()).Decode([]byte(data), &kind, nil)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if field, err := initializers.Get(decoded); err != nil || field == nil || field.Pending[0].Name != "a.example.com" {
			t.Errorf("%s: decoded %v, %v", kind, field, err)
		}
		kind.Kind += "List"
		list, err := e.Scope.Creater.New(kind)
		if err != nil {
			continue
		}
		lists++
		plain, err := e.Scope.Creater.New(e.Kind)
		if err != nil {
			t.Fatal(err)
		}
		if err := meta.SetList(list, []runtime.Object{plain, obj}); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if data := encode(list); strings.Count(data, carried) != 1 {
			t.Errorf("%s: it is %q", kind, data)
		}
	}
	if objects < 80 || lists < 60 {
		t.Errorf("only %d kinds with metadata and %d lists were tried", objects, lists)
	}
}

// metadataOf returns the metadata of an object in protobuf, including its envelope.
func metadataOf(t *testing.T, data string) string {
	t.Helper()
	rest := []byte(strings.TrimPrefix(data, "k8s\x00"))
	for _, number := range []protowire.Number{2, 1} {
		for {
			found, wireType, n := protowire.ConsumeTag(rest)
			if n < 0 || wireType != protowire.BytesType {
				t.Fatalf("no field %d in %q", number, data)
			}
			value, size := protowire.ConsumeBytes(rest[n:])
			if rest = rest[n+size:]; found == number {
				rest = value
				break
			}
		}
	}
	return string(rest)
}
