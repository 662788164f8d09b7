package webhooks

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func testCustomKinds(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	group := define(t, j.Server, ns)
	h := j.HTTP(t, nil)
	before, after := j.hooks.Hook("/m"+ns, harness.Allow), j.hooks.Hook("/v"+ns, harness.Allow)
	all := rules(rule("*", group+"/v1/widgets", group+"/v1/widgets/*"))
	const equivalent = "matchPolicy: Equivalent"
	register(t, j.Server, "v1", mutating, webhook("m", ns, before, all, equivalent))
	register(t, j.Server, "v1", validating, webhook("v", ns, after, all, equivalent))
	path := func(version string) string {
		return "/apis/" + group + "/" + version + "/namespaces/" + ns + "/widgets"
	}
	widget := func(version, name string) string {
		return toJSON(`{apiVersion: %s/%s, kind: Widget, metadata: {name: %s}, spec: {color: red}}`, group, version, name)
	}

	before.Answer(harness.Patch(`[{"op":"replace","path":"/spec/color","value":"blue"},{"op":"add","path":"/spec/nonsense","value":1},{"op":"remove","path":"/spec/size"}]`))
	r := h.Must(http.StatusCreated, "POST", path("v1"), widget("v1", "w"))
	want(t, "S5.4 patched, pruned and defaulted", r.At("spec"), any(map[string]any{"color": "blue", "replicas": 1.0, "size": "small"}))
	want(t, "S6.6 validating webhooks see the result", after.Last(t).Text("object", "spec", "color"), "blue")

	before.Answer(harness.Patch(`[{"op":"replace","path":"/spec/color","value":"ultramarine"}]`))
	after.Forget()
	h.Refused(http.StatusUnprocessableEntity, "Invalid", "POST", path("v1"), widget("v1", "x"))
	want(t, "S6.6 validating calls for an invalid object", len(after.Reviews()), 0)

	before.Answer(harness.Allow)
	h.Must(http.StatusCreated, "POST", path("v1beta1"), widget("v1beta1", "beta"))
	review := after.Last(t)
	want(t, "S2.24 kind", review.Text("kind", "version")+" "+review.Text("requestKind", "version"), "v1 v1beta1")
	want(t, "S2.27 object", review.Text("object", "apiVersion"), group+"/v1")
	before.Answer(harness.Patch(`[{"op":"replace","path":"/spec/color","value":"green"}]`))
	r = h.Must(http.StatusOK, "PATCH", path("v1beta1")+"/beta", `{"spec":{"replicas":2}}`, "Content-Type", mergePatch)
	want(t, "S5.11 patched in another version", r.Text("apiVersion")+" "+r.Text("spec", "color"), group+"/v1beta1 green")

	before.Answer(harness.Allow)
	for _, c := range []struct{ name, method, path, contentType, body, call, kind string }{
		{"status", "PATCH", "/w/status", mergePatch, `{"status":{"replicas":1}}`, "UPDATE widgets/status", "Widget"},
		{"scale", "PATCH", "/w/scale", mergePatch, `{"spec":{"replicas":3}}`, "UPDATE widgets/scale", "Scale"},
		{"put of scale", "PUT", "/w/scale", "application/json", toJSON(`{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: w}, spec: {replicas: 7}}`), "UPDATE widgets/scale", "Scale"},
		{"apply that creates", "PATCH", "/applied?fieldManager=t", applyPatch, widget("v1", "applied"), "CREATE widgets", "Widget"},
		{"apply that updates", "PATCH", "/applied?fieldManager=t", applyPatch, strings.Replace(widget("v1", "applied"), "red", "pink", 1), "UPDATE widgets", "Widget"},
		{"delete", "DELETE", "/applied", "application/json", "", "DELETE widgets", "Widget"},
	} {
		t.Run("S3.8 "+c.name, func(t *testing.T) {
			before.Forget()
			after.Forget()
			if r := j.HTTP(t, nil).Do(c.method, path("v1")+c.path, c.body, "Content-Type", c.contentType); r.Code >= 300 {
				t.Fatalf("%d %s", r.Code, r.Raw)
			}
			want(t, "kind", after.Last(t).Text("kind", "kind"), c.kind)
			want(t, "mutating calls", calls(before), []string{c.call})
			want(t, "validating calls", calls(after), []string{c.call})
		})
	}
	after.Forget()
	h.Must(http.StatusOK, "DELETE", path("v1"), "")
	want(t, "deletecollection", len(after.Reviews()), 2)
	after.Answer(harness.Deny(nil))
	h.Refused(http.StatusBadRequest, "", "POST", path("v1"), widget("v1", "denied"))
}

