package objects

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	path := "/api/v1/namespaces/" + ns + "/configmaps"

	t.Run("sets metadata", func(t *testing.T) {
		created := h.Must(http.StatusCreated, "POST", path+"?fieldManager=tester", configMap("a"))
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp"} {
			if created.Text("metadata", field) == "" {
				t.Errorf("no metadata.%s", field)
			}
		}
		want(t, "namespace", created.Text("metadata", "namespace"), ns)
		want(t, "manager", created.Text("metadata", "managedFields", "0", "manager"), "tester")
		want(t, "generation of a kind without a spec", created.At("metadata", "generation"), nil)
	})
	t.Run("manager is the user agent without fieldManager", func(t *testing.T) {
		created := h.Must(http.StatusCreated, "POST", path, configMap("agent"), "User-Agent", "some-tool/1.2 (linux)")
		want(t, "manager", created.Text("metadata", "managedFields", "0", "manager"), "some-tool")
	})
	t.Run("again", func(t *testing.T) {
		h.Must(http.StatusCreated, "POST", path, configMap("twice"))
		status := h.Refused(http.StatusConflict, metav1.StatusReasonAlreadyExists, "POST", path, configMap("twice"))
		want(t, "message", status.Message, `configmaps "twice" already exists`)
	})
	t.Run("refuses a resourceVersion", func(t *testing.T) {
		h.Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "POST", path, toJSON(`{apiVersion: v1, kind: ConfigMap, metadata: {name: rv, resourceVersion: "7"}}`))
	})
	t.Run("generateName", func(t *testing.T) {
		body := toJSON(`{apiVersion: v1, kind: ConfigMap, metadata: {generateName: gen-}}`)
		one := h.Must(http.StatusCreated, "POST", path, body).Text("metadata", "name")
		two := h.Must(http.StatusCreated, "POST", path, body).Text("metadata", "name")
		if !regexp.MustCompile(`^gen-[a-z0-9]{5}$`).MatchString(one) || one == two {
			t.Errorf("names %q, %q", one, two)
		}
	})
	t.Run("dry run stores nothing", func(t *testing.T) {
		dry := h.Must(http.StatusCreated, "POST", path+"?dryRun=All", configMap("dry"))
		want(t, "name", dry.Text("metadata", "name"), "dry")
		h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", path+"/dry", "")
		h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", path+"?dryRun=Some", configMap("dry"))
	})
	t.Run("defaults and validation are those of the kind", func(t *testing.T) {
		created := h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/pods", pod("p"))
		want(t, "restartPolicy", created.Text("spec", "restartPolicy"), "Always")
		want(t, "phase", created.Text("status", "phase"), "Pending")
		want(t, "qosClass", created.Text("status", "qosClass"), "BestEffort")
		status := h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", "/api/v1/namespaces/"+ns+"/pods",
			pod("q", `spec: {restartPolicy: Sometimes}`))
		want(t, "field", status.Details.Causes[0].Field, "spec.restartPolicy")
		want(t, "type", status.Details.Causes[0].Type, metav1.CauseTypeFieldValueNotSupported)
	})
	t.Run("generation", func(t *testing.T) {
		apps := "/apis/apps/v1/namespaces/" + ns + "/deployments"
		created := h.Must(http.StatusCreated, "POST", apps, deployment("apps/v1", "d"))
		want(t, "at first", created.Text("metadata", "generation"), "1")
		patched := h.Must(http.StatusOK, "PATCH", apps+"/d", `{"metadata":{"labels":{"x":"y"}}}`, "Content-Type", mergePatch)
		want(t, "after metadata changed", patched.Text("metadata", "generation"), "1")
		patched = h.Must(http.StatusOK, "PATCH", apps+"/d", `{"spec":{"replicas":5}}`, "Content-Type", mergePatch)
		want(t, "after the spec changed", patched.Text("metadata", "generation"), "2")
	})
}

