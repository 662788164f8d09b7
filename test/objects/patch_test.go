package objects

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestPatches(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/apis/apps/v1/namespaces/" + s.Namespace(t) + "/deployments"
	h.Must(http.StatusCreated, "POST", path, deployment("apps/v1", "d"))
	containers := func(r *harness.Response) []string {
		var list []string
		items, _ := r.At("spec", "template", "spec", "containers").([]any)
		for _, c := range items {
			list = append(list, harness.At(c, "name").(string)+"="+harness.At(c, "image").(string))
		}
		return list
	}

	// The cases build on each other.
	for _, c := range []struct {
		name, contentType, body string
		want                    []string
	}{
		{"strategic merge adds by name", strategicPatch, `{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s:1"}]}}}}`, []string{"side=s:1", "main=example/main:1"}},
		{"strategic merge changes by name", strategicPatch, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"m:2"}]}}}}`, []string{"main=m:2", "side=s:1"}},
		{"strategic merge deletes by name", strategicPatch, `{"spec":{"template":{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}}}`, []string{"main=m:2"}},
		{"JSON patch", jsonPatch, `[{"op":"test","path":"/spec/template/spec/containers/0/name","value":"main"},{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"m:3"}]`, []string{"main=m:3"}},
		{"merge patch replaces lists", mergePatch, `{"spec":{"template":{"spec":{"containers":[{"name":"only","image":"o:1"}]}}}}`, []string{"only=o:1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := h.Must(http.StatusOK, "PATCH", path+"/d", c.body, "Content-Type", c.contentType)
			got := containers(r)
			slices.Sort(got)
			slices.Sort(c.want)
			want(t, "containers", got, c.want)
		})
	}

	version := h.Get(path+"/d").Text("metadata", "resourceVersion")
	for _, c := range []struct {
		name, path, contentType, body string
		code                          int
		reason                        metav1.StatusReason
	}{
		{"a test that fails", "/d", jsonPatch, `[{"op":"test","path":"/spec/replicas","value":99}]`, 422, metav1.StatusReasonInvalid},
		{"a path that is not there", "/d", jsonPatch, `[{"op":"remove","path":"/spec/nothing"}]`, 422, metav1.StatusReasonInvalid},
		{"no JSON patch", "/d", jsonPatch, `{"spec":{}}`, 400, metav1.StatusReasonBadRequest},
		{"no JSON", "/d", mergePatch, `{"spec":`, 400, metav1.StatusReasonBadRequest},
		{"a stale resourceVersion", "/d", mergePatch, `{"metadata":{"resourceVersion":"1"},"spec":{"replicas":9}}`, 409, metav1.StatusReasonConflict},
		{"another uid", "/d", mergePatch, `{"metadata":{"uid":"other"}}`, 422, metav1.StatusReasonInvalid},
		{"another name", "/d", mergePatch, `{"metadata":{"name":"e"}}`, 400, metav1.StatusReasonBadRequest},
		{"an invalid object", "/d", mergePatch, `{"spec":{"replicas":-1}}`, 422, metav1.StatusReasonInvalid},
		{"no object", "/none", mergePatch, `{}`, 404, metav1.StatusReasonNotFound},
		{"an unknown type", "/d", "application/json", `{}`, 415, metav1.StatusReasonUnsupportedMediaType},
		{"too many operations", "/d", jsonPatch, "[" + strings.Repeat(`{"op":"test","path":"/kind","value":"Deployment"},`, 10000) + `{"op":"test","path":"/kind","value":"Deployment"}]`, 413, metav1.StatusReasonRequestEntityTooLarge},
	} {
		t.Run("refuses "+c.name, func(t *testing.T) {
			h.Refused(c.code, c.reason, "PATCH", path+c.path, c.body, "Content-Type", c.contentType)
		})
	}
	want(t, "resourceVersion after the refusals", h.Get(path+"/d").Text("metadata", "resourceVersion"), version)
}

func TestApply(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	path := "/apis/apps/v1/namespaces/" + ns + "/deployments/d"
	apply := func(manager, body string, query ...string) *harness.Response {
		return h.Do("PATCH", path+"?fieldManager="+manager+strings.Join(query, ""), body, "Content-Type", applyPatch)
	}
	h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PATCH", path, deployment("apps/v1", "d"), "Content-Type", applyPatch)

	if r := apply("one", deployment("apps/v1", "d")); r.Code != http.StatusCreated {
		t.Fatalf("first apply: %d: %s", r.Code, r.Raw)
	}
	version := h.Get(path).Text("metadata", "resourceVersion")
	again := apply("one", deployment("apps/v1", "d"))
	want(t, "code", again.Code, http.StatusOK)
	want(t, "resourceVersion after the same apply", again.Text("metadata", "resourceVersion"), version)

	scaled := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 7}\n"
	conflict := apply("two", scaled).Refusal(http.StatusConflict, metav1.StatusReasonConflict)
	want(t, "cause", conflict.Details.Causes, []metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "one"`, Field: ".spec.replicas"}})
	forced := apply("two", scaled, "&force=true")
	want(t, "code of force", forced.Code, http.StatusOK)
	want(t, "replicas", forced.Text("spec", "replicas"), "7")
	managers := map[string]string{}
	fields, _ := forced.At("metadata", "managedFields").([]any)
	for _, f := range fields {
		managers[harness.At(f, "manager").(string)] = harness.At(f, "operation").(string)
	}
	want(t, "managers", managers, map[string]string{"one": "Apply", "two": "Apply"})

	// A field that its only manager no longer applies is removed.
	side := strings.Replace(deployment("apps/v1", "d"), `"replicas":3,`, "", 1)
	withSide := strings.Replace(side, `"containers":[`, `"containers":[{"name":"side","image":"s:1"},`, 1)
	want(t, "containers", len(apply("one", withSide).At("spec", "template", "spec", "containers").([]any)), 2)
	want(t, "containers", len(apply("one", side).At("spec", "template", "spec", "containers").([]any)), 1)

	apply("three", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, resourceVersion: \"1\"}\nspec: {replicas: 7}\n").
		Refusal(http.StatusConflict, metav1.StatusReasonConflict)
	apply("three", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: d}\n").Refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	apply("three", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {nothing: 1}\n").
		Refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	want(t, "dry run", apply("two", strings.Replace(scaled, "7", "8", 1), "&dryRun=All").Text("spec", "replicas"), "8")
	want(t, "replicas after the dry run", h.Get(path).Text("spec", "replicas"), "7")

	// Ownership is converted between the versions of a kind.
	old := h.Do("PATCH", "/apis/extensions/v1beta1/namespaces/"+ns+"/deployments/d?fieldManager=three", strings.Replace(scaled, "apps/v1", "extensions/v1beta1", 1), "Content-Type", applyPatch)
	want(t, "code through extensions/v1beta1", old.Code, http.StatusOK)
	three := ""
	fields, _ = h.Get(path).At("metadata", "managedFields").([]any)
	for _, f := range fields {
		if harness.At(f, "manager") == "three" {
			three = harness.At(f, "apiVersion").(string)
		}
	}
	want(t, "version of the manager", three, "extensions/v1beta1")
	conflict = apply("four", strings.Replace(scaled, "7", "9", 1)).Refusal(http.StatusConflict, metav1.StatusReasonConflict)
	want(t, "conflicts", len(conflict.Details.Causes), 2)
}
