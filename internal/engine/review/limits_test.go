package review

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

func TestPatchesCannotGrowObjectsWithoutBound(t *testing.T) {
	double := func(n int) string {
		ops := []string{`{"op":"add","path":"/a","value":{"x":"` + strings.Repeat("x", 1000) + `"}}`}
		for i := range n {
			ops = append(ops, fmt.Sprintf(`{"op":"copy","from":"/a","path":"/a/%d"}`, i))
		}
		return "[" + strings.Join(ops, ",") + "]"
	}
	deep := func(n int) string {
		ops := []string{`{"op":"add","path":"/d","value":1}`}
		for range n {
			ops = append(ops, `{"op":"add","path":"/n","value":{}}`,
				`{"op":"move","from":"/d","path":"/n/d"}`, `{"op":"move","from":"/n","path":"/d"}`)
		}
		return "[" + strings.Join(ops, ",") + "]"
	}
	// shift returns a patch for a list of the given number of elements.
	shift := func(elements, n int, operation string) string {
		ops := []string{`{"op":"add","path":"/l","value":[` + strings.TrimSuffix(strings.Repeat("0,", elements), ",") + `]}`}
		for range n {
			ops = append(ops, operation)
		}
		return "[" + strings.Join(ops, ",") + "]"
	}
	const long = 200_000
	limit := new(*LimitError)
	for _, c := range []struct {
		name, patch string
		want        func(error) bool
	}{
		{"S5.33 ten copies of itself", double(10), nil},
		{"S5.33 fourteen copies of itself", double(14), func(err error) bool { return errors.As(err, limit) }},
		{"S5.33 forty copies of itself", double(40), func(err error) bool { return errors.As(err, limit) }},
		{"S5.33 a long list is emptied from the front", shift(11_000, 11_000, `{"op":"remove","path":"/l/0"}`), nil},
		{"S5.33 a very long list is emptied from the end", shift(long, 10_000, `{"op":"remove","path":"/l/-1"}`), nil},
		{"S5.33 elements of a very long list are moved", shift(long, 4000, `{"op":"move","from":"/l/0","path":"/l/199999"}`), func(err error) bool { return errors.Is(err, errMoved) }},
		{"S5.33 elements are added at the front of a very long list", shift(long, 4000, `{"op":"add","path":"/l/0","value":1}`), func(err error) bool { return errors.Is(err, errMoved) }},
		{"S5.6 a nested object", deep(100), nil},
		{"S5.6 an object that no decoder would read again", deep(maxDepth), func(err error) bool { return errors.Is(err, errDeep) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			wanted := func(err error) bool { return c.want == nil && err == nil || c.want != nil && c.want(err) }
			if _, err := applyPatch([]byte(`{}`), []byte(c.patch)); !wanted(err) {
				t.Errorf("applied to text: %v", err)
			}
			_, changed, err := applyPatchToMap(map[string]any{}, []byte(c.patch))
			if !wanted(err) || changed != (err == nil) {
				t.Errorf("applied to an object: %v, changed %v", err, changed)
			}
		})
	}
}

// Copies are counted like in the library of kube-apiserver, to the byte (S5.33).
func TestCopiesAreCountedAsUpstreamCountsThem(t *testing.T) {
	before := atomic.SwapInt64(&jsonpatch.AccumulatedCopySizeLimit, maxCopied)
	t.Cleanup(func() { atomic.StoreInt64(&jsonpatch.AccumulatedCopySizeLimit, before) })
	for _, over := range []int{-1, 0, 1} {
		for name, value := range map[string]func(size int) string{
			"a string":      func(size int) string { return `"` + strings.Repeat("x", size-len(`""`)) + `"` },
			"escaped texts": func(size int) string { return `"<\né` + strings.Repeat("x", size-len(`"\u003c\né"`)) + `"` },
			"an object": func(size int) string {
				return `{"a":[1,-2.5,null,true],"b":"` + strings.Repeat("x", size-len(`{"a":[1,-2.5,null,true],"b":""}`)) + `"}`
			},
		} {
			t.Run(fmt.Sprintf("%s and %d", name, over), func(t *testing.T) {
				half := maxCopied / 2
				doc := []byte(fmt.Sprintf(`{"first":%s,"second":%s,"none":null}`, value(half), value(half+over)))
				text := []byte(`[{"op":"copy","from":"/none","path":"/c"},{"op":"copy","from":"/first","path":"/a"},{"op":"copy","from":"/second","path":"/b"}]`)
				library, err := jsonpatch.DecodePatch(text)
				if err != nil {
					t.Fatal(err)
				}
				_, want := library.Apply(doc)
				_, got := applyPatch(doc, text)
				if refused := over > 0; (want != nil) != refused || (got != nil) != refused {
					t.Fatalf("upstream: %v; here: %v", want, got)
				}
				if want != nil && !strings.HasSuffix(got.Error(), want.Error()) {
					t.Errorf("%v, want the words of upstream: %v", got, want)
				}
			})
		}
	}
}

