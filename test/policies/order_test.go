package policies

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestOrderByAnnotations covers webhook configurations and mutating policies with annotations that set their
// order.
func TestOrderByAnnotations(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--admission-consistency", "strict")
	h := s.HTTP(t, nil)
	hooks := harness.NewWebhookServer(t, nil)
	var order []string
	of := func(name string) map[string]any {
		return webhook(name, "default", hooks.Hook("/"+name, harness.Answer(func(w http.ResponseWriter, r *harness.Review) {
			order = append(order, name)
			harness.Allow(w, r)
		})))
	}
	configuration := func(name string, annotations map[string]any, names ...string) string {
		var list []map[string]any
		for _, n := range names {
			list = append(list, of(n))
		}
		return asJSON(map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": mutating,
			"metadata": map[string]any{"name": name, "annotations": annotations}, "webhooks": list,
		})
	}
	path := registrationsPath("v1", mutating)
	h.Must(http.StatusCreated, "POST", path, configuration("a", map[string]any{"gatehouse.dev/after": "c, unknown"}, "a1", "a2"))
	h.Must(http.StatusCreated, "POST", path, configuration("b", nil, "b1"))
	h.Must(http.StatusCreated, "POST", path, configuration("c", nil, "c1", "c2"))
	called := func() string {
		order = nil
		h.Must(http.StatusCreated, "POST", configMaps("default")+"?dryRun=All", configMap("c"))
		return strings.Join(order, " ")
	}
	want(t, "S5.29 after", called(), "c1 c2 a1 a2 b1")
	h.Must(http.StatusOK, "PATCH", path+"/b", `{"metadata":{"annotations":{"gatehouse.dev/before":"a,c"}}}`, policyMerge...)
	want(t, "S5.29 before, as soon as the write is answered", called(), "b1 c1 c2 a1 a2")

	file := filepath.Join(t.TempDir(), "object.json")
	if err := os.WriteFile(file, []byte(configMap("explained")), 0o600); err != nil {
		t.Fatal(err)
	}
	r := harness.Run(t, "explain", "--kubeconfig", s.Kubeconfig, "-f", file)
	in(t, "S5.31 explanation", r.Out, `order: "a" is after "c" (its annotation gatehouse.dev/after)`, `order: "b" is before "a" (its annotation gatehouse.dev/before)`, "a kube-apiserver ignores this")
	if b, c := strings.Index(r.Out, "b/b1"), strings.Index(r.Out, "c/c1"); b < 0 || c < b {
		t.Errorf("S5.31 the steps are in another order than the calls:\n%s", r.Out)
	}

	annotate := func(path, annotation, value string) string {
		t.Helper()
		return h.Refused(http.StatusUnprocessableEntity, "Invalid", "PATCH", path, `{"metadata":{"annotations":{"`+annotation+`":"`+value+`"}}}`, policyMerge...).Message
	}
	in(t, "S5.30 a cycle", annotate(path+"/c", "gatehouse.dev/after", "a"), "metadata.annotations", "cannot order the configurations", `"a" is after "c"`, `"c" is after "a"`)
	in(t, "S5.30 itself", annotate(path+"/c", "gatehouse.dev/after", "c"), "metadata.annotations[gatehouse.dev/after]", "must not name the object itself")
	in(t, "S5.30 no name", annotate(path+"/c", "gatehouse.dev/before", "a b"), "metadata.annotations[gatehouse.dev/before]", "must be names of other objects of this kind")
	want(t, "nothing has changed", called(), "b1 c1 c2 a1 a2")
	for _, name := range []string{"a", "b", "c"} {
		h.Must(http.StatusOK, "DELETE", path+"/"+name, "")
	}

	// Each policy appends its name to the current value.
	for _, p := range []struct{ name, after string }{{"a", "b"}, {"b", "c"}, {"c", ""}} {
		annotations := ""
		if p.after != "" {
			annotations = `, annotations: {gatehouse.dev/after: ` + p.after + `}`
		}
		h.Must(http.StatusCreated, "POST", mutatingPolicies, toJSON(`{metadata: {name: %s%s}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}, reinvocationPolicy: Never,
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{data: {"order": object.?data[?"order"].orValue("") + "%[1]s"}}'}}]}}`, p.name, annotations))
		h.Must(http.StatusCreated, "POST", mutatingBindings, policyObject(p.name, "policyName: "+p.name))
	}
	stored := h.Must(http.StatusCreated, "POST", configMaps("default")+"?dryRun=All", configMap("c"))
	want(t, "S18.33 policies", stored.Text("data", "order"), "cba")
	in(t, "S18.33 a cycle", annotate(mutatingPolicies+"/c", "gatehouse.dev/after", "a"), "cannot order the policies")
	in(t, "S18.33 itself", annotate(mutatingPolicies+"/c", "gatehouse.dev/after", "c"), "must not name the object itself")
}
