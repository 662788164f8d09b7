package customresources

import (
	"net/http"
	"strings"
	"testing"
)

// An object may have a field items, as lists have, and is served as an object: a watch would stop
// for good at an object that k8s.io/apiserver treats as a list. The server refuses an object that
// k8s.io/apiserver cannot tell from a list.
func TestObjectsWithItemsAreNoLists(t *testing.T) {
	e := newEnv(t)
	e.define(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: boxes.example.com}, spec: {
		group: example.com, scope: Cluster, names: {plural: boxes, singular: box, kind: Box, listKind: BoxList},
		versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`)
	const boxes = "/apis/example.com/v1/boxes"
	w := e.watch(boxes + "?watch=1")
	box := func(name, items string) string {
		return `{"apiVersion":"example.com/v1","kind":"Box","metadata":{"name":"` + name + `"},"items":` + items + `}`
	}
	for name, items := range map[string]string{"object": `{"a":1}`, "text": `"a"`, "number": `7`} {
		e.must(http.StatusCreated, "POST", boxes, box(name, items))
		event, err := w.next()
		if err != nil {
			t.Fatal(err)
		}
		if got := at(event.Object, "metadata", "name"); event.Type != "ADDED" || got != name {
			t.Fatalf("event %s of %v, want ADDED of %s: %v", event.Type, got, name, event.Object)
		}
		e.must(http.StatusOK, "GET", boxes+"/"+name, "")
	}
	list := e.must(http.StatusOK, "GET", boxes, "")
	if got := len(list.at("items").([]any)); got != 3 {
		t.Errorf("the list has %d objects, want 3", got)
	}
	for _, r := range []*response{
		e.do("POST", boxes, box("array", `[]`)),
		e.do("PUT", boxes+"/text", box("text", `[{"metadata":{}}]`)),
		e.do("PATCH", boxes+"/text", `{"items":["a"]}`, "Content-Type", mergePatch),
	} {
		if (r.code != http.StatusBadRequest && r.code != http.StatusUnprocessableEntity) || !strings.Contains(string(r.raw), "that is a list") {
			t.Errorf("an array of items: %d: %s", r.code, r.raw)
		}
	}
}
