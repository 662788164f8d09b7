package offline_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/builtins"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// Plans made from a cluster, and from files with the same content, equal the server's own plans, except for built-in
// plugins.
func TestPlansAreTheServersOwn(t *testing.T) {
	s := harness.Start(t)
	h := s.HTTP(t, nil)
	random := rand.New(rand.NewPCG(10, 1))
	var written []map[string]any
	write := func(path string, content map[string]any) {
		h.Must(201, "POST", path, text(t, content))
		written = append(written, content)
	}
	for name, team := range map[string]string{"red": "red", "blue": "blue"} {
		write("/api/v1/namespaces", object("v1", "Namespace", name, "", map[string]any{"team": team}))
	}
	write("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", gadgets())
	harness.Eventually(t, "gadgets are served", func() error {
		code, err := h.Try(harness.Context(t), "GET", "/apis/example.com/v1/gadgets", "")
		if err == nil && code != 200 {
			err = fmt.Errorf("code %d", code)
		}
		return err
	})

	// The stored objects come before the webhooks, which cannot be called.
	kinds := offline.Builtin()
	if err := kinds.Define(&unstructured.Unstructured{Object: gadgets()}); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"red", "blue"} {
		for _, o := range []map[string]any{
			configMap("stored", ns), deployment("apps/v1", "stored", ns), scaler("autoscaling/v2", "stored", ns), gadget("v1", "stored", ns),
		} {
			gvk := (&unstructured.Unstructured{Object: o}).GroupVersionKind()
			write(path(kinds.Of(gvk).Resource, ns), o)
		}
	}
	for _, p := range policies(t) {
		if p["kind"] == "ConfigMap" {
			u := &unstructured.Unstructured{Object: p}
			write(path(kinds.Of(u.GroupVersionKind()).Resource, u.GetNamespace()), p)
		}
	}
	for i := range 16 {
		kind, list := "ValidatingWebhookConfiguration", "webhooks"
		version := "v1"
		switch i % 4 {
		case 1:
			kind = "MutatingWebhookConfiguration"
		case 2:
			kind, version, list = "InitializerConfiguration", "v1alpha1", "initializers"
		}
		c := object("admissionregistration.k8s.io/"+version, kind, fmt.Sprintf("r%d", i), "", nil)
		var entries []any
		for j := range 1 + random.IntN(3) {
			entries = append(entries, entry(random, kind, fmt.Sprintf("e%d-%d.example.com", i, j)))
		}
		c[list] = entries
		resource := strings.ToLower(kind) + "s"
		write("/apis/admissionregistration.k8s.io/"+version+"/"+resource, c)
	}

	for _, p := range policies(t) {
		resource := strings.ToLower(p["kind"].(string)) + "s"
		if strings.HasSuffix(resource, "policys") {
			resource = strings.TrimSuffix(resource, "ys") + "ies"
		}
		if p["kind"] != "ConfigMap" {
			write("/apis/admissionregistration.k8s.io/v1/"+resource, p)
		}
	}

	discovered, err := offline.Discover(s.Admin)
	if err != nil {
		t.Fatal(err)
	}
	connected, err := offline.Connect(t.Context(), s.Admin, discovered)
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/all.json"
	writeFile(t, file, text(t, map[string]any{"apiVersion": "v1", "kind": "List", "items": written}))
	read, err := builtins.Read([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	caller := offline.Caller(t.Context(), s.Admin)
	if caller == nil {
		t.Fatal("the server does not say who asks")
	}

	asked, steps := 0, 0
	verdicts := map[string]int{}
	for _, operation := range []string{"CREATE", "UPDATE", "DELETE"} {
		for _, ns := range []string{"red", "blue"} {
			for _, dryRun := range []bool{false, true} {
				for _, o := range []map[string]any{
					configMap("stored", ns), deployment("apps/v1", "stored", ns), scaler("autoscaling/v1", "stored", ns),
					scaler("autoscaling/v2", "stored", ns), gadget("v1", "stored", ns), gadget("v2", "stored", ns),
				} {
					u := &unstructured.Unstructured{Object: o}
					if operation == "CREATE" {
						u.SetName("new")
					}
					q := offline.Request{Operation: operation, Namespace: ns, Name: u.GetName(), Object: u, DryRun: dryRun, All: true, User: caller}
					resource := kinds.Of(u.GroupVersionKind()).Resource
					want := ask(t, h, &q, resource)
					for name, w := range map[string]*offline.World{"connected": connected, "files": read} {
						q := q
						q.Kind = w.Kinds.Of(u.GroupVersionKind())
						if name == "files" && operation != "CREATE" {
							// The stored object contains the server's defaults and conversions.
							if q.Old, err = connected.Stored(t.Context(), connected.Kinds.Of(u.GroupVersionKind()), ns, q.Name); err != nil {
								t.Fatal(err)
							}
						}
						got, err := w.Plan(t.Context(), &q)
						if err != nil {
							t.Fatalf("%s: %s %s: %v", name, operation, resource, err)
						}
						for s := range got.Each() {
							s.Location = nil
						}
						if diff := cmp.Diff(want.Steps, got.Steps); diff != "" {
							t.Errorf("%s: %s %s in %s (-server +offline):\n%s", name, operation, resource, ns, diff)
						}
						if want.Rejection != got.Rejection || want.WorstCaseSeconds != got.WorstCaseSeconds {
							t.Errorf("%s: %s %s: rejection %q, %vs; want %q, %vs", name, operation, resource,
								got.Rejection, got.WorstCaseSeconds, want.Rejection, want.WorstCaseSeconds)
						}
					}
					asked++
					for step := range want.Each() {
						if step.Effect != plan.Skip {
							steps++
						}
						for _, e := range step.Evaluations {
							verdicts[e.Verdict]++
						}
					}
				}
			}
		}
	}
	t.Logf("%d requests, %d steps that act, evaluations %v", asked, steps, verdicts)
	for _, verdict := range []string{"admitted", "violated", "excluded", "changed"} {
		if verdicts[verdict] == 0 {
			t.Errorf("no policy had the verdict %s", verdict)
		}
	}
	if steps < 2*asked {
		t.Errorf("%d steps of %d requests do something: too few to compare", steps, asked)
	}
}

// policies read params by name and by selector, the namespace and both objects, and change the object for later
// policies.
func policies(t *testing.T) []map[string]any {
	t.Helper()
	found, err := offline.Objects("policies", []byte(`
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: red, labels: {params: "yes"}}
data: {most: "0"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: blue, labels: {params: "yes"}}
data: {most: "9"}
`))
	if err != nil {
		t.Fatal(err)
	}
	policies, err := offline.Objects("policies", []byte(offlinePolicies))
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	for _, u := range append(found, policies...) {
		list = append(list, u.Object)
	}
	return list
}

const offlinePolicies = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: label}
spec:
  reinvocationPolicy: Never
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"most": params.data.most}}}'}
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "add", path: "/metadata/labels/team", value: namespaceObject.metadata.labels["team"]}]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: label}
spec: {policyName: label, paramRef: {name: limits, parameterNotFoundAction: Deny}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: labelled}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]}
  variables: [{name: labels, expression: "object.metadata.?labels.orValue({})"}]
  validations:
  - {expression: 'variables.labels[?"most"].orValue("none") != "none"', message: "most is missing"}
  - {expression: 'variables.labels[?"team"].orValue("none") == namespaceObject.metadata.labels["team"]'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: labelled}