func TestFieldValidation(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/api/v1/namespaces/" + s.Namespace(t) + "/configmaps"
	unknown := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME","labls":{}},"dat":{},"data":{"a":"1"}}`
	double := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"},"data":{"a":"1"},"data":{"a":"2"}}`
	yamlDouble := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\ndata: {a: '1', a: '2'}\n"
	send := func(name, body, query string, headers ...string) *harness.Response {
		return h.Do("POST", path+query, strings.ReplaceAll(body, "NAME", name), headers...)
	}

	for _, c := range []struct {
		name, body, query string
		headers           []string
		code              int
		// texts are in the error, or are the warnings.
		texts []string
	}{
		{"strict-unknown", unknown, "?fieldValidation=Strict", nil, 400, []string{`unknown field "dat"`, `unknown field "metadata.labls"`}},
		{"warn-unknown", unknown, "?fieldValidation=Warn", nil, 201, []string{`unknown field "dat"`, `unknown field "metadata.labls"`}},
		{"default-unknown", unknown, "", nil, 201, []string{`unknown field "dat"`, `unknown field "metadata.labls"`}},
		{"ignore-unknown", unknown, "?fieldValidation=Ignore", nil, 201, nil},
		{"strict-double", double, "?fieldValidation=Strict", nil, 400, []string{`duplicate field "data"`}},
		{"warn-double", double, "?fieldValidation=Warn", nil, 201, []string{`duplicate field "data"`}},
		{"ignore-double", double, "?fieldValidation=Ignore", nil, 201, nil},
		{"strict-yaml-double", yamlDouble, "?fieldValidation=Strict", []string{"Content-Type", "application/yaml"}, 400, []string{`key "a" already set in map`}},
		{"warn-yaml-double", yamlDouble, "?fieldValidation=Warn", []string{"Content-Type", "application/yaml"}, 201, []string{`key "a" already set in map`}},
		{"bad-value", double, "?fieldValidation=Sometimes", nil, 422, []string{"fieldValidation"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := send(c.name, c.body, c.query, c.headers...)
			if r.Code != c.code {
				t.Fatalf("%d, want %d: %s", r.Code, c.code, r.Raw)
			}
			told := strings.Join(r.Header.Values("Warning"), "\n")
			if c.code >= 400 {
				told = r.Text("message")
				h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", path+"/"+c.name, "")
			}
			for _, text := range c.texts {
				if !strings.Contains(strings.ReplaceAll(told, `\"`, `"`), text) {
					t.Errorf("%q does not say %q", told, text)
				}
			}
			if len(c.texts) == 0 && told != "" {
				t.Errorf("unexpected warning %q", told)
			}
		})
	}

	h.Must(http.StatusCreated, "POST", path, configMap("patched"))
	for _, c := range []struct {
		name, contentType, body string
		code                    int
		reason                  metav1.StatusReason
	}{
		{"merge patch", mergePatch, `{"dat":{"x":"y"}}`, 422, metav1.StatusReasonInvalid},
		{"strategic merge patch", strategicPatch, `{"dat":{"x":"y"}}`, 422, metav1.StatusReasonInvalid},
		{"JSON patch", jsonPatch, `[{"op":"add","path":"/dat","value":{"x":"y"}}]`, 422, metav1.StatusReasonInvalid},
		{"apply", applyPatch, "{apiVersion: v1, kind: ConfigMap, metadata: {name: patched}, dat: {x: y}}", 400, metav1.StatusReasonBadRequest},
	} {
		t.Run("strict "+c.name, func(t *testing.T) {
			status := h.Refused(c.code, c.reason, "PATCH", path+"/patched?fieldManager=t&fieldValidation=Strict", c.body, "Content-Type", c.contentType)
			if !strings.Contains(status.Message, "dat") {
				t.Errorf("%q does not name the field", status.Message)
			}
		})
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	put := func(name, version, uid, value string) string {
		return toJSON(`{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, resourceVersion: %q, uid: %q}, data: {key: %s}}`, name, version, uid, value)
	}

	created := h.Must(http.StatusCreated, "POST", path, configMap("a"))
	version, uid := created.Text("metadata", "resourceVersion"), created.Text("metadata", "uid")
	updated := h.Must(http.StatusOK, "PUT", path+"/a", put("a", version, "", "new"))
	want(t, "data", updated.Text("data", "key"), "new")
	want(t, "uid", updated.Text("metadata", "uid"), uid)
	want(t, "creationTimestamp", updated.At("metadata", "creationTimestamp"), created.At("metadata", "creationTimestamp"))

	h.Refused(http.StatusConflict, metav1.StatusReasonConflict, "PUT", path+"/a", put("a", version, "", "newer"))
	h.Refused(http.StatusConflict, metav1.StatusReasonConflict, "PUT", path+"/a", put("a", "", "00000000-0000-0000-0000-000000000000", "newer"))
	h.Must(http.StatusOK, "PUT", path+"/a", put("a", "", "", "unconditional"))
	h.Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "PUT", path+"/a", put("b", "", "", "x"))
	h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "PUT", path+"/none", put("none", "", "", "x"))
	h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PUT", path+"/a", put("a", "not-a-version", "", "x"))

	same := h.Get(path + "/a")
	again := h.Must(http.StatusOK, "PUT", path+"/a", string(same.Raw))
	want(t, "resourceVersion after a change of nothing", again.Text("metadata", "resourceVersion"), same.Text("metadata", "resourceVersion"))

	dry := h.Must(http.StatusOK, "PUT", path+"/a?dryRun=All", put("a", "", "", "dry"))
	want(t, "answer of a dry run", dry.Text("data", "key"), "dry")
	want(t, "stored after a dry run", h.Get(path+"/a").Text("data", "key"), "unconditional")

	h.Must(http.StatusCreated, "POST", path, toJSON(`{apiVersion: v1, kind: ConfigMap, metadata: {name: fixed}, immutable: true, data: {a: b}}`))
	h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PATCH", path+"/fixed", `{"data":{"a":"c"}}`, "Content-Type", mergePatch)

	// Leases may be created with PUT.
	leases := "/apis/coordination.k8s.io/v1/namespaces/" + ns + "/leases"
	lease := toJSON(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l}, spec: {holderIdentity: me}}`)
	stored := h.Must(http.StatusCreated, "PUT", leases+"/l", lease)
	h.Must(http.StatusOK, "PUT", leases+"/l", string(stored.Raw))
	// But they cannot be updated without a resourceVersion.
	h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PUT", leases+"/l", lease)
}

func TestDelete(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	path := "/api/v1/namespaces/" + ns + "/configmaps"

	t.Run("answers Success with the uid", func(t *testing.T) {
		created := h.Must(http.StatusCreated, "POST", path, configMap("a"))
		deleted := h.Must(http.StatusOK, "DELETE", path+"/a", "")
		want(t, "status", deleted.Text("status"), "Success")
		want(t, "uid", deleted.Text("details", "uid"), created.Text("metadata", "uid"))
		h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "DELETE", path+"/a", "")
	})
	t.Run("preconditions", func(t *testing.T) {
		created := h.Must(http.StatusCreated, "POST", path, configMap("pre"))
		uid, version := created.Text("metadata", "uid"), created.Text("metadata", "resourceVersion")
		h.Refused(http.StatusConflict, metav1.StatusReasonConflict, "DELETE", path+"/pre", `{"preconditions":{"uid":"other"}}`)
		h.Refused(http.StatusConflict, metav1.StatusReasonConflict, "DELETE", path+"/pre", `{"preconditions":{"resourceVersion":"1"}}`)
		h.Must(http.StatusOK, "DELETE", path+"/pre", toJSON(`{preconditions: {uid: %q, resourceVersion: %q}}`, uid, version))
	})
	t.Run("dry run", func(t *testing.T) {
		h.Must(http.StatusCreated, "POST", path, configMap("dry"))
		h.Must(http.StatusOK, "DELETE", path+"/dry?dryRun=All", "")
		h.Get(path + "/dry")
	})
	t.Run("finalizers keep the object", func(t *testing.T) {
		h.Must(http.StatusCreated, "POST", path, toJSON(`{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}`))
		held := h.Must(http.StatusOK, "DELETE", path+"/held", "")
		if held.Text("metadata", "deletionTimestamp") == "" {
			t.Errorf("no deletionTimestamp: %s", held.Raw)
		}
		h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "PATCH", path+"/held",
			`{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}`, "Content-Type", mergePatch)
		h.Must(http.StatusOK, "PATCH", path+"/held", `{"metadata":{"finalizers":null}}`, "Content-Type", mergePatch)
		h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", path+"/held", "")
	})
	t.Run("propagationPolicy", func(t *testing.T) {
		for policy, finalizer := range map[string]any{"Foreground": "foregroundDeletion", "Orphan": "orphan"} {
			name := strings.ToLower(policy)
			h.Must(http.StatusCreated, "POST", path, configMap(name))
			deleted := h.Must(http.StatusOK, "DELETE", path+"/"+name, toJSON(`{propagationPolicy: %s}`, policy))
			want(t, policy, deleted.At("metadata", "finalizers", "0"), finalizer)
			h.Must(http.StatusOK, "PATCH", path+"/"+name, `{"metadata":{"finalizers":null}}`, "Content-Type", mergePatch)
		}
		h.Must(http.StatusCreated, "POST", path, configMap("background"))
		h.Must(http.StatusOK, "DELETE", path+"/background?propagationPolicy=Background", "")
		h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", path+"/background", "")
		h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "DELETE", path+"/background", `{"propagationPolicy":"Never"}`)
		h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "DELETE", path+"/background", `{"propagationPolicy":"Orphan","orphanDependents":true}`)
	})
	t.Run("pods that run on a node end gracefully", func(t *testing.T) {
		pods := "/api/v1/namespaces/" + ns + "/pods"
		h.Must(http.StatusCreated, "POST", pods, pod("running", "spec: {nodeName: somewhere, terminationGracePeriodSeconds: 7}"))
		h.Must(http.StatusCreated, "POST", pods, pod("waiting"))
		deleted := h.Must(http.StatusOK, "DELETE", pods+"/running", "")
		want(t, "grace period", deleted.Text("metadata", "deletionGracePeriodSeconds"), "7")
		h.Get(pods + "/running")
		h.Must(http.StatusOK, "DELETE", pods+"/running?gracePeriodSeconds=0", "")
		h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", pods+"/running", "")
		h.Must(http.StatusOK, "DELETE", pods+"/waiting", "")
		h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", pods+"/waiting", "")
	})
}

func TestDeleteCollection(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	path := "/api/v1/namespaces/" + s.Namespace(t) + "/configmaps"
	for _, name := range []string{"a", "b", "c"} {
		h.Must(http.StatusCreated, "POST", path, configMap(name, "app", name))
	}
	deleted := h.Must(http.StatusOK, "DELETE", path+"?labelSelector=app=b", "")
	want(t, "answer", names(deleted), []string{"b"})
	want(t, "remaining", names(h.Get(path)), []string{"a", "c"})
	h.Must(http.StatusOK, "DELETE", path+"?dryRun=All", "")
	want(t, "remaining after a dry run", names(h.Get(path)), []string{"a", "c"})
	h.Must(http.StatusOK, "DELETE", path+"?fieldSelector=metadata.name=c", "")
	want(t, "remaining", names(h.Get(path)), []string{"a"})
	h.Must(http.StatusOK, "DELETE", path, "")
	want(t, "remaining", names(h.Get(path)), []string{})
	// A collection over all namespaces cannot be deleted.
	h.Refused(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "DELETE", "/api/v1/configmaps", "")
}
