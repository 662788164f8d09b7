package customresources

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// widgets has all parts that a CRD may have: schema, defaults, rules, columns, subresources,
// selectable fields.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all, toys]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Color, type: string, jsonPath: .spec.color}
    - {name: Wide, type: string, jsonPath: .spec.size, priority: 1}
    selectableFields: [{jsonPath: .spec.color}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              color: {type: string, default: red}
              size: {type: integer, maximum: 10}
              replicas: {type: integer}
              tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
            x-kubernetes-validations:
            - {rule: "!has(self.size) || self.size != 7", message: seven is taken}
          status:
            type: object
            properties: {replicas: {type: integer}, selector: {type: string}, phase: {type: string}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

const (
	widgetsPath = "/apis/example.com/v1/namespaces/ns/widgets"
	betaPath    = "/apis/example.com/v1beta1/namespaces/ns/widgets"
)

func widget(name string, spec string) string {
	return object("apiVersion: example.com/v1", "kind: Widget", "metadata: {name: "+name+"}", "spec: "+spec)
}

func TestEstablishedMeansServed(t *testing.T) {
	e := newEnv(t)
	for _, name := range []string{"a", "b", "c"} {
		e.define(strings.NewReplacer("widget", "widget"+name, "Widget", "Widget"+name, "[wd]", "[]").Replace(widgets))
		e.must(http.StatusCreated, "POST", "/apis/example.com/v1/namespaces/ns/widget"+name+"s",
			object("apiVersion: example.com/v1", "kind: Widget"+name, "metadata: {name: x}"))
	}
}

// A written object is returned with the schema's defaults, and without unknown fields.
func TestSchema(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	tests := []struct {
		name, query, spec string
		code              int
		want              map[string]any
		message, warning  string
	}{
		{name: "defaults are filled in", spec: "{size: 1}", code: 201, want: map[string]any{"color": "red", "size": 1.0}},
		{name: "unknown fields are pruned", query: "?fieldValidation=Ignore", spec: "{size: 1, bogus: 2}", code: 201, want: map[string]any{"color": "red", "size": 1.0}},
		{name: "unknown fields are kept where the schema says so", spec: "{free: {bogus: 2}}", code: 201,
			want: map[string]any{"color": "red", "free": map[string]any{"bogus": 2.0}}},
		{name: "nulls are defaulted", spec: "{color: null}", code: 201, want: map[string]any{"color": "red"}},
		{name: "unknown fields are warned of by default", spec: "{bogus: 2}", code: 201, want: map[string]any{"color": "red"}, warning: `unknown field "spec.bogus"`},
		{name: "unknown fields are refused by Strict", query: "?fieldValidation=Strict", spec: "{bogus: 2}", code: 400, message: `unknown field "spec.bogus"`},
		{name: "values are checked", spec: "{size: 11}", code: 422, message: "spec.size in body should be less than or equal to 10"},
		{name: "types are checked", spec: "{size: big}", code: 422, message: `spec.size: Invalid value: "string"`},
		{name: "sets have no duplicates", spec: "{tags: [a, a]}", code: 422, message: "spec.tags[1]: Duplicate value"},
		{name: "CEL rules are checked", spec: "{size: 7}", code: 422, message: "seven is taken"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := &env{Server: e.Server, t: t, ctx: e.ctx, url: e.url}
			body := object("apiVersion: example.com/v1", "kind: Widget", "metadata: {generateName: w-}", "spec: "+tt.spec)
			r := e.must(tt.code, "POST", widgetsPath+tt.query, body)
			if tt.want != nil {
				if diff := cmp.Diff(any(tt.want), r.at("spec")); diff != "" {
					t.Errorf("spec (-want +got):\n%s", diff)
				}
			}
			if !strings.Contains(string(r.raw), strings.ReplaceAll(tt.message, `"`, `\"`)) {
				t.Errorf("message %s does not contain %q", r.raw, tt.message)
			}
			warnings := strings.ReplaceAll(strings.Join(r.header.Values("Warning"), "\n"), `\"`, `"`)
			if !strings.Contains(warnings, tt.warning) || (tt.warning == "" && warnings != "") {
				t.Errorf("warnings %q, want %q", warnings, tt.warning)
			}
		})
	}
	t.Run("duplicate fields are refused by Strict", func(t *testing.T) {
		r := e.do("POST", widgetsPath+"?fieldValidation=Strict",
			`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"dup"},"spec":{"size":1,"size":2}}`)
		if r.code != 400 || !strings.Contains(string(r.raw), `duplicate field \"spec.size\"`) {
			t.Errorf("%d %s", r.code, r.raw)
		}
		r = e.do("POST", widgetsPath+"?fieldValidation=Strict", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: dup}\nspec:\n  size: 1\n  size: 2\n",
			"Content-Type", "application/yaml")
		if r.code != 400 || !strings.Contains(string(r.raw), `key \"size\" already set in map`) {
			t.Errorf("%d %s", r.code, r.raw)
		}
	})
	t.Run("CEL rules do not hold back what was there before", func(t *testing.T) {
		e.must(201, "POST", widgetsPath, widget("old", "{size: 5, color: green}"))
		e.update("widgets.example.com", func(spec *apiextensionsSpec) {
			props := spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
			color := props.Properties["color"]
			color.XValidations = append(color.XValidations, rule("self != 'green'", "no green"))
			props.Properties["color"] = color
			spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = props
		})
		e.must(200, "PATCH", widgetsPath+"/old", `{"spec":{"size":6}}`, "Content-Type", "application/merge-patch+json")
		r := e.must(422, "POST", widgetsPath, widget("new", "{color: green}"))
		if !strings.Contains(string(r.raw), "no green") {
			t.Errorf("%s", r.raw)
		}
	})
}

