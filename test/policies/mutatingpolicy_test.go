package policies

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestMutatingAdmissionPolicies verifies from a user's view that policies change objects of built-in and
// custom kinds.
func TestMutatingAdmissionPolicies(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t)
	ns := s.Namespace(t)
	k := s.Kubectl(t, ns)
	pods := "/api/v1/namespaces/" + ns + "/pods"
	pod := func(name string) string {
		return asJSON(map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "main:1"}}},
		})
	}

	t.Run("S18.2 S18.8 S18.14 a sidecar and a label", func(t *testing.T) {
		defer k.For(t)()
		h := s.HTTP(t, nil)
		k.MustWith(mutatingPolicy("sidecar", ns, "", "pods", "Never", `  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: "proxy", image: "proxy:1", restartPolicy: "Always"}]}}
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        has(object.metadata.labels) ? [] : [JSONPatch{op: "add", path: "/metadata/labels", value: {"images": (object.spec.containers[0].image + "-" + object.spec.initContainers[0].image).replace(":", ".")}}]
`), "apply", "-f", "-")
		k.MustWith(pod("p"), "apply", "-f", "-")
		stored := h.Get(pods + "/p")
		want(t, "sidecar", stored.Text("spec", "initContainers", "0", "image"), "proxy:1")
		// A later mutation saw the result of an earlier one, including defaults.
		want(t, "default", stored.Text("spec", "initContainers", "0", "terminationMessagePath"), "/dev/termination-log")
		want(t, "label", stored.Text("metadata", "labels", "images"), "main.1-proxy.1")
		fields := asJSON(stored.At("metadata", "managedFields"))
		if strings.Contains(fields, "sidecar") || strings.Contains(fields, "proxy") {
			t.Errorf("S18.8 the policy owns fields: %s", fields)
		}
		// Applying the same object again changes nothing: the policy has the same result.
		want(t, "applied again", k.MustWith(pod("p"), "apply", "-f", "-"), "pod/p unchanged\n")
	})

	t.Run("S18.9 a dry run is changed, and stores nothing", func(t *testing.T) {
		h := s.HTTP(t, nil)
		r := h.Must(http.StatusCreated, "POST", pods+"?dryRun=All", pod("dry"))
		want(t, "sidecar", r.Text("spec", "initContainers", "0", "image"), "proxy:1")
		h.Refused(http.StatusNotFound, "NotFound", "GET", pods+"/dry", "")
	})

	t.Run("D53 explain shows the patch", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pod.json")
		if err := os.WriteFile(file, []byte(pod("explained")), 0o600); err != nil {
			t.Fatal(err)
		}
		r := harness.Run(t, "explain", "--kubeconfig", s.Kubeconfig, "--namespace", ns, "-f", file)
		want(t, "exit code", r.Code, 0)
		in(t, "explanation", r.Out, "sidecar", "mutation 1, ApplyConfiguration, binding sidecar", `"path":"/spec/initContainers"`, "mutation 2, JSONPatch")
	})

	t.Run("S18.24 an error rejects the request, with code 403 and reason Invalid", func(t *testing.T) {
		defer k.For(t)()
		h := s.HTTP(t, nil)
		k.MustWith(mutatingPolicy("broken", ns, "", "secrets", "Never", `  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/data"}]'}
`), "apply", "-f", "-")
		status := h.Refused(http.StatusForbidden, "Invalid", "POST", "/api/v1/namespaces/"+ns+"/secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`)
		want(t, "message", status.Message, "policy 'broken' with binding 'broken' denied request: JSON Patch: error in remove for path: '/data': Unable to remove nonexistent key: data: missing value")
	})

	t.Run("S18.22 D51 F7 a custom kind has a schema as soon as it is served", func(t *testing.T) {
		defer k.For(t)()
		h := s.HTTP(t, nil)
		k.MustWith(mutatingPolicy("size", ns, "policies.example.com", "widgets", "Never", `  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{spec: Object.spec{size: object.spec.size + 1, parts: [Object.spec.parts{name: "added"}]}}'}
`), "apply", "-f", "-")
		k.MustWith(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.policies.example.com}
spec:
  group: policies.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
              color: {type: string, default: red}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}}}
