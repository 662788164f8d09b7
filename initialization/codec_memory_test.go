package initialization

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// memory counts the requests for memory.
type memory struct {
	runtime.Allocator
	asked int
}

func (m *memory) Allocate(n uint64) []byte {
	m.asked++
	return m.Allocator.Allocate(n)
}

// k8s.io/apiserver passes reusable memory to encoders that implement EncoderWithAllocator.
func TestProtobufIsEncodedInMemoryThatIsGiven(t *testing.T) {
	codec := NewCodec(scheme.Codecs)
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"key": "value"}}
	for _, info := range codec.SupportedMediaTypes() {
		t.Run(info.MediaType, func(t *testing.T) {
			var want, got bytes.Buffer
			e := codec.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
			if err := e.Encode(obj, &want); err != nil {
				t.Fatal(err)
			}
			m := &memory{}
			if err := e.(runtime.EncoderWithAllocator).EncodeWithAllocator(obj, &got, m); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.String(), got.String()); diff != "" {
				t.Errorf("with memory (-without +with):\n%s", diff)
			}
			if used := info.MediaType == runtime.ContentTypeProtobuf; used != (m.asked > 0) {
				t.Errorf("memory was asked for %d times", m.asked)
			}
		})
	}
}
