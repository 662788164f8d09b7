package manifests_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// Reading a large repository keeps its objects in memory, without the YAML nodes of their fields.
func TestObjectsTakeLittleMemory(t *testing.T) {
	const objects, fields, most = 2000, 40, 10 << 10
	var text strings.Builder
	for i := range objects {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\ndata:\n", i)
		for k := range fields {
			fmt.Fprintf(&text, "  key%d: value %d\n", k, i)
		}
	}
	data := []byte(text.String())
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	content := manifests.Parse("all.yaml", data)
	each := (heap() - before) / objects
	if len(content.Objects) != objects || each > most {
		t.Errorf("%d objects take %d bytes each, more than %d", len(content.Objects), each, most)
	}
	if line, column := content.Objects[1].Place("data.key2"); line != 53 || column != 3 {
		t.Errorf("a field is at %d:%d", line, column)
	}
	for _, o := range content.Objects {
		o.Place("data.key2")
	}
	if each := (heap() - before) / objects; each > most {
		t.Errorf("%d objects take %d bytes each once a place in each was asked for, more than %d", objects, each, most)
	}
	runtime.KeepAlive(data)
	runtime.KeepAlive(content)
}
