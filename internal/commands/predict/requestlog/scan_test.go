package requestlog

import "testing"

// S25.8: a broken object has no metadata.
func TestMetaOf(t *testing.T) {
	m, ok := MetaOf([]byte(`{"apiVersion":"v1","kind":"A","kind":"ConfigMap","Kind":"B","metadata":{"name":"a","namespace":"b","generateName":"c","uid":"d","resourceVersion":"5","creationTimestamp":null},"data":{"kind":"` + "\xff" + `"}}`))
	want := Meta{Metadata: Metadata{Name: "a", Namespace: "b", GenerateName: "c", UID: "d", ResourceVersion: "5"}}
	want.APIVersion, want.Kind = "v1", "ConfigMap"
	if m != want || !ok {
		t.Errorf("%+v %v", m, ok)
	}
	for want, path := range map[string][]string{"b": {"a", "c"}, "": {"a", "d"}, "e": {"f"}} {
		if got := Text([]byte(`{"a":{"c":"b","d":1},"f":"e"}`), path...); got != want {
			t.Errorf("%v is %q, want %q", path, got, want)
		}
	}
	for _, bad := range []string{
		`{"kind":1}`, `{"metadata":[]}`, `{"metadata":{"name":{}}}`, `{"metadata":{"name":"a"}`, ``, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{"a":[}`, `{"a":1}}`, `[]`, `null`,
		`{"a":"`, `{"a":"\"}`, `{a:1}`, `{"a":1 2}`, `{"a":]}`, `{"a":,}`,
	} {
		if _, ok := MetaOf([]byte(bad)); ok {
			t.Errorf("%s is readable", bad)
		}
	}
}