`, "create", "-f", "-")
		widgets := "/apis/policies.example.com/v1/namespaces/" + ns + "/widgets"
		const widget = `{"apiVersion":"policies.example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"parts":[{"name":"own"}]}}`
		var r *harness.Response
		harness.Eventually(t, "the kind is served", func() error {
			// 404 until the kind is served; any other code is the final response.
			if r = h.Do("POST", widgets, widget); r.Code == http.StatusNotFound {
				return fmt.Errorf("%d %s", r.Code, r.Text("message"))
			}
			return nil
		})
		want(t, "code", r.Code, http.StatusCreated)
		want(t, "spec", asJSON(r.At("spec")), `{"color":"red","parts":[{"name":"own"},{"name":"added"}],"size":2}`)
	})

	t.Run("S18.29 S19.5 scenario 22 a webhook's change has the policy evaluated again", func(t *testing.T) {
		defer k.For(t)()
		h := s.HTTP(t, nil)
		hooks := harness.NewWebhookServer(t, nil)
		hook := hooks.Hook("/color", harness.Patch(`[{"op":"add","path":"/data/color","value":"red"}]`))
		register(t, s, "v1", mutating, webhook("color", ns, hook, "reinvocationPolicy: Never"))
		k.MustWith(mutatingPolicy("seen", ns, "", "configmaps", "IfNeeded", `  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"seen": object.data.?color.orValue("none")}}}'
`), "apply", "-f", "-")
		r := h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("c"))
		want(t, "color", r.Text("data", "color"), "red")
		want(t, "what the policy saw", r.Text("metadata", "labels", "seen"), "red")
		want(t, "calls", len(hook.Reviews()), 1)
		if got := hook.Last(t).Text("object", "metadata", "labels", "seen"); got != "none" {
			t.Errorf("S19.1 the webhook saw the label %q", got)
		}
	})

	t.Run("S18.10 scale and the options of a command are changed by JSON patches alone", func(t *testing.T) {
		defer k.For(t)()
		h := s.HTTP(t, nil)
		h.Must(http.StatusCreated, "POST", "/apis/apps/v1/namespaces/"+ns+"/deployments", `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"x"}]}}}}`)
		h.Must(http.StatusCreated, "POST", pods, pod("target"))
		scale := "/apis/apps/v1/namespaces/" + ns + "/deployments/d/scale"
		replicas := func(code int) *harness.Response {
			return h.Must(code, "PATCH", scale, `{"spec":{"replicas":7}}`, "Content-Type", "application/merge-patch+json")
		}
		remove := func() {
			k.Must("delete", "mutatingadmissionpolicies/on-scale", "mutatingadmissionpolicybindings/on-scale", "mutatingadmissionpolicies/on-exec", "mutatingadmissionpolicybindings/on-exec")
		}
		onExec := func(mutations string) string {
			return strings.Replace(mutatingPolicy("on-exec", ns, "", "pods/exec", "Never", mutations), "[CREATE, UPDATE]", "[CONNECT]", 1)
		}
		k.MustWith(mutatingPolicy("on-scale", ns, "apps", "deployments/scale", "Never", `  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{spec: Object.spec{replicas: 3}}'}
`), "apply", "-f", "-")
		k.MustWith(onExec(`  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{stdin: true}'}
`), "apply", "-f", "-")
		in(t, "scale", replicas(http.StatusForbidden).Text("message"), "failed to convert patch object to typed object: no corresponding type for autoscaling/v1, Kind=Scale")
		exec := pods + "/target/exec?command=sh&container=main&stdout=true"
		in(t, "exec", h.Must(http.StatusForbidden, "POST", exec, "").Text("message"), "failed to convert patch object to typed object: no corresponding type for /v1, Kind=PodExecOptions")
		remove()
		k.MustWith(mutatingPolicy("on-scale", ns, "apps", "deployments/scale", "Never", `  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "replace", path: "/spec/replicas", value: 3}]'}
`), "apply", "-f", "-")
		k.MustWith(onExec(`  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "replace", path: "/command", value: ["true"]}]'}
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "test", path: "/command", value: object.command}, JSONPatch{op: "remove", path: "/seen/" + object.command[0]}]'}
`), "apply", "-f", "-")
		want(t, "replicas", replicas(http.StatusOK).At("spec", "replicas"), any(float64(3)))
		// The message of the second mutation contains the result of the first.
		in(t, "exec", h.Must(http.StatusForbidden, "POST", exec, "").Text("message"), "/seen/true")
		remove()
	})

	t.Run("S14.7 a generated name is known in the validating pass", func(t *testing.T) {
		defer k.For(t)()
		h := s.HTTP(t, nil)
		k.MustWith(mutatingPolicy("early", ns, "", "serviceaccounts", "Never", `  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"named": string(has(request.name))}}}'}
`), "apply", "-f", "-")
		k.MustWith(fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: late}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
    resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [serviceaccounts]}]
  validations: [{expression: "false", messageExpression: "'the name is ' + request.name"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: late}
spec: {policyName: late, validationActions: [Warn]}
`, ns), "apply", "-f", "-")
		r := h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/serviceaccounts?dryRun=All", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"generateName":"s-"}}`)
		want(t, "name in the mutating pass", r.Text("metadata", "labels", "named"), "false")
		in(t, "warnings", fmt.Sprint(r.Header.Values("Warning")), "the name is "+r.Text("metadata", "name"))
	})

	t.Run("S18.32 a patch may give a new object another name, and no other namespace", func(t *testing.T) {
		defer k.For(t)()
		h := s.HTTP(t, nil)
		k.MustWith(mutatingPolicy("rename", ns, "", "services", "Never", `  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        object.metadata.name == "one" ? [JSONPatch{op: "replace", path: "/metadata/name", value: "renamed"}]
        : [JSONPatch{op: "replace", path: "/metadata/namespace", value: "default"}]
`), "apply", "-f", "-")
		services := "/api/v1/namespaces/" + ns + "/services"
		const service = `{"apiVersion":"v1","kind":"Service","metadata":{"name":%q},"spec":{"ports":[{"port":80}]}}`
		want(t, "name", h.Must(http.StatusCreated, "POST", services, fmt.Sprintf(service, "one")).Text("metadata", "name"), "renamed")
		h.Get(services + "/renamed")
		h.Refused(http.StatusNotFound, "NotFound", "GET", services+"/one", "")
		h.Must(http.StatusBadRequest, "POST", services, fmt.Sprintf(service, "two"))
	})
}
