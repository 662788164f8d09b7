package customresources

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

const (
	jsonPatch  = "application/json-patch+json"
	mergePatch = "application/merge-patch+json"
	applyPatch = "application/apply-patch+yaml"
)

// pending are the names of the pending initializers in an object, joined.
func pending(object any) string {
	list, _ := at(object, "metadata", "initializers", "pending").([]any)
	var names []string
	for _, entry := range list {
		names = append(names, fmt.Sprint(at(entry, "name")))
	}
	return strings.Join(names, " ")
}

func uninitialized(apiVersion, name, spec string) string {
	return object("apiVersion: "+apiVersion, "kind: Widget",
		"metadata: {name: "+name+", initializers: {pending: [{name: a.example.com}, {name: b.example.com}]}}", "spec: "+spec)
}

// metadata.initializers survives every verb, patch, format and subresource, in the stored version
// and in another, with either conversion.
func TestInitializersSurvive(t *testing.T) {
	for _, strategy := range []string{"None", "Webhook"} {
		t.Run(strategy, func(t *testing.T) {
			e := newEnv(t)
			hook := newHook(t, renameColor)
			e.define(widgets)
			if strategy == "Webhook" {
				e.update("widgets.example.com", func(spec *apiextensionsSpec) {
					spec.Conversion = hook.conversion("v1")
				})
			}
			testInitializersSurvive(t, e)
			for _, seen := range hook.objects() {
				if strings.Contains(seen, initializers.Annotation) {
					t.Errorf("the webhook was sent the reserved annotation: %s", seen)
				}
			}
			sent := strings.Contains(strings.Join(hook.objects(), ""), `"initializers":{"pending":[{"name":"a.example.com"}`)
			if want := strategy == "Webhook"; sent != want {
				t.Errorf("whether the webhook was sent the field: %v, want %v", sent, want)
			}
		})
	}
}

