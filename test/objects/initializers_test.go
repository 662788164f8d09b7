package objects

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestInitializersSurvive(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	ns := s.Namespace(t)
	path := "/apis/apps/v1/namespaces/" + ns + "/deployments"
	patch := func(contentType, subresource, body string) func(*testing.T, *harness.HTTP, string) {
		return func(t *testing.T, h *harness.HTTP, name string) {
			h.Must(http.StatusOK, "PATCH", path+"/"+name+subresource+"?fieldManager=tester", strings.ReplaceAll(body, "NAME", name), "Content-Type", contentType)
		}
	}
	put := func(subresource string, change func(map[string]any), contentType string) func(*testing.T, *harness.HTTP, string) {
		return func(t *testing.T, h *harness.HTTP, name string) {
			obj := h.Get(path+"/"+name+subresource+including, "Accept", contentType).Body
			change(obj)
			data, err := json.Marshal(obj)
			if contentType == "application/yaml" {
				data, err = yaml.Marshal(obj)
			}
			if err != nil {
				t.Fatal(err)
			}
			h.Must(http.StatusOK, "PUT", path+"/"+name+subresource, string(data), "Content-Type", contentType)
		}
	}
	const asJSON, asYAML, asProtobuf = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
	relabel := func(obj map[string]any) {
		merge(obj, map[string]any{"metadata": map[string]any{"labels": map[string]any{"x": "y"}}})
	}
	drop := func(obj map[string]any) { delete(obj["metadata"].(map[string]any), "initializers") }
	first := func(obj map[string]any) {
		field := harness.At(obj, "metadata", "initializers").(map[string]any)
		field["pending"] = field["pending"].([]any)[1:]
	}
	const onlyB = `{"metadata":{"initializers":{"pending":[{"name":"b.example.com"}]}}}`
	const null = `{"metadata":{"initializers":null}}`

	for _, c := range []struct {
		name  string
		write func(*testing.T, *harness.HTTP, string)
		want  string
	}{
		{"create", func(*testing.T, *harness.HTTP, string) {}, "a,b"},
		{"put JSON", put("", relabel, asJSON), "a,b"},
		{"put YAML", put("", relabel, asYAML), "a,b"},
		{"put JSON without the first", put("", first, asJSON), "b"},
		{"put YAML without the first", put("", first, asYAML), "b"},
		{"put JSON without the field", put("", drop, asJSON), "none"},
		{"JSON patch of something else", patch(jsonPatch, "", `[{"op":"add","path":"/metadata/labels/x","value":"y"}]`), "a,b"},
		{"JSON patch of the first", patch(jsonPatch, "", `[{"op":"remove","path":"/metadata/initializers/pending/0"}]`), "b"},
		{"merge patch of something else", patch(mergePatch, "", `{"metadata":{"labels":{"x":"y"}}}`), "a,b"},
		{"merge patch", patch(mergePatch, "", onlyB), "b"},
		{"merge patch with null", patch(mergePatch, "", null), "none"},
		{"strategic merge patch of something else", patch(strategicPatch, "", `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"m:2"}]}}}}`), "a,b"},
		{"strategic merge patch merges by name", patch(strategicPatch, "", onlyB), "a,b"},
		{"strategic merge patch adds", patch(strategicPatch, "", `{"metadata":{"initializers":{"pending":[{"name":"c.example.com"}]}}}`), "c,a,b"},
		{"strategic merge patch deletes", patch(strategicPatch, "", `{"metadata":{"initializers":{"pending":[{"name":"a.example.com","$patch":"delete"}]}}}`), "b"},
		{"strategic merge patch replaces", patch(strategicPatch, "", `{"metadata":{"initializers":{"pending":[{"$patch":"replace"},{"name":"b.example.com"}]}}}`), "b"},
		{"strategic merge patch with null", patch(strategicPatch, "", null), "none"},
		{"apply of something else", patch(applyPatch, "", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"NAME","labels":{"x":"y"}}}`), "a,b"},
		{"apply adds by name", patch(applyPatch, "", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"NAME","initializers":{"pending":[{"name":"c.example.com"}]}}}`), "a,b,c"},
		{"apply of what is there", patch(applyPatch, "", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"NAME","initializers":{"pending":[{"name":"a.example.com"}]}}}`), "a,b"},
		{"S11.41 put of status", put("/status", func(obj map[string]any) { obj["status"] = map[string]any{"replicas": 1} }, asJSON), "a,b"},
		{"S11.41 put of status without the field", put("/status", drop, asJSON), "a,b"},
		{"S11.41 merge patch of status", patch(mergePatch, "/status", `{"status":{"replicas":1},"metadata":{"initializers":null}}`), "a,b"},
		{"S11.41 strategic merge patch of status", patch(strategicPatch, "/status", onlyB), "a,b"},
		{"S11.41 JSON patch of status", patch(jsonPatch, "/status", `[{"op":"remove","path":"/metadata/initializers/pending/0"}]`), "a,b"},
		{"S11.41 apply of status", patch(applyPatch, "/status", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"NAME"},"status":{"replicas":2}}`), "a,b"},
		{"S11.41 put of scale", put("/scale", func(obj map[string]any) { obj["spec"] = map[string]any{"replicas": 9} }, asJSON), "a,b"},
		{"S11.41 put of scale with the field", put("/scale", func(obj map[string]any) {
			merge(obj, map[string]any{"metadata": map[string]any{"initializers": map[string]any{"pending": []any{}}}})
		}, asJSON), "a,b"},
		{"S11.41 patch of scale", patch(mergePatch, "/scale", `{"spec":{"replicas":9}}`), "a,b"},
		{"put in protobuf", func(t *testing.T, h *harness.HTTP, name string) {
			obj := h.Get(path+"/"+name+including, "Accept", asProtobuf)
			h.Must(http.StatusOK, "PUT", path+"/"+name, string(obj.Raw), "Content-Type", asProtobuf)
		}, "a,b"},
		{"put in protobuf without the field", func(t *testing.T, _ *harness.HTTP, name string) {
			// The current typed client does not know the field.
			deployments := harness.Client(t, harness.Protobuf(s.Admin)).AppsV1().Deployments(ns)
			d, err := deployments.Get(harness.Context(t), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "annotations", d.Annotations, map[string]string(nil))
			if d, err = deployments.Update(harness.Context(t), d, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			want(t, "annotations", d.Annotations, map[string]string(nil))
		}, "none"},
		{"S11.41 put of status in protobuf", func(t *testing.T, _ *harness.HTTP, name string) {
			deployments := harness.Client(t, harness.Protobuf(s.Admin)).AppsV1().Deployments(ns)
			d, err := deployments.Get(harness.Context(t), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = deployments.UpdateStatus(harness.Context(t), d, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, "a,b"},
		{"delete", func(t *testing.T, h *harness.HTTP, name string) {
			deleted := h.Must(http.StatusOK, "DELETE", path+"/"+name, `{"propagationPolicy":"Foreground"}`)
			want(t, "answer", pending(deleted.Body), "a,b")
		}, "a,b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := s.HTTP(t, nil)
			name := strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(c.name, ".", "-")), " ", "-")
			created := h.Must(http.StatusAccepted, "POST", path+including, uninitialized(name))
			want(t, "created", pending(created.Body), "a,b")
			c.write(t, h, name)
			got := h.Get(path + "/" + name + including)
			want(t, "stored", pending(got.Body), c.want)
			want(t, "annotations", got.At("metadata", "annotations"), nil)
		})
	}
}

