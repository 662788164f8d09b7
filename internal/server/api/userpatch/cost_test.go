package userpatch

import (
	"encoding/json"
	"fmt"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// shape is a kind of patch with a variable size.
type shape struct {
	name string
	of   types.PatchType
	make func(n int) (object, body string)
}

func nested(levels int, name, inner string) string {
	return strings.Repeat(`{"`+name+`":`, levels) + inner + strings.Repeat("}", levels)
}

func items(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

var long = strings.Repeat("k", 300)

var shapes = []shape{
	{"deep merge", types.MergePatchType, func(n int) (string, string) { return "{}", nested(n, long, "1") }},
	{"deep merge into a deep object", types.MergePatchType, func(n int) (string, string) { return nested(n, long, "1"), nested(n, long, "2") }},
	{"merge of empty lists", types.MergePatchType, func(n int) (string, string) { return "{}", `{"a":` + items(100*n, "[]") + "}" }},
	{"merge of lists in lists", types.MergePatchType, func(n int) (string, string) {
		return "{}", `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
	}},
	{"merge of objects in lists", types.MergePatchType, func(n int) (string, string) {
		return "{}", `{"a":` + strings.Repeat(`[{"`+long+`":`, n/2) + "1" + strings.Repeat("}]", n/2) + "}"
	}},
	{"moves in a long list", types.JSONPatchType, func(n int) (string, string) {
		return `{"a":` + items(30*n, "0") + "}", items(n, `{"op":"move","from":"/a/0","path":"/a/-"}`)
	}},
	{"additions in front", types.JSONPatchType, func(n int) (string, string) {
		return `{"a":[]}`, items(n, `{"op":"add","path":"/a/0","value":0}`)
	}},
	{"removals in front", types.JSONPatchType, func(n int) (string, string) {
		return `{"a":` + items(n, "0") + "}", items(n, `{"op":"remove","path":"/a/0"}`)
	}},
	{"a deep value", types.JSONPatchType, func(n int) (string, string) {
		return "{}", `[{"op":"add","path":"/a","value":` + nested(n, long, "1") + `},{"op":"test","path":"/a","value":` + nested(n, long, "1") + `}]`
	}},
	{"a long pointer", types.JSONPatchType, func(n int) (string, string) {
		return nested(n, long, "{}"), `[{"op":"add","path":"` + strings.Repeat("/"+long, n) + `","value":1}]`
	}},
	{"replacements of the whole", types.JSONPatchType, func(n int) (string, string) {
		return "{}", items(n, `{"op":"replace","path":"","value":{"a":{"b":[1,2,3]}}}`)
	}},
	{"copies", types.JSONPatchType, func(n int) (string, string) {
		return `{"a":[{"b":1}]}`, items(n, `{"op":"copy","from":"/a/0","path":"/a/-"}`)
	}},
}

// cost applies a patch several times, and returns the allocated bytes and the shortest time.
func cost(t testing.TB, p *Patch, object string, tries int) (allocated uint64, took time.Duration) {
	t.Helper()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	for i := range tries {
		metrics.Read(sample)
		before, began := sample[0].Value.Uint64(), time.Now()
		if _, _, err := p.Apply(t.Context(), []byte(object)); err != nil {
			t.Fatal(err)
		}
		spent := time.Since(began)
		metrics.Read(sample)
		if used := sample[0].Value.Uint64() - before; i == 0 || used < allocated {
			allocated = used
		}
		if i == 0 || spent < took {
			took = spent
		}
	}
	return allocated, took
}

// checkCost fails a test if a patch costs much more per byte of the patch and the object than ordinary patches do. Time
// is measured relative to decoding the same bytes.
func checkCost(t testing.TB, p *Patch, object string) {
	t.Helper()
	const (
		perByte = 150
		// Copies may have this many bytes whatever the length of the patch is.
		copies = 4 * maxCopied
		slower = 60
	)
	bytes := uint64(len(p.Body) + len(object))
	decoded := func() time.Duration {
		began := time.Now()
		for _, text := range []string{object, string(p.Body)} {
			var v any
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(began)
	}
	allocated, took := cost(t, p, object, 3)
	if allocated > perByte*bytes+copies {
		t.Errorf("%d bytes were allocated for %d bytes of patch and object, %d per byte", allocated, bytes, allocated/bytes)
	}
	// Another try reduces the noise of the machine.
	for try := 0; ; try++ {
		limit := slower*max(decoded(), decoded()) + 20*time.Millisecond
		if took < limit {
			return
		}
		if try == 3 {
			t.Errorf("%d bytes of patch and object took %s, want less than %s", bytes, took, limit)
			return
		}
		_, took = cost(t, p, object, 3)
	}
}

// Applying a patch is linear in the lengths of the patch and the object: four times the size needs about four times the
// memory, and no shape needs much more per byte than others (S27.11).
func TestPatchesAreLinear(t *testing.T) {
	for _, s := range speed.Some(t, 4, shapes) {
		for _, strict := range speed.Some(t, 1, []bool{false, true}) {
			t.Run(fmt.Sprintf("%s, strict %t", s.name, strict), func(t *testing.T) {
				of := func(n int) (*Patch, string) {
					object, body := s.make(n)
					return &Patch{Type: s.of, Body: []byte(body), Strict: strict}, object
				}
				p, object := of(1000)
				small, _ := cost(t, p, object, 3)
				p, object = of(4000)
				large, _ := cost(t, p, object, 3)
				// The runtime counts pages.
				if large > 8*small+1<<20 {
					t.Errorf("four times as much needs %d bytes in place of %d", large, small)
				}
				p, object = of(9000)
				checkCost(t, p, object)
			})
		}
	}
}

// FuzzCost makes a patch larger, and fails if it then costs more per byte than patches do.
func FuzzCost(f *testing.F) {
	for i := range shapes {
		f.Add(uint8(i), uint16(500), `"a"`, "/a/b")
	}
	f.Add(uint8(0), uint16(9000), `{"a":{"b":null}}`, "/a/-1")
	f.Fuzz(func(t *testing.T, kind uint8, n uint16, value, pointer string) {
		levels := int(n)%9000 + 1
		quoted, err := json.Marshal(pointer)
		if err != nil || !json.Valid([]byte(value)) || len(value)+len(quoted) > 300 || strings.Count(value, "{")+strings.Count(value, "[") > 100 {
			t.Skip()
		}
		var p *Patch
		object := `{"a":` + items(levels, value) + "}"
		switch kind % 4 {
		case 0:
			p = &Patch{Type: types.MergePatchType, Body: []byte(nested(levels, long, value))}
			object = nested(levels, long, "{}")
		case 1:
			p = &Patch{Type: types.MergePatchType, Body: []byte(`{"a":` + items(levels, value) + `,"b":` + nested(levels, "x", value) + "}")}
		default:
			operation := []string{`{"op":"add","path":"/a/0","value":%s}`, `{"op":"test","path":"/a/-1","value":%s},{"op":"copy","from":"/a/0","path":"/a/-"},{"op":"move","from":"/a/0","path":"/a/1"}`}[kind/4%2]
			p = &Patch{Type: types.JSONPatchType, Body: []byte("[" + strings.TrimSuffix(strings.Repeat(fmt.Sprintf(operation, value)+",", levels/3+1), ",") + `,{"op":"add","path":` + string(quoted) + `,"value":1}]`)}
		}
		if _, _, err := p.Apply(t.Context(), []byte(object)); err == nil {
			checkCost(t, p, object)
		}
	})
}
