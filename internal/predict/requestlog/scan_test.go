package requestlog

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// asDecoded compares what the functions of scan.go find in a text with what a decoder finds.
func asDecoded(t *testing.T, text []byte) {
	t.Helper()
	want := map[string]json.RawMessage{}
	if json.Unmarshal(text, &want) != nil || want == nil {
		// What is not valid is found not to be by those who decode the values.
		members(text, func(string, []byte) {})
		apart(text, "a")
		MetaOf(text)
		return
	}
	got := map[string]json.RawMessage{}
	if !members(text, func(name string, value []byte) { got[name] = bytes.Clone(value) }) {
		t.Fatalf("%s: no members", text)
	}
	for name, value := range want {
		// A decoder replaces what is not UTF-8.
		if strings.ContainsRune(name, '\ufffd') {
			return
		}
		if !bytes.Equal(got[name], value) {
			t.Fatalf("%s: %q is %s, want %s", text, name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d members, want %d", text, len(got), len(want))
	}
	rest, values := apart(text, "a", "metadata")
	var left map[string]any
	if err := json.Unmarshal(rest, &left); err != nil {
		t.Fatalf("%s: rest %s: %v", text, rest, err)
	}
	for i, name := range []string{"a", "metadata"} {
		if !bytes.Equal(values[i], want[name]) {
			t.Fatalf("%s: apart %q is %s, want %s", text, name, values[i], want[name])
		}
		delete(want, name)
	}
	all := map[string]any{}
	for name, value := range want {
		var v any
		if err := json.Unmarshal(value, &v); err != nil {
			t.Fatal(err)
		}
		all[name] = v
	}
	if !reflect.DeepEqual(all, left) {
		t.Fatalf("%s: rest %s", text, rest)
	}
}

var scanned = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a":"x\"}{","b":[1,{"c":"\\"},"]"],"metadata":{"name":"n","uid":"\u0041"}}`, "{\n\t\"a\" : true ,\r\n \"b\" : null , \"c\" : -1.5e3 }\n",
	`{"a":{"b":{"c":[[],{}]}},"a":2}`, `{"\u0061":1,"b\\":2,"":3}`, `{"a":"\\\\","b":"\\\""}`, `{"a":[1,2],"b":[ ]}`,
	``, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{"a":[}`, `{"a":1}}`, `[]`, `null`, `{"a":"`, `{"a":"\"}`, `{a:1}`, `{"a":1 2}`, `{"a":]}`, `{"a":,}`,
}

// S25.8: lines are taken apart as a decoder does it.
func TestScan(t *testing.T) {
	for _, text := range scanned {
		asDecoded(t, []byte(text))
	}
	m, ok := MetaOf([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b","generateName":"c","uid":"d","resourceVersion":"5","creationTimestamp":null},"data":{"kind":"no"}}`))
	if want := (Meta{APIVersion: "v1", Kind: "ConfigMap", Name: "a", Namespace: "b", GenerateName: "c", UID: "d", ResourceVersion: "5"}); m != want || !ok {
		t.Errorf("%+v %v", m, ok)
	}
	for want, path := range map[string][]string{"b": {"a", "c"}, "": {"a", "d"}, "e": {"f"}} {
		if got := Text([]byte(`{"a":{"c":"b","d":1},"f":"e"}`), path...); got != want {
			t.Errorf("%v is %q, want %q", path, got, want)
		}
	}
	for _, bad := range []string{`{"kind":1}`, `{"metadata":[]}`, `{"metadata":{"name":{}}}`, `{"metadata":{"name":"a"}`} {
		if _, ok := MetaOf([]byte(bad)); ok {
			t.Errorf("%s is readable", bad)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, text := range scanned {
		f.Add([]byte(text))
	}
	f.Fuzz(asDecoded)
}
