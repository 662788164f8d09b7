package review

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"
)

func decoded(t testing.TB, text string) any {
	t.Helper()
	if text == "" {
		return nil
	}
	var v any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Operations are named by the current object of each, and have the replaced values (S5.32).
func TestEdits(t *testing.T) {
	const pod = `{"metadata":{"labels":{"a":"1"},"annotations":{"example.com/x":"old"}},
		"spec":{"n":7,"containers":[{"name":"web","image":"i","env":[{"name":"A","value":"1"}],"args":["x"]},{"name":"side","ports":[{"containerPort":80},{"containerPort":443}]}]}}`
	const large = `[{"op":"replace","path":"/spec","value":null}]`
	object := decoded(t, pod).(map[string]any)
	for _, tt := range []struct{ name, patch, want string }{
		{"a member", `[{"op":"add","path":"/spec/hostname","value":"h"}]`, `spec.hostname`},
		{"a member that is there", `[{"op":"add","path":"/spec/n","value":8}]`, `spec.n was 7`},
		{"a label", `[{"op":"remove","path":"/metadata/annotations/example.com~1x"}]`, `metadata.annotations[example.com/x] was "old"`},
		{"an element by its name", `[{"op":"replace","path":"/spec/containers/0/image","value":"j"}]`, `spec.containers[name=web].image was "i"`},
		{"an element by a number", `[{"op":"remove","path":"/spec/containers/1/ports/1"}]`, `spec.containers[name=side].ports[containerPort=443] was {"containerPort":443}`},
		{"an element without a name", `[{"op":"replace","path":"/spec/containers/0/args/0","value":"y"}]`, `spec.containers[name=web].args[0] was "x"`},
		{"a new element", `[{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"B","value":"2"}}]`, `spec.containers[name=web].env[name=B]`},
		{"a new element before others", `[{"op":"add","path":"/spec/containers/0","value":{"name":"first"}},{"op":"add","path":"/spec/containers/1/env/0/value","value":"2"}]`,
			`spec.containers[name=first] | spec.containers[name=web].env[name=A].value was "1"`},
		{"a new element with the name of another", `[{"op":"add","path":"/spec/containers/0/env/-","value":{"name":"A","value":"2"}}]`, `spec.containers[name=web].env[1]`},
		{"a list that an operation before has changed", `[{"op":"remove","path":"/spec/containers/0/env/0/value"},{"op":"remove","path":"/spec/containers/0/env"}]`,
			`spec.containers[name=web].env[name=A].value was "1" | spec.containers[name=web].env was [{"name":"A"}]`},
		{"a move", `[{"op":"move","from":"/spec/n","path":"/metadata/labels/a"}]`, `metadata.labels.a was "1"`},
		{"a test", `[{"op":"test","path":"/spec/n","value":7}]`, `spec.n`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := DecodePatch([]byte(tt.patch))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range p.Edits(t.Context(), object) {
				text := e.Field
				if e.Was != nil {
					text += " was " + string(e.Was)
				}
				got = append(got, text)
			}
			if text := strings.Join(got, " | "); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
			if diff := cmp.Diff(decoded(t, pod), any(object)); diff != "" {
				t.Errorf("the object was changed: %s", diff)
			}
		})
	}
	t.Run("bounded", func(t *testing.T) {
		object := map[string]any{"spec": map[string]any{"text": strings.Repeat("x", MaxWas)}}
		p, err := DecodePatch([]byte(large))
		if err != nil {
			t.Fatal(err)
		}
		if e := p.Edits(t.Context(), object)[0]; e.Was != nil || e.WasBytes != MaxWas+1 {
			t.Errorf("of a large value are kept %d bytes, and its size is %d", len(e.Was), e.WasBytes)
		}
		many := strings.Repeat(`{"op":"add","path":"/list/0","value":{"name":"a"}},`, 10_000)
		if p, err = DecodePatch([]byte("[" + strings.TrimSuffix(many, ",") + "]")); err != nil {
			t.Fatal(err)
		}
		if got := len(p.Edits(t.Context(), map[string]any{"list": []any{}})); got != maxEdits {
			t.Errorf("%d operations are looked at, want %d", got, maxEdits)
		}
		list := make([]any, 40)
		var patch []string
		for i := range list {
			list[i] = strings.Repeat("y", 4<<10)
			patch = append(patch, fmt.Sprintf(`{"op":"replace","path":"/list/%d","value":1}`, i))
		}
		if p, err = DecodePatch([]byte("[" + strings.Join(patch, ",") + "]")); err != nil {
			t.Fatal(err)
		}
		if size := Size(p.Edits(t.Context(), map[string]any{"list": list})); size > maxWasAll+10<<10 {
			t.Errorf("%d bytes are kept of one patch", size)
		}
	})
}

func TestDifferences(t *testing.T) {
	for _, tt := range []struct{ name, before, after, want string }{
		{"none", `{"a":1}`, `{"a":1.0}`, ``},
		{"a new value", ``, `{"a":1}`, `x: - -> {"a":1}`},
		{"members", `{"a":1,"b":2,"c":{"d":3}}`, `{"a":1,"c":{"d":4},"e":5}`, `x.b: 2 -> - | x.c.d: 3 -> 4 | x.e: - -> 5`},
		{"elements by name", `[{"name":"web","env":[{"name":"A","value":"1"}]},{"name":"gone"}]`, `[{"name":"new"},{"name":"web","env":[{"name":"A","value":"2"},{"name":"B"}]}]`,
			`x[name=gone]: {"name":"gone"} -> - | x[name=new]: - -> {"name":"new"} | x[name=web].env[name=A].value: "1" -> "2" | x[name=web].env[name=B]: - -> {"name":"B"}`},
		{"new elements", ``, `[{"name":"a"},{"name":"b"}]`, `x[name=a]: - -> {"name":"a"} | x[name=b]: - -> {"name":"b"}`},
		{"an order", `[{"name":"a"},{"name":"b"}]`, `[{"name":"b"},{"name":"a"}]`, `x: [{"name":"a"},{"name":"b"}] -> [{"name":"b"},{"name":"a"}]`},
		{"elements without names", `[1,2]`, `[1,3]`, `x: [1,2] -> [1,3]`},
		{"two of one name", `[{"name":"a"}]`, `[{"name":"a"},{"name":"a"}]`, `x: [{"name":"a"}] -> [{"name":"a"},{"name":"a"}]`},
		{"another type", `{"a":[]}`, `{"a":"b"}`, `x.a: [] -> "b"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := func(v any) string {
				if v == nil {
					return "-"
				}
				data, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				return string(data)
			}
			before, after := decoded(t, tt.before), decoded(t, tt.after)
			var got []string
			for _, d := range Differences(before, after) {
				got = append(got, d.Field("x")+": "+text(d.Before)+" -> "+text(d.After))
				part, ok := after, true
				for _, s := range d.Path {
					if part, ok = s.Of(part); !ok {
						break
					}
				}
				if ok != (d.After != nil) || ok && !cmp.Equal(part, d.After) {
					t.Errorf("%v leads to %v", d.Path, part)
				}
			}
			if text := strings.Join(got, " | "); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}
