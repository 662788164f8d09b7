package webhooks

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func testDryRun(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	h := j.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("there"))
	for _, c := range []struct {
		sideEffects, line string
		refused, called   bool
	}{
		{"None", "", false, true},
		{"NoneOnDryRun", "", false, true},
		{"Some", "", true, false},
		{"Unknown", "", true, false},
		{"Some", "objectSelector: {matchLabels: {nothing: here}}", false, false},
		{"Unknown", "rules: [{operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: ['*']}]", false, false},
		{"Some", "matchConditions: [{name: never, expression: 'false'}]", false, false},
		{"Some", "matchConditions: [{name: real, expression: '!request.dryRun'}]", false, false},
	} {
		for _, kind := range []string{mutating, validating} {
			t.Run(fmt.Sprintf("S7.6 %s %s, %s", c.sideEffects, c.line, kind), func(t *testing.T) {
				h := j.HTTP(t, nil)
				hook := j.hooks.Hook("/"+ns, harness.Allow)
				w := webhook("dry", ns, hook, "sideEffects: "+c.sideEffects, "failurePolicy: Ignore", c.line)
				register(t, j.Server, "v1beta1", kind, w)
				for _, write := range []struct{ method, path, contentType, body string }{
					{"POST", "", "application/json", configMap("dry")},
					{"PATCH", "/there", mergePatch, `{"data":{"a":"b"}}`},
					{"DELETE", "/there", "application/json", ""},
					{"DELETE", "", "application/json", ""},
				} {
					hook.Forget()
					r := h.Do(write.method, configMaps(ns)+write.path+"?dryRun=All", write.body, "Content-Type", write.contentType)
					if c.refused {
						status := r.Refusal(http.StatusBadRequest, "BadRequest")
						want(t, "message", status.Message, fmt.Sprintf("admission webhook %q does not support dry run", w["name"]))
					} else if r.Code >= 300 {
						t.Errorf("%s: %d %s", write.method, r.Code, r.Raw)
					}
					want(t, "called for "+write.method, len(hook.Reviews()) > 0, c.called)
					for _, review := range hook.Reviews() {
						want(t, "S3.13 dryRun", review.Request("dryRun"), any(true))
					}
				}
			})
		}
	}
	want(t, "S5.15 nothing is stored", names(h.Get(configMaps(ns))), []string{"there"})
}

