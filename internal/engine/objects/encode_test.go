package objects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
)

// FuzzEncodeContent compares with the standard library, byte by byte.
func FuzzEncodeContent(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, `{"a":null,"b":[],"c":{},"d":[null,true,false]}`,
		`{"z":1,"a":-9223372036854775808,"m":{"y":1.5,"x":1e100,"f":0.0000001}}`,
		`{"a":"<&>\"\\\u2028é\u0000\ud800","é":"ключ","":[[[]]]}`,
		`{"a":{"b":{"c":{"d":[{"e":1,"b":2},{"a":1}]}},"a":1},"0":0}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var content map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &content); err != nil {
			t.Skip()
		}
		want, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		got, err := encodeContent(content)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	var items []any
	for i := range 1000 {
		items = append(items, map[string]any{"name": fmt.Sprintf("item-%04d", i), "value": strings.Repeat("x", 72)})
	}
	object := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "items": items}
	for name, encode := range map[string]func() ([]byte, error){
		"own":      func() ([]byte, error) { return encodeContent(object) },
		"standard": func() ([]byte, error) { return json.Marshal(object) },
	} {
		b.Run("kilobytes=100/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if data, err := encode(); err != nil || len(data) < 100_000 {
					b.Fatal(len(data), err)
				}
			}
		})
	}
}
