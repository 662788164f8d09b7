package objects

import (
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
)

func TestTheSizeOfAnObjectIsItsMemory(t *testing.T) {
	content, err := k8sruntime.DefaultUnstructuredConverter.ToUnstructured(somePod())
	if err != nil {
		t.Fatal(err)
	}
	for name, obj := range map[string]k8sruntime.Object{
		"pod":          somePod(),
		"unstructured": &unstructured.Unstructured{Object: content},
		"secret":       &corev1.Secret{Data: map[string][]byte{"a": make([]byte, 10<<10)}},
		"empty":        &corev1.ConfigMap{},
	} {
		copies := make([]k8sruntime.Object, 1000)
		before := heap()
		for i := range copies {
			copies[i] = obj.DeepCopyObject()
		}
		taken, size := (heap()-before)/len(copies), Size(obj)
		// Copies share the texts, which count in full.
		if taken > 2*size || size > 2*taken {
			t.Errorf("%s: a copy takes %d bytes, and not %d", name, taken, size)
		}
		runtime.KeepAlive(copies)
	}
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