var uid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// testOperations covers the table of S3.8, as seen by a mutating and a validating webhook.
func testOperations(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	before, after := j.hooks.Hook("/m"+ns, harness.Allow), j.hooks.Hook("/v"+ns, harness.Allow)
	all := rules(rule("*", "/v1/configmaps/*"), rule("*", "apps/v1/deployments", "apps/v1/deployments/*"), rule("*", "coordination.k8s.io/v1/leases"))
	register(t, j.Server, "v1", mutating, webhook("m", ns, before, all))
	register(t, j.Server, "v1", validating, webhook("v", ns, after, all))
	deployments := "/apis/apps/v1/namespaces/" + ns + "/deployments"
	j.HTTP(t, nil).Must(http.StatusCreated, "POST", deployments, deployment("apps/v1", "d"))
	apply := func(name, value string) string {
		return toJSON(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s}, data: {key: %s}}`, name, value)
	}
	for _, c := range []struct {
		name, method, path, contentType, body string
		operation, options, object, old, sub  string
		objectName                            string
		creates                               bool
	}{
		{"POST", "POST", configMaps(ns), "application/json", configMap("c"), "CREATE", "CreateOptions", "v1 ConfigMap", "", "", "c", true},
		{"PUT", "PUT", configMaps(ns) + "/c", "application/json", configMap("c", "a", "b"), "UPDATE", "UpdateOptions", "v1 ConfigMap", "v1 ConfigMap", "", "c", false},
		{"merge patch", "PATCH", configMaps(ns) + "/c", mergePatch, `{"data":{"x":"y"}}`, "UPDATE", "UpdateOptions", "v1 ConfigMap", "v1 ConfigMap", "", "c", false},
		{"JSON patch", "PATCH", configMaps(ns) + "/c", jsonPatch, `[{"op":"add","path":"/data/z","value":"1"}]`, "UPDATE", "UpdateOptions", "v1 ConfigMap", "v1 ConfigMap", "", "c", false},
		{"strategic merge patch", "PATCH", configMaps(ns) + "/c", strategicPatch, `{"data":{"x":"z"}}`, "UPDATE", "UpdateOptions", "v1 ConfigMap", "v1 ConfigMap", "", "c", false},
		{"S2.5 apply that creates", "PATCH", configMaps(ns) + "/applied", applyPatch, apply("applied", "v"), "CREATE", "CreateOptions", "v1 ConfigMap", "", "", "applied", true},
		{"S2.5 PUT that creates", "PUT", "/apis/coordination.k8s.io/v1/namespaces/" + ns + "/leases/l", "application/json", toJSON(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l}}`), "CREATE", "CreateOptions", "coordination.k8s.io/v1 Lease", "", "", "l", true},
		{"apply that updates", "PATCH", configMaps(ns) + "/applied", applyPatch, apply("applied", "w"), "UPDATE", "UpdateOptions", "v1 ConfigMap", "v1 ConfigMap", "", "applied", false},
		{"status", "PATCH", deployments + "/d/status", mergePatch, `{"status":{"replicas":1}}`, "UPDATE", "UpdateOptions", "apps/v1 Deployment", "apps/v1 Deployment", "status", "d", false},
		{"scale", "PATCH", deployments + "/d/scale", mergePatch, `{"spec":{"replicas":9}}`, "UPDATE", "UpdateOptions", "autoscaling/v1 Scale", "autoscaling/v1 Scale", "scale", "d", false},
		{"put of scale", "PUT", deployments + "/d/scale", "application/json", toJSON(`{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: d}, spec: {replicas: 7}}`), "UPDATE", "UpdateOptions", "autoscaling/v1 Scale", "autoscaling/v1 Scale", "scale", "d", false},
		{"DELETE", "DELETE", configMaps(ns) + "/c", "application/json", `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`, "DELETE", "DeleteOptions", "", "v1 ConfigMap", "", "c", false},
	} {
		t.Run("S3.8 "+c.name, func(t *testing.T) {
			h := j.HTTP(t, nil)
			before.Forget()
			after.Forget()
			if r := h.Do(c.method, c.path+"?fieldManager=tester", c.body, "Content-Type", c.contentType); r.Code >= 300 {
				t.Fatalf("%d %s", r.Code, r.Raw)
			}
			for _, hook := range []*harness.Hook{before, after} {
				r := hook.Last(t)
				want(t, "S3.7 review", fmt.Sprint(r.Body["apiVersion"], r.Body["kind"], r.Body["response"]), "admission.k8s.io/v1AdmissionReview<nil>")
				want(t, "operation", r.Text("operation"), c.operation)
				kind := func(of string) string {
					return strings.TrimSpace(r.Text(of, "apiVersion") + " " + r.Text(of, "kind"))
				}
				want(t, "S3.11 object", kind("object"), c.object)
				want(t, "S3.11 oldObject", kind("oldObject"), c.old)
				want(t, "options", kind("options"), "meta.k8s.io/v1 "+c.options)
				if c.operation != "DELETE" {
					want(t, "options", r.Text("options", "fieldManager"), "tester")
				}
				want(t, "S3.9 name and namespace", r.Text("name")+" "+r.Text("namespace"), c.objectName+" "+ns)
				want(t, "subResource", r.Text("subResource")+r.Text("requestSubResource"), c.sub+c.sub)
				want(t, "dryRun", r.Request("dryRun"), any(false))
				want(t, "user", r.Text("userInfo", "username"), "gatehouse-admin")
				if !uid.MatchString(r.Text("uid")) {
					t.Errorf("uid is %q", r.Text("uid"))
				}
				request := r.Body["request"].(map[string]any)
				for _, field := range []string{"object", "oldObject", "options"} {
					if _, ok := request[field]; !ok {
						t.Errorf("%s is omitted", field)
					}
				}
				header := r.HTTP.Header
				want(t, "S3.1 method and headers", []string{r.HTTP.Method, header.Get("Content-Type"), header.Get("Accept"), header.Get("User-Agent")},
					[]string{"POST", "application/json", "application/json, */*", "kube-apiserver-admission"})
			}
			if c.creates {
				want(t, "S3.10 uid in the mutating pass", before.Last(t).Request("object", "metadata", "uid"), nil)
				want(t, "S3.10 namespace in the mutating pass", before.Last(t).Text("object", "metadata", "namespace"), ns)
				want(t, "S3.10 uid in the validating pass", uid.MatchString(after.Last(t).Text("object", "metadata", "uid")), true)
			}
			if before.Last(t).Text("uid") == after.Last(t).Text("uid") {
				t.Error("S3.7 two calls have one uid")
			}
		})
	}
	t.Run("S3.16 nothing is called for what is not there", func(t *testing.T) {
		h := j.HTTP(t, nil)
		before.Forget()
		h.Refused(http.StatusNotFound, "NotFound", "DELETE", configMaps(ns)+"/nothing", "")
		h.Refused(http.StatusNotFound, "NotFound", "PATCH", configMaps(ns)+"/nothing", `{}`, "Content-Type", mergePatch)
		want(t, "calls", len(before.Reviews()), 0)
	})
	t.Run("S3.17 the end of a finalizer is an update", func(t *testing.T) {
		h := j.HTTP(t, nil)
		h.Must(http.StatusCreated, "POST", configMaps(ns), toJSON(`{apiVersion: v1, kind: ConfigMap, metadata: {name: f, finalizers: [example.com/f]}}`))
		before.Forget()
		h.Must(http.StatusOK, "DELETE", configMaps(ns)+"/f", "")
		h.Must(http.StatusOK, "PATCH", configMaps(ns)+"/f", `{"metadata":{"finalizers":null}}`, "Content-Type", mergePatch)
		h.Refused(http.StatusNotFound, "NotFound", "GET", configMaps(ns)+"/f", "")
		want(t, "calls", calls(before), []string{"DELETE", "UPDATE"})
	})
	t.Run("S3.7 S3.14 an impersonated user with extras", func(t *testing.T) {
		config := j.As("eve", "system:masters", "devs")
		config.Impersonate.UID = "7"
		config.Impersonate.Extra = map[string][]string{"example.com/a": {"x", "y"}}
		j.HTTP(t, config).Must(http.StatusCreated, "POST", configMaps(ns), configMap("eve"))
		want(t, "S3.14 userInfo", after.Last(t).Request("userInfo"), any(map[string]any{
			"username": "eve", "uid": "7", "groups": []any{"system:masters", "devs", "system:authenticated"},
			"extra": map[string]any{"example.com/a": []any{"x", "y"}},
		}))
	})
}