spec: {policyName: labelled, validationActions: [Warn]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: limited}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: [deployments, gadgets]}]}
  matchConditions: [{name: not-red-gadgets, expression: 'request.resource.resource != "gadgets" || request.namespace != "red"'}]
  validations:
  - expression: 'int(params.data.most) > 0 || request.operation == "DELETE"'
    messageExpression: '"at most " + params.data.most + " in " + namespaceObject.metadata.name'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: by-selector}
spec: {policyName: limited, validationActions: [Deny], paramRef: {selector: {matchLabels: {params: "yes"}}, parameterNotFoundAction: Deny}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: of-blue}
spec: {policyName: limited, validationActions: [Audit, Warn], paramRef: {name: limits, namespace: blue, parameterNotFoundAction: Allow}, matchResources: {namespaceSelector: {matchLabels: {team: red}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: of-gadgets}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: ["*"], resources: [gadgets]}]}
  validations: [{expression: 'request.operation == "DELETE" ? object == null : object.metadata.name == request.name'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: of-gadgets}
spec: {policyName: of-gadgets, validationActions: [Deny]}
`

// ask returns the server's own plan, without built-in plugins.
func ask(t *testing.T, h *harness.HTTP, q *offline.Request, resource schema.GroupVersionResource) *plan.Plan {
	t.Helper()
	spec := map[string]any{
		"operation": q.Operation, "namespace": q.Namespace, "dryRun": q.DryRun, "all": true,
		"resource": map[string]any{"group": resource.Group, "version": resource.Version, "resource": resource.Resource},
	}
	if q.Operation != "CREATE" {
		spec["name"] = q.Name
	}
	if q.Operation != "DELETE" {
		spec["object"] = q.Object.Object
	}
	r := h.Must(201, "POST", "/apis/gatehouse.dev/v1alpha1/admissionexplanations", text(t, map[string]any{
		"apiVersion": "gatehouse.dev/v1alpha1", "kind": "AdmissionExplanation", "spec": spec,
	}))
	data, err := json.Marshal(r.At("status", "plan"))
	if err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{}
	if err := json.Unmarshal(data, p); err != nil {
		t.Fatal(err)
	}
	steps := []plan.Step{}
	for step := range p.Each() {
		if step.Entry != nil {
			steps = append(steps, *step)
		}
	}
	if p.Steps = steps; r.At("status", "plan") == nil {
		t.Fatalf("no plan of %s %s: %v", q.Operation, resource, r.At("status"))
	}
	return p
}

// entry returns a webhook or an initializer.
func entry(r *rand.Rand, kind, name string) map[string]any {
	pick := func(choices ...any) any { return choices[r.IntN(len(choices))] }
	rule := func() map[string]any {
		return map[string]any{
			"apiGroups": []any{pick("*", "apps", "autoscaling", "", "example.com")}, "apiVersions": []any{pick("*", "v1", "v1beta1", "v2")},
			"resources": []any{pick("*", "*", "deployments", "horizontalpodautoscalers", "configmaps", "gadgets")},
		}
	}
	if kind == "InitializerConfiguration" {
		return map[string]any{"name": name, "rules": []any{rule(), rule()}}
	}
	w := map[string]any{
		"name": name, "admissionReviewVersions": []any{"v1"}, "sideEffects": pick("None", "None", "NoneOnDryRun"),
		"clientConfig": map[string]any{"url": "https://127.0.0.1:1/"}, "matchPolicy": pick("Exact", "Equivalent", "Equivalent"),
		"failurePolicy": pick("Fail", "Ignore"), "timeoutSeconds": 1 + r.IntN(30),
	}
	var rules []any
	for range 1 + r.IntN(3) {
		one := rule()
		one["operations"] = []any{pick("*", "CREATE", "UPDATE", "DELETE")}
		rules = append(rules, one)
	}
	w["rules"] = rules
	if kind == "MutatingWebhookConfiguration" {
		w["reinvocationPolicy"] = pick("Never", "IfNeeded")
	}
	if r.IntN(3) == 0 {
		w["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"team": pick("red", "blue")}}
	}
	if r.IntN(3) == 0 {
		w["objectSelector"] = map[string]any{"matchLabels": map[string]any{"tier": pick("front", "back")}}
	}
	if r.IntN(3) == 0 {
		w["matchConditions"] = []any{map[string]any{"name": "c", "expression": pick(
			"request.userInfo.username == 'gatehouse-admin'", "request.operation != 'DELETE' && object.apiVersion == 'apps/v1'",
			"request.kind.kind == 'ConfigMap'", "object != null && has(object.spec) && has(object.spec.replicas) && object.spec.replicas == 1",
			"request.options.dryRun.size() == 0",
		)}}
	}
	return w
}

func object(apiVersion, kind, name, namespace string, labels map[string]any) map[string]any {
	meta := map[string]any{"name": name}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	if labels != nil {
		meta["labels"] = labels
	}
	return map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": meta}
}

func configMap(name, namespace string) map[string]any {
	return object("v1", "ConfigMap", name, namespace, map[string]any{"tier": "front"})
}

func scaler(apiVersion, name, namespace string) map[string]any {
	o := object(apiVersion, "HorizontalPodAutoscaler", name, namespace, map[string]any{"tier": "back"})
	o["spec"] = map[string]any{"maxReplicas": int64(3), "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
	return o
}

func deployment(apiVersion, name, namespace string) map[string]any {
	o := object(apiVersion, "Deployment", name, namespace, map[string]any{"tier": "back"})
	app := map[string]any{"app": "web"}
	o["spec"] = map[string]any{
		"selector": map[string]any{"matchLabels": app},
		"template": map[string]any{
			"metadata": map[string]any{"labels": app},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web"}}},
		},
	}
	return o
}

func gadget(version, name, namespace string) map[string]any {
	return object("example.com/"+version, "Gadget", name, namespace, map[string]any{"tier": "front"})
}

func gadgets() map[string]any {
	version := func(name string, storage bool) map[string]any {
		return map[string]any{
			"name": name, "served": true, "storage": storage,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
		}
	}
	o := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "gadgets.example.com", "", nil)
	o["spec"] = map[string]any{
		"group": "example.com", "scope": "Namespaced", "versions": []any{version("v1", true), version("v2", false)},
		"names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
	}
	return o
}

func path(r schema.GroupVersionResource, namespace string) string {
	if r.Group == "" {
		return "/api/" + r.Version + "/namespaces/" + namespace + "/" + r.Resource
	}
	return "/apis/" + r.Group + "/" + r.Version + "/namespaces/" + namespace + "/" + r.Resource
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
