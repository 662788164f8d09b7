package objects

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

var deploymentVersions = []string{"extensions/v1beta1", "apps/v1beta1", "apps/v1beta2", "apps/v1"}

// TestVersionsOfDeployments writes an object in every version and reads it in every other.
func TestVersionsOfDeployments(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	ns := s.Namespace(t)
	root := func(version string) string { return "/apis/" + version + "/namespaces/" + ns + "/deployments" }
	for _, from := range deploymentVersions {
		t.Run(from, func(t *testing.T) {
			h := s.HTTP(t, nil)
			name := strings.ToLower(strings.NewReplacer("/", "-", ".", "-").Replace(from))
			created := h.Must(http.StatusCreated, "POST", root(from), deployment(from, name))
			want(t, "version of the answer", created.Text("apiVersion"), from)
			spec := created.At("spec")
			for _, through := range deploymentVersions {
				got := h.Get(root(through) + "/" + name)
				want(t, "version", got.Text("apiVersion"), through)
				want(t, "uid through "+through, got.At("metadata", "uid"), created.At("metadata", "uid"))
				want(t, "resourceVersion through "+through, got.At("metadata", "resourceVersion"), created.At("metadata", "resourceVersion"))
				if diff := cmp.Diff(spec, got.At("spec")); diff != "" {
					t.Errorf("spec through %s (-%s +%s):\n%s", through, from, through, diff)
				}
				item := h.Get(root(through)+"?fieldSelector=metadata.name="+name).At("items", "0").(map[string]any)
				if kind, ok := item["apiVersion"]; ok && kind != through {
					t.Errorf("item of a list through %s: %v", through, kind)
				}
				// A write in any version changes the same object.
				put := h.Must(http.StatusOK, "PUT", root(through)+"/"+name, string(got.Raw))
				want(t, "resourceVersion after a write of the same", put.At("metadata", "resourceVersion"), got.At("metadata", "resourceVersion"))
			}
			w := h.Watch(root("apps/v1beta2") + "?watch=1&resourceVersion=" + created.Text("metadata", "resourceVersion") + "&fieldSelector=metadata.name=" + name)
			h.Must(http.StatusOK, "PATCH", root(from)+"/"+name, `{"spec":{"replicas":6}}`, "Content-Type", mergePatch)
			e := w.Next()
			want(t, "watched", harness.At(e.Object, "apiVersion"), any("apps/v1beta2"))
			want(t, "replicas", harness.At(e.Object, "spec", "replicas"), any(float64(6)))
			h.Must(http.StatusOK, "DELETE", root("extensions/v1beta1")+"/"+name, "")
			h.Do("GET", root("apps/v1")+"/"+name, "").Refusal(http.StatusNotFound, "NotFound")
		})
	}
}

// TestDefaultsPerVersion writes only the required fields of each version.
func TestDefaultsPerVersion(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	for i, c := range []struct {
		version               string
		history, progress     any
		surge, selector, size string
	}{
		// The old versions had different defaults.
		{"extensions/v1beta1", nil, nil, "1", "from the template", "1"},
		{"apps/v1beta1", float64(2), float64(600), "25%", "from the template", "1"},
		{"apps/v1beta2", float64(10), float64(600), "25%", "", "1"},
		{"apps/v1", float64(10), float64(600), "25%", "", "1"},
	} {
		t.Run(c.version, func(t *testing.T) {
			h := s.HTTP(t, nil)
			name := string(rune('a' + i))
			selector := "selector: {matchLabels: {app: x}},"
			if c.selector != "" {
				selector = ""
			}
			path := "/apis/" + c.version + "/namespaces/" + ns + "/deployments"
			body := toJSON(`{apiVersion: %s, kind: Deployment, metadata: {name: %s}, spec: {%s template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}}}`,
				c.version, name, selector)
			got := h.Must(http.StatusCreated, "POST", path, body)
			if strings.HasPrefix(c.version, "extensions") {
				// The largest number means "all".
				want(t, "revisionHistoryLimit", got.At("spec", "revisionHistoryLimit"), any(float64(2147483647)))
				want(t, "progressDeadlineSeconds", got.At("spec", "progressDeadlineSeconds"), any(float64(2147483647)))
			} else {
				want(t, "revisionHistoryLimit", got.At("spec", "revisionHistoryLimit"), c.history)
				want(t, "progressDeadlineSeconds", got.At("spec", "progressDeadlineSeconds"), c.progress)
			}
			want(t, "maxSurge", got.Text("spec", "strategy", "rollingUpdate", "maxSurge"), c.surge)
			want(t, "selector", got.Text("spec", "selector", "matchLabels", "app"), "x")
			want(t, "replicas", got.Text("spec", "replicas"), c.size)
		})
	}
	t.Run("a daemon set's update strategy", func(t *testing.T) {
		for version, strategy := range map[string]string{"extensions/v1beta1": "OnDelete", "apps/v1beta2": "RollingUpdate", "apps/v1": "RollingUpdate"} {
			name := strings.NewReplacer("/", "-").Replace(version)
			got := h.Must(http.StatusCreated, "POST", "/apis/"+version+"/namespaces/"+ns+"/daemonsets", toJSON(
				`{apiVersion: %s, kind: DaemonSet, metadata: {name: %s}, spec: {selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}}}`, version, name))
			want(t, "strategy in "+version, got.Text("spec", "updateStrategy", "type"), strategy)
		}
	})
	t.Run("a webhook configuration's, S1.2", func(t *testing.T) {
		name := "w-" + ns + ".example.com"
		root := "/apis/admissionregistration.k8s.io/"
		old := h.Do("POST", root+"v1beta1/validatingwebhookconfigurations", toJSON(`
{apiVersion: admissionregistration.k8s.io/v1beta1, kind: ValidatingWebhookConfiguration, metadata: {name: %s},
 webhooks: [{name: %[1]s, clientConfig: {url: "https://127.0.0.1:1/x"}, rules: [{operations: [CREATE], apiGroups: [none.example.com], apiVersions: [v1], resources: [none]}]}]}`, name))
		if old.Code == http.StatusNotFound {
			t.Skip("admissionregistration.k8s.io/v1beta1 is not served")
		}
		want(t, "code", old.Code, http.StatusCreated)
		hook := h.Get(root+"v1/validatingwebhookconfigurations/"+name).At("webhooks", "0")
		for field, value := range map[string]any{"failurePolicy": "Ignore", "matchPolicy": "Exact", "sideEffects": "Unknown", "timeoutSeconds": float64(30)} {
			want(t, field, harness.At(hook, field), value)
		}
		h.Must(http.StatusOK, "DELETE", root+"v1/validatingwebhookconfigurations/"+name, "")
	})
}

// TestEventsOfBothGroups writes events in one group and reads them in the other.
func TestEventsOfBothGroups(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/events", toJSON(
		`{apiVersion: v1, kind: Event, metadata: {name: e}, involvedObject: {kind: Pod, namespace: %s, name: p}, reason: Started, message: hello, type: Normal}`, ns))
	got := h.Get("/apis/events.k8s.io/v1/namespaces/" + ns + "/events/e")
	want(t, "note", got.Text("note"), "hello")
	want(t, "regarding", got.Text("regarding", "name"), "p")
	// Field managers of one group are converted to the other.
	patched := h.Must(http.StatusOK, "PATCH", "/apis/events.k8s.io/v1/namespaces/"+ns+"/events/e", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch, "User-Agent", "other")
	want(t, "managers", len(patched.At("metadata", "managedFields").([]any)), 2)
}