func testGeneratedNames(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	before, after := j.hooks.Hook("/m"+ns, harness.Allow), j.hooks.Hook("/v"+ns, harness.Allow)
	register(t, j.Server, "v1", mutating, webhook("m", ns, before))
	register(t, j.Server, "v1", validating, webhook("v", ns, after))
	r := j.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps(ns), toJSON(`{apiVersion: v1, kind: ConfigMap, metadata: {generateName: some-}}`))
	want(t, "S3.9 name in the mutating pass", before.Last(t).Text("name")+before.Last(t).Text("object", "metadata", "name"), "")
	want(t, "S3.9 generateName", before.Last(t).Text("object", "metadata", "generateName"), "some-")
	want(t, "S3.9 name in the validating pass", after.Last(t).Text("name"), r.Text("metadata", "name"))

	// The webhook takes the first name while it handles the request.
	var names []string
	after.Answer(func(w http.ResponseWriter, r *harness.Review) {
		if r.Text("object", "metadata", "generateName") != "" {
			if names = append(names, r.Text("name")); len(names) == 1 {
				if code, err := j.HTTP(t, nil).Try(t.Context(), "POST", configMaps(ns), configMap(names[0])); code != http.StatusCreated {
					t.Errorf("taking the name: %d %v", code, err)
				}
			}
		}
		harness.Allow(w, r)
	})
	r = j.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps(ns), toJSON(`{apiVersion: v1, kind: ConfigMap, metadata: {generateName: other-}}`))
	if len(names) != 2 || names[0] == names[1] || names[1] != r.Text("metadata", "name") {
		t.Errorf("S3.15 names in the validating pass are %q, that of the object is %q; want two, the object's last", names, r.Text("metadata", "name"))
	}
}

func testConnect(t *testing.T, j *judged) {
	h := j.HTTP(t, nil)
	ns := j.Namespace(t)
	before, after := j.hooks.Hook("/m"+ns, harness.Allow), j.hooks.Hook("/v"+ns, harness.Allow)
	w := rules(rule("CONNECT", "/v1/pods/exec"))
	register(t, j.Server, "v1", mutating, webhook("m", ns, before, w))
	register(t, j.Server, "v1", validating, webhook("v", ns, after, w))
	path := "/api/v1/namespaces/" + ns + "/pods"
	h.Must(http.StatusCreated, "POST", path, pod("p"))
	const exec = "/p/exec?command=ls&command=-l&stdout=true&container=main"
	for _, method := range []string{"POST", "GET"} {
		before.Forget()
		after.Forget()
		r := h.Do(method, path+exec, "")
		want(t, "code of "+method, r.Code, http.StatusNotImplemented)
		for _, hook := range []*harness.Hook{before, after} {
			r := hook.Last(t)
			want(t, "calls", len(hook.Reviews()), 1)
			want(t, "S3.8 operation", r.Text("operation")+" "+r.Text("subResource")+" "+r.Text("name"), "CONNECT exec p")
			want(t, "S3.8 kind", r.Text("kind", "kind"), "PodExecOptions")
			want(t, "S3.8 object", r.Text("object", "apiVersion")+" "+r.Text("object", "kind"), "v1 PodExecOptions")
			want(t, "S3.8 object", r.Request("object", "command"), any([]any{"ls", "-l"}))
			want(t, "S3.8 options and oldObject", []any{r.Request("options"), r.Request("oldObject")}, []any{nil, nil})
			want(t, "S3.12 dryRun", r.Request("dryRun"), any(false))
		}
	}
	before.Answer(harness.Patch(`[{"op":"replace","path":"/container","value":"other"}]`))
	h.Do("POST", path+exec, "")
	want(t, "S5.10 a patch changes the options", after.Last(t).Text("object", "container"), "other")
	after.Answer(harness.Deny(map[string]any{"code": 403, "reason": "Forbidden", "message": "no entry"}))
	status := h.Refused(http.StatusForbidden, "Forbidden", "POST", path+exec, "")
	want(t, "message", status.Message, fmt.Sprintf("admission webhook %q denied the request: no entry", "v."+ns+".example.com"))
	before.Forget()
	status = h.Refused(http.StatusBadRequest, "BadRequest", "POST", path+exec+"&dryRun=All", "")
	want(t, "S3.12 message", status.Message, "dryRun is not supported")
	want(t, "S3.12 calls", len(before.Reviews()), 0)
}