// Requests that a resource does not serve are answered as upstream does.
func TestRequests(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	made := e.must(201, "POST", widgetsPath, widget("w", "{replicas: 1}"))
	stale := strings.Replace(string(made.raw), `"resourceVersion":"`, `"resourceVersion":"1`, 1)
	tests := []struct {
		name, method, path, body string
		headers                  []string
		code                     int
	}{
		{"unknown version", "GET", "/apis/example.com/v9/namespaces/ns/widgets", "", nil, 404},
		{"unknown resource", "GET", "/apis/example.com/v1/namespaces/ns/gadgets", "", nil, 404},
		{"unknown subresource", "GET", widgetsPath + "/w/bogus", "", nil, 404},
		{"unknown object", "GET", widgetsPath + "/bogus", "", nil, 404},
		{"create of what exists", "POST", widgetsPath, widget("w", "{}"), nil, 409},
		{"update of an old state", "PUT", widgetsPath + "/w", stale, nil, 409},
		{"update without a resourceVersion", "PUT", widgetsPath + "/w", widget("w", "{}"), nil, 422},
		{"create at a name", "POST", widgetsPath + "/w", widget("w", "{}"), nil, 405},
		{"delete of the status", "DELETE", widgetsPath + "/w/status", "", nil, 405},
		{"strategic merge patch", "PATCH", widgetsPath + "/w", "{}", []string{"Content-Type", "application/strategic-merge-patch+json"}, 415},
		{"protobuf body", "POST", widgetsPath, "k8s\x00", []string{"Content-Type", "application/vnd.kubernetes.protobuf"}, 415},
		{"protobuf answer", "GET", widgetsPath + "/w", "", []string{"Accept", "application/vnd.kubernetes.protobuf"}, 406},
		{"metadata as protobuf", "GET", widgetsPath + "/w", "", []string{"Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}, 200},
		{"object of another version", "POST", widgetsPath, strings.Replace(widget("w2", "{}"), "com/v1", "com/v1beta1", 1), nil, 400},
		{"object of another kind", "POST", widgetsPath, strings.Replace(widget("w2", "{}"), "Widget", "Gadget", 1), nil, 422},
		{"unknown field selector", "GET", widgetsPath + "?fieldSelector=spec.size=1", "", nil, 400},
		{"list of all namespaces", "GET", "/apis/example.com/v1/widgets", "", nil, 200},
		{"dry run", "POST", widgetsPath + "?dryRun=All", widget("dry", "{}"), nil, 201},
		{"get after dry run", "GET", widgetsPath + "/dry", "", nil, 404},
		{"delete of a collection", "DELETE", widgetsPath + "?labelSelector=a=b", "", nil, 200},
		{"delete", "DELETE", widgetsPath + "/w", "", nil, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if r := e.do(tt.method, tt.path, tt.body, tt.headers...); r.code != tt.code {
				t.Errorf("%d, want %d: %s", r.code, tt.code, r.raw)
			}
		})
	}
	t.Run("cluster scope", func(t *testing.T) {
		e.define(strings.NewReplacer("Namespaced", "Cluster", "widget", "planet", "Widget", "Planet", "[wd]", "[]").Replace(widgets))
		e.must(201, "POST", "/apis/example.com/v1/planets", strings.Replace(widget("p", "{}"), "Widget", "Planet", 1))
		e.must(404, "GET", "/apis/example.com/v1/namespaces/ns/planets/p", "")
		e.must(200, "GET", "/apis/example.com/v1/planets/p", "")
	})
}

func TestSelectableFields(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	version := ""
	for name, color := range map[string]string{"a": "blue", "b": "green", "c": "blue"} {
		version = fmt.Sprint(e.must(201, "POST", widgetsPath, widget(name, "{color: "+color+"}")).at("metadata", "resourceVersion"))
	}
	// The cache has all objects when it has answered for the last one's version.
	for _, query := range []string{"", "&resourceVersion=" + version, "&resourceVersion=0"} {
		r := e.must(200, "GET", widgetsPath+"?fieldSelector=spec.color=blue"+query, "")
		var names []any
		for _, item := range r.at("items").([]any) {
			names = append(names, at(item, "metadata", "name"))
		}
		if diff := cmp.Diff([]any{"a", "c"}, names); diff != "" {
			t.Errorf("query %q (-want +got):\n%s", query, diff)
		}
	}
}

// kubectl get prints the columns of the CRD, and with -o wide all of them.
func TestTable(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	e.must(201, "POST", widgetsPath, widget("w", "{size: 3, replicas: 2}"))
	const accept = "application/json;as=Table;g=meta.k8s.io;v=v1"
	tests := []struct {
		name, path string
		want       []string
	}{
		{"columns of the definition", widgetsPath, []string{"Name/0 w", "Color/0 red", "Wide/1 3"}},
		{"default columns", betaPath, []string{"Name/0 w", "Age/0 "}},
		{"scale", widgetsPath + "/w/scale", []string{"Name/0 w", "Desired/0 2", "Available/0 0", "Age/0 "}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := e.must(200, "GET", tt.path, "", "Accept", accept)
			if got := rows(r); !prefixes(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDeprecatedVersionsWarn(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	r := e.must(200, "GET", betaPath, "")
	if got, want := r.header.Get("Warning"), `299 - "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget"`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