// impatient are the flags of a server that waits briefly for initializers.
var impatient = []string{"--initializer-timeout", "3s"}

// After the initialization of an object, its initializers field has no field manager.
func TestNobodyOwnsInitializersInTheEnd(t *testing.T) {
	t.Parallel()
	// A separate server: other tests register initializers of these names with failure policy Fail.
	s := harness.Sole(t, impatient...)
	path := "/apis/apps/v1/namespaces/" + s.Namespace(t) + "/deployments"
	for _, c := range []struct {
		name  string
		write func(t *testing.T, h *harness.HTTP, name string)
	}{
		{"S11.18 created with an empty list", func(t *testing.T, h *harness.HTTP, name string) {
			h.Must(http.StatusCreated, "POST", path, strings.Replace(deployment("apps/v1", name), `"metadata":{`, `"metadata":{"initializers":{"pending":[]},`, 1))
		}},
		{"S11.38 the list was emptied", func(t *testing.T, h *harness.HTTP, name string) {
			created := h.Must(http.StatusAccepted, "POST", path+including, uninitialized(name))
			if !strings.Contains(string(created.Raw), "f:initializers") {
				t.Error("nobody owned the field before")
			}
			h.Must(http.StatusOK, "PATCH", path+"/"+name, `{"metadata":{"initializers":{"pending":[]}}}`, "Content-Type", mergePatch)
		}},
		{"S11.39 the field was removed", func(t *testing.T, h *harness.HTTP, name string) {
			h.Must(http.StatusAccepted, "POST", path+including, uninitialized(name))
			h.Must(http.StatusOK, "PATCH", path+"/"+name, `{"metadata":{"initializers":null}}`, "Content-Type", mergePatch)
		}},
		{"S11.49 the server removed the names, whose time was over", func(t *testing.T, h *harness.HTTP, name string) {
			h.Must(http.StatusCreated, "POST", path, uninitialized(name))
		}},
		{"S11.49 the server removed what was applied", func(t *testing.T, h *harness.HTTP, name string) {
			h.Must(http.StatusAccepted, "PATCH", path+"/"+name+"?fieldManager=tester", uninitialized(name), "Content-Type", applyPatch)
			harness.Eventually(t, name+" is initialized", func() error {
				if got := pending(h.Get(path + "/" + name).Body); got != "none" {
					return fmt.Errorf("it waits for %s", got)
				}
				return nil
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := s.HTTP(t, nil)
			name := strings.ToLower(strings.NewReplacer(" ", "-", ",", "", ".", "-").Replace(c.name))
			c.write(t, h, name)
			got := h.Get(path + "/" + name)
			want(t, "waits for", pending(got.Body), "none")
			if managed := asJSON(got.At("metadata", "managedFields")); strings.Contains(managed, "f:initializers") || !strings.Contains(managed, "f:replicas") {
				t.Errorf("managed fields: %s", managed)
			}
		})
	}
}

func TestInitializersShown(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	path := "/apis/apps/v1/namespaces/" + ns + "/deployments"
	w := h.Watch(path + including + "&watch=1")
	h.Must(http.StatusAccepted, "POST", path+including, uninitialized("d"))

	event := w.Next()
	want(t, "event", line(event)+" "+pending(event.Object), "ADDED d a,b")
	item := func(r *harness.Response, path ...string) string { return pending(r.At(path...)) }
	want(t, "get", pending(h.Get(path+"/d"+including).Body), "a,b")
	want(t, "get YAML", pending(h.Get(path+"/d"+including, "Accept", "application/yaml").Body), "a,b")
	want(t, "get through apps/v1beta1", pending(h.Get("/apis/apps/v1beta1/namespaces/"+ns+"/deployments/d"+including).Body), "a,b")
	want(t, "list", item(h.Get(path+including), "items", "0"), "a,b")
	want(t, "list YAML", item(h.Get(path+including, "Accept", "application/yaml"), "items", "0"), "a,b")
	want(t, "pretty", strings.Contains(string(h.Get(path+"/d"+including+"&pretty=true").Raw), `"name": "a.example.com"`), true)

	// In protobuf it is field 16 of the metadata, as in clients of 2017.
	const field = "\x82\x01\x22\x0a\x0f\x0a\x0da.example.com\x0a\x0f\x0a\x0db.example.com"
	for _, c := range []struct{ path, accept string }{
		{path + "/d" + including, "application/vnd.kubernetes.protobuf"},
		{"/apis/extensions/v1beta1/namespaces/" + ns + "/deployments/d" + including, "application/vnd.kubernetes.protobuf"},
		{path + including, "application/vnd.kubernetes.protobuf"},
		{path + including + "&watch=1&timeoutSeconds=1", "application/vnd.kubernetes.protobuf;stream=watch"},
	} {
		r := h.Get(c.path, "Accept", c.accept)
		if strings.Contains(string(r.Raw), "gatehouse.dev") || !strings.Contains(string(r.Raw), field) {
			t.Errorf("GET %s as %s: %.500q", c.path, c.accept, r.Raw)
		}
	}

	// S11.67: PartialObjectMetadata has the field, in every format and version.
	for _, c := range []struct{ path, accept string }{
		{path + "/d" + including, asMetadata},
		{path + "/d" + including, strings.Replace(asMetadata, "v=v1", "v=v1beta1", 1)},
		{path + "/d" + including, protobufMetadata},
		{path + including, asMetadataList},
		{path + including, strings.Replace(asMetadataList, "application/json", "application/yaml", 1)},
		{path + including, strings.Replace(asMetadataList, "v=v1", "v=v1beta1", 1)},
		{path + including, strings.Replace(protobufMetadata, "PartialObjectMetadata", "PartialObjectMetadataList", 1)},
		{path + including + "&watch=1&timeoutSeconds=1", asMetadata},
		{path + including + "&watch=1&timeoutSeconds=1", protobufMetadata},
	} {
		r := h.Get(c.path, "Accept", c.accept)
		raw := string(r.Raw)
		if strings.Contains(raw, "gatehouse.dev") || !strings.Contains(raw, "PartialObjectMetadata") || strings.Contains(raw, `"spec":`) ||
			!(strings.Contains(raw, "pending") && strings.Contains(raw, "a.example.com") || strings.Contains(raw, field)) {
			t.Errorf("GET %s as %s: %.500q", c.path, c.accept, raw)
		}
	}
	// The metadata of initialized objects equals the metadata produced by k8s.io/apiserver.
	plain := "/api/v1/namespaces/" + ns + "/configmaps"
	h.Must(http.StatusCreated, "POST", plain, configMap("plain"))
	h.Must(http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", toJSON(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: bares.initializers.example.com}, spec: {group: initializers.example.com, scope: Namespaced, names: {kind: Bare, plural: bares}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`))
	custom := "/apis/initializers.example.com/v1/namespaces/" + ns + "/bares"
	harness.Eventually(t, "the custom kind is served", func() error {
		if r := h.Do("POST", custom, `{"apiVersion":"initializers.example.com/v1","kind":"Bare","metadata":{"name":"plain"}}`); r.Code != http.StatusCreated {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
	for _, accept := range []string{asMetadataList, strings.Replace(protobufMetadata, "PartialObjectMetadata", "PartialObjectMetadataList", 1), asMetadata, protobufMetadata} {
		watch := ""
		if !strings.Contains(accept, "List") {
			watch = "&watch=1&timeoutSeconds=1"
		}
		upstream, ours := atOneRevision(h, custom+"?"+watch, custom+including+watch, accept)
		if diff := cmp.Diff(string(upstream.Raw), string(ours.Raw)); diff != "" {
			t.Errorf("custom resources as %s (-k8s.io/apiserver +ours):\n%s", accept, diff)
		}
	}
	for _, c := range []struct{ query, accept string }{
		{"", asMetadataList},
		{"&pretty=true", asMetadataList},
		{"", strings.Replace(asMetadataList, "v=v1", "v=v1beta1", 1)},
		{"", strings.Replace(asMetadataList, "application/json", "application/yaml", 1)},
		{"", strings.Replace(protobufMetadata, "PartialObjectMetadata", "PartialObjectMetadataList", 1)},
		{"&watch=1&timeoutSeconds=1", asMetadata},
		{"&watch=1&timeoutSeconds=1", protobufMetadata},
		{"&fieldSelector=metadata.name=absent", asMetadataList},
		{"&limit=1", asMetadataList},
		{"", asMetadata},
	} {
		upstream, ours := atOneRevision(h, plain+"?"+c.query, plain+including+c.query, c.accept)
		want(t, "code of "+c.query, ours.Code, upstream.Code)
		want(t, "type of "+c.query, ours.Header.Get("Content-Type"), upstream.Header.Get("Content-Type"))
		if diff := cmp.Diff(string(upstream.Raw), string(ours.Raw)); diff != "" {
			t.Errorf("GET %s as %s (-k8s.io/apiserver +ours):\n%s", c.query, c.accept, diff)
		}
	}

	// A table contains neither the field nor the annotation that stores it inside the server.
	for _, c := range []struct{ path, accept string }{
		{path + "/d" + including, asTable},
		{path + including, asTable},
		{path + including + "&includeObject=Object", asTable},
		{path + including + "&watch=1&timeoutSeconds=1", asTable},
	} {
		r := h.Get(c.path, "Accept", c.accept)
		if strings.Contains(string(r.Raw), "gatehouse.dev") || !strings.Contains(string(r.Raw), ns) {
			t.Errorf("GET %s as %s: %.500s", c.path, c.accept, r.Raw)
		}
	}
	for _, write := range []struct{ method, path, body, contentType string }{
		{"POST", path + including, uninitialized("e"), "application/json"},
		{"PATCH", path + "/e", `{"metadata":{"labels":{"x":"y"}}}`, mergePatch},
		{"PUT", path + "/e", uninitialized("e"), "application/json"},
		{"DELETE", path + "/e", `{"propagationPolicy":"Foreground"}`, "application/json"},
	} {
		r := h.Do(write.method, write.path, write.body, "Content-Type", write.contentType, "Accept", asMetadata)
		if r.Code >= 300 || r.Text("kind") != "PartialObjectMetadata" || strings.Contains(string(r.Raw), "gatehouse.dev") {
			t.Errorf("%s %s as metadata: %d %.500s", write.method, write.path, r.Code, r.Raw)
		}
		want(t, "field after "+write.method, pending(h.Get(path+"/e"+including).Body), "a,b")
	}
}

// atOneRevision gets two paths until no write of another test came between them: each write of the store moves the
// resourceVersion of a list.
func atOneRevision(h *harness.HTTP, path, other, accept string) (*harness.Response, *harness.Response) {
	for {
		before, of := h.Do("GET", path, "", "Accept", accept), h.Do("GET", other, "", "Accept", accept)
		if strings.Contains(path, "watch=1") || before.Code != http.StatusOK || bytes.Equal(h.Get(path, "Accept", accept).Raw, before.Raw) {
			return before, of
		}
	}
}

func TestInitializersRefused(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/api/v1/namespaces/" + s.Namespace(t) + "/configmaps"
	object := func(metadata string) string {
		return toJSON("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, %s}}", metadata)
	}
	for _, c := range []struct{ name, query, metadata, text string }{
		{"a list that is none", "", `initializers: {pending: all}`, "metadata.initializers"},
		{"an entry that is none", "", `initializers: {pending: [a]}`, "metadata.initializers"},
		{"a field that is no object", "", `initializers: []`, "metadata.initializers"},
		{"an unknown field, when strict", "?fieldValidation=Strict", `initializers: {pendin: []}`, "pendin"},
		{"an unknown field of an entry, when strict", "?fieldValidation=Strict", `initializers: {pending: [{name: a.example.com, when: now}]}`, "when"},
		{"the reserved annotation", "", `annotations: {gatehouse.dev/metadata.initializers: '{"pending":[]}'}`, "reserved"},
		{"the reserved annotation beside the field", "", `initializers: {pending: []}, annotations: {gatehouse.dev/metadata.initializers: "{}"}`, "reserved"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status := s.HTTP(t, nil).Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "POST", path+c.query, object(c.metadata))
			if !strings.Contains(status.Message, c.text) {
				t.Errorf("%q does not say %q", status.Message, c.text)
			}
		})
	}
	h.Must(http.StatusCreated, "POST", path, configMap("plain"))
	for _, key := range []string{`gatehouse.dev/metadata.initializers`, `gatehouse.dev\/metadata.initialize\u0072s`} {
		for _, contentType := range []string{mergePatch, strategicPatch, applyPatch} {
			r := h.Do("PATCH", path+"/plain?fieldManager=t", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"plain","annotations":{"`+key+`":"{}"}}}`, "Content-Type", contentType)
			if r.Code < 400 || r.Code >= 500 {
				t.Errorf("%s of the reserved annotation, as %s: %d: %s", contentType, key, r.Code, r.Raw)
			}
		}
	}
	// YAML may be in UTF-16.
	wide := []byte{0xff, 0xfe}
	for _, c := range utf16.Encode([]rune(object(`annotations: {gatehouse.dev/metadata.initializers: "{}"}`))) {
		wide = binary.LittleEndian.AppendUint16(wide, c)
	}
	status := h.Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "PATCH", path+"/c?fieldManager=t", string(wide), "Content-Type", applyPatch)
	if !strings.Contains(status.Message, "reserved") {
		t.Errorf("the reserved annotation in UTF-16: %q", status.Message)
	}
	want(t, "annotations", h.Get(path+"/plain").At("metadata", "annotations"), nil)
	// A ConfigMap in protobuf whose field 16 is a number.
	status = h.Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "POST", path,
		"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x08\x0a\x06\x0a\x01c\x80\x01\x05", "Content-Type", "application/vnd.kubernetes.protobuf")
	if !strings.Contains(status.Message, "metadata.initializers: a field has the wrong wire type") {
		t.Errorf("a number in protobuf: %q", status.Message)
	}
}