// testConflicts has a webhook that changes the stored object while it evaluates a patch of it.
func testConflicts(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	h := j.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("c"))
	hook := j.hooks.Hook("/"+ns, harness.Allow)
	var asked atomic.Int32
	hook.Answer(func(w http.ResponseWriter, r *harness.Review) {
		if asked.Add(1) == 1 {
			if code, err := h.Try(r.HTTP.Context(), "PATCH", configMaps(ns)+"/c", `{"data":{"other":"x"}}`, "Content-Type", mergePatch); err != nil || code != http.StatusOK {
				t.Errorf("%d %v", code, err)
			}
		}
		harness.Allow(w, r)
	})
	register(t, j.Server, "v1", validating, webhook("v", ns, hook, rules(rule("UPDATE", "/v1/configmaps"))))
	r := h.Must(http.StatusOK, "PATCH", configMaps(ns)+"/c", `{"data":{"own":"y"}}`, "Content-Type", mergePatch)
	want(t, "both writes are there", r.At("data"), any(map[string]any{"key": "value", "other": "x", "own": "y"}))
	reviews := hook.Reviews()
	if len(reviews) < 3 {
		t.Errorf("S3.16 %d calls, want one for each of the writes and one after the conflict", len(reviews))
	}
	last := reviews[len(reviews)-1]
	want(t, "S3.16 the old object is the newer one", last.Request("oldObject", "data"), any(map[string]any{"key": "value", "other": "x"}))
	want(t, "S3.16 the new object", last.Request("object", "data"), any(map[string]any{"key": "value", "other": "x", "own": "y"}))
}

func testDeleteCollection(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	h := j.HTTP(t, nil)
	hook := j.hooks.Hook("/"+ns, harness.Allow)
	register(t, j.Server, "v1", validating, webhook("v", ns, hook, rules(rule("DELETE", "/v1/configmaps"))))
	hook.Answer(func(w http.ResponseWriter, r *harness.Review) {
		if r.Text("oldObject", "metadata", "name") == "kept" {
			harness.Deny(map[string]any{"message": "it is needed"})(w, r)
			return
		}
		harness.Allow(w, r)
	})
	for _, name := range []string{"a", "b", "c"} {
		h.Must(http.StatusCreated, "POST", configMaps(ns), configMap(name, "x", "y"))
	}
	h.Must(http.StatusOK, "DELETE", configMaps(ns)+"?labelSelector=x%3Dy", "")
	found := map[string]any{}
	for _, r := range hook.Reviews() {
		found[r.Text("oldObject", "metadata", "name")] = r.Request("name")
		want(t, "S3.8 operation and object", []any{r.Request("operation"), r.Request("object")}, []any{"DELETE", nil})
		want(t, "S3.8 options", r.Text("options", "kind"), "DeleteOptions")
	}
	want(t, "S3.9 calls, and the names in them", found, map[string]any{"a": nil, "b": nil, "c": nil})
	for _, name := range []string{"one", "kept"} {
		h.Must(http.StatusCreated, "POST", configMaps(ns), configMap(name))
	}
	status := h.Refused(http.StatusBadRequest, "", "DELETE", configMaps(ns), "")
	want(t, "message", status.Message, fmt.Sprintf("admission webhook %q denied the request: it is needed", "v."+ns+".example.com"))
	h.Get(configMaps(ns) + "/kept")
	hook.Forget()
	hook.Answer(harness.Allow)
	h.Must(http.StatusOK, "DELETE", configMaps(ns), "")
	hook.Forget()
	h.Must(http.StatusOK, "DELETE", configMaps(ns), "")
	want(t, "S3.16 calls for an empty collection", len(hook.Reviews()), 0)
}
