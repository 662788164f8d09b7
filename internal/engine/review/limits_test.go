package review

import (
	"errors"
	"fmt"
	"strings"
	"testing"
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
	for _, c := range []struct {
		name, patch string
		want        error
	}{
		{"S5.6 ten copies of itself", double(10), nil},
		{"S5.6 forty copies of itself", double(40), errCopied},
		{"S5.6 a nested object", deep(100), nil},
		{"S5.6 an object that no decoder would read again", deep(maxDepth), errDeep},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := applyPatch([]byte(`{}`), []byte(c.patch)); !errors.Is(err, c.want) {
				t.Errorf("applied to text: %v, want %v", err, c.want)
			}
			_, changed, err := applyPatchToMap(map[string]any{}, []byte(c.patch))
			if !errors.Is(err, c.want) || changed != (err == nil) {
				t.Errorf("applied to an object: %v, changed %v, want %v", err, changed, c.want)
			}
		})
	}
}