// Copied values are separate in the result, and while the patch is applied.
func TestCopiesAreApart(t *testing.T) {
	obj := map[string]any{"a": map[string]any{"list": []any{map[string]any{"x": int64(1)}}}}
	patched, _, err := applyPatchToMap(obj, []byte(`[
		{"op":"add","path":"/a/list/0/y","value":1},
		{"op":"copy","from":"/a","path":"/b"},
		{"op":"copy","from":"/b","path":"/c"},
		{"op":"add","path":"/a/list/0/y","value":2},
		{"op":"add","path":"/b/list/0/y","value":3}
	]`))
	if err != nil {
		t.Fatal(err)
	}
	element := func(of any, name string) map[string]any {
		return of.(map[string]any)[name].(map[string]any)["list"].([]any)[0].(map[string]any)
	}
	element(patched, "b")["y"] = int64(4)
	for name, want := range map[string]int64{"a": 2, "b": 4, "c": 1} {
		if got := element(patched, name)["y"]; got != want {
			t.Errorf("%s has %v, want %d", name, got, want)
		}
	}
	if _, there := element(obj, "a")["y"]; there {
		t.Error("the object was changed")
	}
}

// A patch ends soon after its context (S5.34).
func TestPatchesEndWithTheirContext(t *testing.T) {
	ops := strings.Repeat(`{"op":"add","path":"/a","value":1},`, 3*lookEvery)
	p, err := DecodePatch([]byte("[" + strings.TrimSuffix(ops, ",") + "]"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ looks, most int }{
		"before the first operation": {0, 0},
		"while it is applied":        {1, lookEvery},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := p.ApplyToMap(&endsAfter{t.Context(), c.looks}, nil, map[string]any{})
			failed := (*PatchError)(nil)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &failed) || failed.Index > c.most {
				t.Errorf("got %v, want the error of the context after at most %d operations", err, c.most)
			}
			if got := p.Edits(&endsAfter{t.Context(), c.looks}, map[string]any{}); len(got) > c.looks {
				t.Errorf("%d edits after %d looks at the context", len(got), c.looks)
			}
		})
	}
}

// endsAfter is a context that ends after several checks.
type endsAfter struct {
	context.Context
	looks int
}

func (e *endsAfter) Err() error {
	if e.looks--; e.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// Copies take approximately the memory that they need (S4.22).
func TestCopiesTakeMemory(t *testing.T) {
	var r room
	p, err := DecodePatch([]byte(`[{"op":"copy","from":"/list","path":"/a"},{"op":"copy","from":"/list","path":"/b"}]`))
	if err != nil {
		t.Fatal(err)
	}
	list := make([]any, 1000)
	for i := range list {
		list[i] = map[string]any{}
	}
	obj := map[string]any{"list": list}
	if _, _, err := p.ApplyToMap(t.Context(), &r, obj); err != nil {
		t.Fatal(err)
	}
	// An empty map takes 48 bytes, its place in a list 16; the patch is applied twice.
	if least, most := int64(2*2*64*len(list)), int64(2*2*128*len(list)); r.taken < least || r.taken > most {
		t.Errorf("%d bytes were taken, want between %d and %d", r.taken, least, most)
	}
	r.full = errors.New("full")
	if _, _, err := p.ApplyToMap(t.Context(), &r, obj); !errors.Is(err, r.full) {
		t.Errorf("got %v without memory", err)
	}
}

type room struct {
	taken int64
	full  error
}

func (r *room) Take(bytes int64) error {
	r.taken += bytes
	return r.full
}
