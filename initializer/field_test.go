package initializer

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestPatch(t *testing.T) {
	const stored = `
metadata: {name: o, uid: u, resourceVersion: "7", labels: {a: "1", b: "2"}, initializers: {pending: [{name: x}, {name: me}]}}
spec: {replicas: 1, list: [1, 2], gone: {deep: true}}`
	for _, test := range []struct {
		name, stored string
		change       func(*unstructured.Unstructured)
		failed       *Failure
		want         string
	}{
		{name: "the name is taken away", stored: stored,
			want: `{"metadata":{"initializers":{"pending":[{"name":"x"}]},"resourceVersion":"7","uid":"u"}}`},
		{name: "with the last name the field goes", stored: `metadata: {name: o, uid: u, resourceVersion: "7", initializers: {pending: [{name: me}]}}`,
			want: `{"metadata":{"initializers":null,"resourceVersion":"7","uid":"u"}}`},
		{name: "what has changed, and nothing else", stored: stored, change: func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{"a": "1", "c": "3"})
			spec := u.Object["spec"].(map[string]any)
			spec["list"] = []any{int64(3)}
			delete(spec, "gone")
			unstructured.RemoveNestedField(u.Object, "metadata", "initializers")
		}, want: `{"metadata":{"initializers":{"pending":[{"name":"x"}]},"labels":{"b":null,"c":"3"},"resourceVersion":"7","uid":"u"},"spec":{"gone":null,"list":[3]}}`},
		{name: "a failure", stored: stored, failed: Fail(0, "TooMany", "no more %s", "pods").(*Failure),
			want: `{"metadata":{"initializers":{"pending":[{"name":"x"},{"name":"me"}],"result":{"code":500,"message":"no more pods","metadata":{},"reason":"TooMany","status":"Failure"}},"resourceVersion":"7","uid":"u"}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := parse(t, test.stored)
			keep := before.DeepCopy()
			next := before.DeepCopy()
			if test.change != nil {
				test.change(next)
			}
			patch, err := patchOf(before, next, "me", test.failed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(patch)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(keep.Object, before.Object); diff != "" {
				t.Errorf("the stored object was changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTurn(t *testing.T) {
	p := &parallels{changed: func() {}}
	p.read([]any{
		parse(t, `{metadata: {name: two}, initializers: [{name: me, parallel: false}, {name: p, parallel: true}]}`),
		parse(t, `{metadata: {name: one}, initializers: [{name: me, parallel: true}, {name: plain}]}`),
	})
	for _, test := range []struct {
		field           string
		plain, parallel bool
	}{
		{`{pending: [{name: me}, {name: x}]}`, true, true},
		{`{pending: [{name: p}, {name: me}]}`, false, true},
		{`{pending: [{name: plain}, {name: me}]}`, false, false},
		{`{pending: [{name: p}, {name: plain}, {name: me}]}`, false, false},
		{`{pending: [{name: x}]}`, false, false},
		{`{pending: []}`, false, false},
		{`null`, false, false},
		{`{pending: [{name: me}], result: {status: Failure}}`, false, false},
		{`{pending: me}`, false, false},
	} {
		u := parse(t, `metadata: {name: o, initializers: `+test.field+`}`)
		c := &Controller{options: Options{Name: "me"}}
		if got := c.turn(u); got != test.plain {
			t.Errorf("%s: plain: %v, want %v", test.field, got, test.plain)
		}
		c.parallel = p
		if got := c.turn(u); got != test.parallel {
			t.Errorf("%s: parallel: %v, want %v", test.field, got, test.parallel)
		}
	}
}

func TestClaim(t *testing.T) {
	for _, test := range []struct {
		field, want string
		claimed     bool
	}{
		{`{pending: [{name: me}], paired: [{name: x, finalizer: e/x, claimed: true}, {name: me, finalizer: e/f}]}`,
			`[{"claimed":true,"finalizer":"e/x","name":"x"},{"claimed":true,"finalizer":"e/f","name":"me"}]`, false},
		{`{pending: [{name: me}], paired: [{name: me, finalizer: e/f, claimed: true}]}`, `[{"claimed":true,"finalizer":"e/f","name":"me"}]`, true},
		{`{pending: [{name: me}]}`, "", false},
		{`{pending: [{name: me}], paired: [{name: me, finalizer: e/other}]}`, "", false},
	} {
		pairs, claimed, err := claimOf(parse(t, `metadata: {name: o, initializers: `+test.field+`}`), "me", "e/f")
		if test.want == "" {
			if err == nil || !strings.Contains(err.Error(), "register the initializer with that finalizer") {
				t.Errorf("S11.55 %s: error %v", test.field, err)
			}
			continue
		}
		if data, _ := json.Marshal(pairs); err != nil || string(data) != test.want || claimed != test.claimed {
			t.Errorf("S11.55 %s: %s, %v, %v", test.field, data, claimed, err)
		}
	}
}

func TestIncludeUninitialized(t *testing.T) {
	var queries []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		queries = append(queries, req.Method+" "+req.URL.RawQuery)
	}))
	defer server.Close()
	client := &http.Client{Transport: IncludeUninitialized(http.DefaultTransport)}
	for _, method := range []string{"GET", "PATCH"} {
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	if want := []string{"GET includeUninitialized=true&watch=1", "PATCH watch=1"}; !slices.Equal(queries, want) {
		t.Errorf("sent %q, want %q", queries, want)
	}
}

func TestNewChecksOptions(t *testing.T) {
	good := Options{Name: "a.example.com", Config: &rest.Config{Host: "https://localhost:1"},
		Resources: []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}, Initialize: func(context.Context, *unstructured.Unstructured) error { return nil }}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*Options){
		"needs a name":     func(o *Options) { o.Name = "" },
		"configuration":    func(o *Options) { o.Config = nil },
		"has no resources": func(o *Options) { o.Resources = nil },
		"has no function":  func(o *Options) { o.Initialize = nil },
		"or neither":       func(o *Options) { o.Finalizer = "example.com/f" },
	} {
		o := good
		spoil(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

func TestOnlyNamesAreKept(t *testing.T) {
	u := parse(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: o, namespace: ns, uid: u, resourceVersion: "7", labels: {a: b}}, data: {x: y}}`)
	data, err := json.Marshal(nameOf(u).Object)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o","namespace":"ns","resourceVersion":"7","uid":"u"}}`
	if string(data) != want {
		t.Errorf("kept %s, want %s", data, want)
	}
}