// testInitializersSeenByWebhooks verifies that webhooks see and change metadata.initializers of built-in and
// custom kinds.
func testInitializersSeenByWebhooks(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	group := define(t, j.Server, ns)
	for _, kind := range []struct {
		name, path, rule string
		object           func(name, metadata string) string
	}{
		{"a built-in kind", "/apis/apps/v1/namespaces/" + ns + "/deployments", "apps/v1/deployments", func(name, metadata string) string {
			return strings.Replace(deployment("apps/v1", name), `"metadata":{`, `"metadata":{`+metadata, 1)
		}},
		{"a built-in kind in another version", "/apis/extensions/v1beta1/namespaces/" + ns + "/deployments", "apps/v1/deployments", func(name, metadata string) string {
			return strings.Replace(deployment("extensions/v1beta1", name), `"metadata":{`, `"metadata":{`+metadata, 1)
		}},
		{"a custom kind", "/apis/" + group + "/v1/namespaces/" + ns + "/widgets", group + "/v1/widgets", func(name, metadata string) string {
			return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{%s"name":%q},"spec":{"color":"red"}}`, group, metadata, name)
		}},
		{"a custom kind in another version", "/apis/" + group + "/v1beta1/namespaces/" + ns + "/widgets", group + "/v1/widgets", func(name, metadata string) string {
			return fmt.Sprintf(`{"apiVersion":"%s/v1beta1","kind":"Widget","metadata":{%s"name":%q},"spec":{"color":"red"}}`, group, metadata, name)
		}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			h := j.HTTP(t, nil)
			id := strings.ReplaceAll(strings.ReplaceAll(kind.name, " ", "-"), "a-", "")
			before, after := j.hooks.Hook("/m"+id+ns, harness.Allow), j.hooks.Hook("/v"+id+ns, harness.Allow)
			all := rules(rule("*", kind.rule))
			const equivalent, label = "matchPolicy: Equivalent", "matchConditions: [{name: c, expression: \"request.operation == 'DELETE' || !has(object.metadata.annotations) || object.metadata.annotations.all(k, !k.contains('gatehouse'))\"}]"
			register(t, j.Server, "v1", mutating, webhook("m."+id, ns, before, all, equivalent, label))
			register(t, j.Server, "v1", validating, webhook("v."+id, ns, after, all, equivalent,
				"matchConditions: [{name: c, expression: \"request.operation != 'CREATE' || has(object.metadata.initializers)\"}]"))
			seen := func(what, was, is string) {
				t.Helper()
				for _, hook := range []*harness.Hook{before, after} {
					r := hook.Last(t)
					if was != "-" {
						want(t, what+": oldObject", pending(r.Request("oldObject")), was)
					}
					if hook == after {
						want(t, what+": object", pending(r.Request("object")), is)
					}
				}
			}
			const field = `"initializers":{"pending":[{"name":"a.example.com"},{"name":"b.example.com"}]},`

			r := h.Must(http.StatusAccepted, "POST", kind.path+including, kind.object("own-"+id, field))
			seen("S11.22 create", "-", "a,b")
			want(t, "answer", pending(r.Body), "a,b")

			before.Answer(harness.Patch(`[{"op":"add","path":"/metadata/initializers/pending/-","value":{"name":"c.example.com"}},{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]`))
			h.Must(http.StatusAccepted, "POST", kind.path+including, kind.object("more-"+id, field))
			seen("a patch adds one", "-", "a,b,c")
			want(t, "stored", pending(h.Get(kind.path+"/more-"+id+including).Body), "a,b,c")

			before.Answer(harness.Patch(`[{"op":"add","path":"/metadata/initializers","value":{"pending":[{"name":"d.example.com"}]}}]`))
			r = h.Must(http.StatusAccepted, "POST", kind.path+including, kind.object("set-"+id, ""))
			seen("a patch sets the field", "-", "d")
			want(t, "answer", pending(r.Body), "d")
			want(t, "stored", pending(h.Get(kind.path+"/set-"+id+including).Body), "d")

			before.Answer(harness.Allow)
			r = h.Must(http.StatusOK, "PATCH", kind.path+"/own-"+id, `[{"op":"remove","path":"/metadata/initializers/pending/0"}]`, "Content-Type", jsonPatch)
			seen("S11.22 update", "a,b", "b")
			want(t, "answer", pending(r.Body), "b")

			before.Answer(harness.Patch(`[{"op":"remove","path":"/metadata/initializers"}]`))
			h.Must(http.StatusOK, "PATCH", kind.path+"/own-"+id, `{"metadata":{"labels":{"z":"z"}}}`, "Content-Type", mergePatch)
			seen("a patch completes it", "b", "none")
			want(t, "stored", pending(h.Get(kind.path+"/own-"+id).Body), "none")

			before.Answer(harness.Allow)
			h.Must(http.StatusOK, "DELETE", kind.path+"/more-"+id, "")
			seen("delete", "a,b,c", "none")

			before.Answer(harness.Patch(`[{"op":"add","path":"/metadata/annotations","value":{"gatehouse.dev/metadata.initializers":"{}"}}]`))
			h.Refused(http.StatusInternalServerError, "InternalError", "POST", kind.path, kind.object("reserved-"+id, ""))
			for _, hook := range []*harness.Hook{before, after} {
				for _, review := range hook.Reviews() {
					if bytes.Contains(review.Raw, []byte("gatehouse.dev/metadata.initializers")) {
						t.Errorf("a webhook was sent the reserved annotation: %s", review.Raw)
					}
				}
			}
		})
	}
}

// testRegisteredInitializers verifies that a webhook sees the initializers that the Initializers plugin sets
// on a custom kind. From then on, objects of the kind keep them.
func testRegisteredInitializers(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	group := define(t, j.Server, ns)
	h := j.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations", toJSON(`
{apiVersion: admissionregistration.k8s.io/v1alpha1, kind: InitializerConfiguration, metadata: {name: %s}, initializers: [
 {name: a.example.com, rules: [{apiGroups: [%s], apiVersions: ["*"], resources: ["*"]}]}]}`, ns, group))
	t.Cleanup(func() {
		_, _ = h.Try(context.Background(), "DELETE", "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations/"+ns, "")
	})
	before := j.hooks.Hook("/m"+ns, harness.Patch(`[{"op":"replace","path":"/spec/color","value":"blue"}]`))
	register(t, j.Server, "v1", mutating, webhook("m", ns, before, rules(rule("*", group+"/v1/widgets"))))
	path := "/apis/" + group + "/v1/namespaces/" + ns + "/widgets"
	widget := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"color":"red"}}`, group)
	r := h.Must(http.StatusAccepted, "POST", path+including, widget)
	want(t, "S11.22 the webhook sees", pending(before.Last(t).Request("object")), "a")
	want(t, "answer", pending(r.Body)+" "+r.Text("spec", "color"), "a blue")
	want(t, "stored", pending(h.Get(path+"/w"+including).Body), "a")
	want(t, "S11.31 shown in lists", len(h.Get(path).At("items").([]any)), 0)
	want(t, "S11.33 shown by name to who may initialize", pending(h.Get(path+"/w").Body), "a")
	h.Must(http.StatusOK, "PATCH", path+"/w", `[{"op":"remove","path":"/metadata/initializers/pending/0"}]`, "Content-Type", jsonPatch)
	want(t, "S11.22 an initializer's update is seen, too", pending(before.Last(t).Request("oldObject")), "a")
	want(t, "in the end", pending(h.Get(path+"/w").Body), "none")
}