func testInitializersSurvive(t *testing.T, e *env) {
	const a, b = "a.example.com", "b.example.com"
	color := func(path string) string {
		if path == betaPath {
			return "example.com/v1beta1"
		}
		return "example.com/v1"
	}
	for _, path := range []string{widgetsPath, betaPath} {
		for _, media := range []string{"application/json", "application/yaml"} {
			name := strings.NewReplacer("/", "-").Replace(color(path)+media) + "-w"
			own, other := path+"/"+name, betaPath+"/"+name
			if path == betaPath {
				other = widgetsPath + "/" + name
			}
			check := func(step string, r *response, want string) {
				t.Helper()
				if got := pending(r.body); r.code > 299 || got != want {
					t.Errorf("%s, %s of %s: %d, pending %q, want %q: %s", media, step, name, r.code, got, want, r.raw)
				}
				if bytes.Contains(r.raw, []byte(initializers.Annotation)) {
					t.Errorf("%s, %s of %s: the annotation shows: %s", media, step, name, r.raw)
				}
			}
			accept := []string{"Accept", media}
			patch := func(path, contentType, body string) *response {
				return e.do("PATCH", path, body, append(accept, "Content-Type", contentType)...)
			}
			body := uninitialized(color(path), name, "{replicas: 1}")
			check("create", e.do("POST", path, body, append(accept, "Content-Type", media)...), a+" "+b)
			check("get", e.do("GET", own, "", accept...), a+" "+b)
			check("get in the other version", e.do("GET", other, "", accept...), a+" "+b)

			current := e.do("GET", other, "")
			at(current.body, "metadata").(map[string]any)["labels"] = map[string]any{"put": "yes"}
			check("put in the other version", e.do("PUT", other, encode(t, current.body), accept...), a+" "+b)
			check("merge patch", patch(own, mergePatch, `{"metadata":{"labels":{"merge":"yes"}}}`), a+" "+b)
			check("JSON patch", patch(own, jsonPatch, `[{"op":"add","path":"/metadata/labels/json","value":"yes"}]`), a+" "+b)
			check("JSON patch of the field", patch(other, jsonPatch, `[{"op":"test","path":"/metadata/initializers/pending/0/name","value":"`+a+`"},{"op":"remove","path":"/metadata/initializers/pending/0"}]`), b)
			check("merge patch of the field", patch(other, mergePatch, `{"metadata":{"initializers":{"pending":[{"name":"`+a+`"},{"name":"`+b+`"}]}}}`), a+" "+b)
			apply := "apiVersion: " + color(path) + "\nkind: Widget\nmetadata: {name: " + name + ", labels: {apply: yes-too}}\n"
			check("apply", patch(own+"?fieldManager=test", applyPatch, apply), a+" "+b)
			applyField := "apiVersion: " + color(path) + "\nkind: Widget\nmetadata: {name: " + name + ", initializers: {pending: [{name: c.example.com}]}}\n"
			check("apply of the field", patch(own+"?fieldManager=test", applyPatch, applyField), a+" "+b+" c.example.com")
			check("apply without the field", patch(own+"?fieldManager=test", applyPatch, apply), a+" "+b)

			current = e.do("GET", other+"/status", "")
			current.body["status"] = map[string]any{"replicas": 3}
			delete(at(current.body, "metadata").(map[string]any), "initializers")
			check("put of the status", e.do("PUT", other+"/status", encode(t, current.body), accept...), a+" "+b)
			check("patch of the status", patch(own+"/status", mergePatch, `{"status":{"replicas":4},"metadata":{"initializers":null}}`), a+" "+b)
			scale := e.do("GET", other+"/scale", "")
			at(scale.body, "spec").(map[string]any)["replicas"] = 7
			if r := e.do("PUT", other+"/scale", encode(t, scale.body)); r.code != 200 {
				t.Errorf("put of the scale: %d %s", r.code, r.raw)
			}
			if r := patch(own+"/scale", mergePatch, `{"spec":{"replicas":8}}`); r.code != 200 {
				t.Errorf("patch of the scale: %d %s", r.code, r.raw)
			}
			final := e.do("GET", own, "", accept...)
			check("get after writing subresources", final, a+" "+b)
			want := map[string]any{"spec": 8.0, "status": 4.0}
			got := map[string]any{"spec": final.at("spec", "replicas"), "status": final.at("status", "replicas")}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("replicas (-want +got):\n%s", diff)
			}
			for _, collection := range []string{widgetsPath, betaPath} {
				list := e.do("GET", collection+"?fieldSelector=metadata.name="+name, "", accept...)
				list.body, _ = list.at("items", "0").(map[string]any)
				check("list of "+collection, list, a+" "+b)
				w := e.watch(collection + "?watch=true&resourceVersion=0&fieldSelector=metadata.name=" + name)
				event, err := w.next()
				if err != nil || event.Type != "ADDED" || pending(event.Object) != a+" "+b {
					t.Errorf("watch of %s: %v %v %v", collection, event.Type, event.Object, err)
				}
				w.close()
			}
			check("removal in the other version", patch(other, mergePatch, `{"metadata":{"initializers":null}}`), "")
			if r := e.do("GET", own, ""); r.at("metadata", "initializers") != nil {
				t.Errorf("the field is still there: %s", r.raw)
			}
			check("delete", e.do("DELETE", own, "", accept...), "")
		}
	}
}

func TestInitializersAreChecked(t *testing.T) {
	e := newEnv(t)
	e.define(widgets)
	tests := []struct {
		name, query, metadata string
		code                  int
		message               string
	}{
		{"unknown fields by Strict", "?fieldValidation=Strict", "initializers: {bogus: 1, pending: []}", 400, "bogus"},
		{"known fields by Strict", "?fieldValidation=Strict", "initializers: {pending: [{name: a.example.com}]}", 201, ""},
		{"wrong type", "", "initializers: [a]", 400, "metadata.initializers"},
		{"the reserved annotation", "", "annotations: {" + initializers.Annotation + ": '{}'}", 400, "reserved"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := e.do("POST", widgetsPath+tt.query, object("apiVersion: example.com/v1", "kind: Widget", "metadata: {generateName: w-, "+tt.metadata+"}"))
			if r.code != tt.code || !strings.Contains(string(r.raw), tt.message) {
				t.Errorf("%d, want %d with %q: %s", r.code, tt.code, tt.message, r.raw)
			}
		})
	}
}

func TestDefinitionsCarryInitializers(t *testing.T) {
	e := newEnv(t)
	text := strings.Replace(widgets, "{name: widgets.example.com}", "{name: widgets.example.com, initializers: {pending: [{name: a.example.com}]}}", 1)
	r := e.must(201, "POST", definitionsPath+"?dryRun=All&fieldValidation=Strict", text, "Content-Type", "application/yaml")
	if got := pending(r.body); got != "a.example.com" || bytes.Contains(r.raw, []byte(initializers.Annotation)) {
		t.Errorf("pending %q: %s", got, r.raw)
	}
}
