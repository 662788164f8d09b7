package policies

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// boundedDefinition returns the CRD of a kind of params whose schema limits sizes.
func boundedDefinition(plural, kind, scope string) string {
	return toJSON(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %s.hostile.example.com}, spec: {group: hostile.example.com, scope: %s,
		names: {plural: %[1]s, kind: %[3]s}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {
		spec: {type: object, properties: {items: {type: array, maxItems: 900, items: {type: string, maxLength: 100}}, most: {type: integer}}}}}}}]}}`, plural, scope, kind)
}

// judging creates a ValidatingAdmissionPolicy for ConfigMaps with the label for=name, and its binding.
func judging(h *harness.HTTP, name, spec, binding string) {
	h.Must(http.StatusCreated, "POST", validatingPolicies, policyObject(name, `matchConstraints: {objectSelector: {matchLabels: {for: `+name+`}}, resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}, `+spec))
	h.Must(http.StatusCreated, "POST", validatingBindings, policyObject(name, "policyName: "+name+", validationActions: [Deny]"+binding))
}

// TestHostilePolicies tries to harm the server with policies. The limits stop them, and other requests are
// not affected.
func TestHostilePolicies(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t)
	h := s.HTTP(t, nil)
	judged := func(name string) *harness.Response {
		return h.Do("POST", configMaps("default")+"?dryRun=All", configMap("a", "for", name))
	}
	resident := func() float64 { return h.Metrics().Single("process_resident_memory_bytes") }
	before := resident()

	t.Run("S16.14 hostile expressions are stopped by the limits", func(t *testing.T) {
		for i, text := range speed.Some(t, 1, []string{
			// Deep comprehensions. A loop must not have many more iterations: the time that CEL takes to
			// count their cost is quadratic in the number of iterations, in kube-apiserver too, and 100000
			// iterations would take more than half a minute to reach the limit.
			"lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))",
			// Strings that grow to 30 MB. CEL counts the cost of a call after the call, in kube-apiserver
			// too, so larger factors would take gigabytes before the limit.
			"[0].all(z, [" + strings.Repeat("0,", 30) + "0].map(x, object.metadata.name + string(x)).join('x').replace('x', '" + strings.Repeat("y", 500) + "').replace('y', '" + strings.Repeat("z", 1000) + "').replace('z', 'aa') != '')",
			// Nested macros.
			strings.Repeat("lists.range(100).exists(x, ", 8) + "false" + strings.Repeat(")", 8),
			// Regular expressions. The text is long so that few iterations reach the limit.
			"lists.range(5000).all(x, ('" + strings.Repeat("a", 2000) + "' + string(x)).matches('^(([a-z]+)*)*$') || true)",
		}) {
			for _, failure := range []string{"Fail", "Ignore"} {
				name := fmt.Sprintf("hostile-%d-%s", i, strings.ToLower(failure))
				spec := asJSON(map[string]any{
					"metadata": map[string]any{"name": name},
					"spec": map[string]any{
						"failurePolicy": failure, "validations": []any{map[string]any{"expression": text}},
						"matchConstraints": map[string]any{
							"objectSelector": map[string]any{"matchLabels": map[string]any{"for": name}},
							"resourceRules":  []any{rule("CREATE", "/v1/configmaps")},
						},
					},
				})
				if r := h.Do("POST", validatingPolicies, spec); r.Code == http.StatusUnprocessableEntity {
					// The compiler has limits, too.
					continue
				} else if r.Code != http.StatusCreated {
					t.Fatalf("%d: %d %s", i, r.Code, r.Raw)
				}
				h.Must(http.StatusCreated, "POST", validatingBindings, policyObject(name, "policyName: "+name+", validationActions: [Deny]"))
				r := judged(name)
				switch {
				case failure == "Ignore" && r.Code != http.StatusCreated:
					t.Errorf("%d, %s: %d %s", i, failure, r.Code, r.Raw)
				case failure == "Fail" && (r.Code != http.StatusUnprocessableEntity || !strings.Contains(r.Text("message"), "cost limit exceeded")):
					t.Errorf("%d, %s: %d %s", i, failure, r.Code, r.Raw)
				}
			}
		}
		// Requests that these policies do not match are evaluated as usual.
		began := time.Now()
		for range 20 {
			h.Must(http.StatusCreated, "POST", configMaps("default")+"?dryRun=All", configMap("other"))
		}
		t.Logf("20 other requests took %s", time.Since(began))
		if after := resident(); after > before+300e6 {
			t.Errorf("the server has %.0f MB, and had %.0f MB", after/1e6, before/1e6)
		}
	})
	t.Run("S16.22 the registration state shows the cost", func(t *testing.T) {
		h.Must(http.StatusCreated, "POST", definitionsPath, boundedDefinition("gadgets", "Gadget", "Namespaced"))
		const expensive = "object.spec.items.all(a, object.spec.items.all(b, a != b || a.contains(b)))"
		const cheap = "object.spec.most <= 5"
		spec := func(text string) string {
			return `matchConstraints: {resourceRules: [{apiGroups: [hostile.example.com], apiVersions: [v1], operations: ["*"], resources: [gadgets]}]}, validations: [{expression: "` + text + `"}]`
		}
		harness.Eventually(t, "the kind is served", func() error {
			if r := h.Do("GET", "/apis/hostile.example.com/v1/namespaces/default/gadgets", ""); r.Code != http.StatusOK {
				return fmt.Errorf("%d", r.Code)
			}
			return nil
		})
		// The schema is published to clients with a delay.
		harness.Eventually(t, "the writer is warned", func() error {
			h.Do("DELETE", validatingPolicies+"/costly", "")
			r := h.Must(http.StatusCreated, "POST", validatingPolicies, policyObject("costly", spec(expensive)))
			if warnings := fmt.Sprint(r.Header.Values("Warning")); !strings.Contains(warnings, "spec.validations[0].expression: it costs") || !strings.Contains(warnings, "in the worst case that the schema allows, and fails when it costs more than 1000000") {
				return fmt.Errorf("warnings %s", warnings)
			}
			return nil
		})
		if r := h.Must(http.StatusCreated, "POST", validatingPolicies, policyObject("cheap", spec(cheap))); len(r.Header.Values("Warning")) > 0 {
			t.Errorf("warnings %q", r.Header.Values("Warning"))
		}
		for _, name := range []string{"costly", "cheap"} {
			h.Must(http.StatusCreated, "POST", validatingBindings, policyObject(name, "policyName: "+name+", validationActions: [Audit]"))
		}
		h.Must(http.StatusCreated, "POST", "/apis/hostile.example.com/v1/namespaces/default/gadgets", `{"apiVersion":"hostile.example.com/v1","kind":"Gadget","metadata":{"name":"a"},"spec":{"items":["a","b"],"most":1}}`)
		number := func(name, field string) float64 {
			costs, _ := h.Get(statesPath + "/validatingadmissionpolicies." + name).At("costs").([]any)
			if len(costs) != 1 || harness.At(costs[0], "field") != "spec.validations[0].expression" || harness.At(costs[0], "limit") != 1e6 {
				t.Fatalf("%s: costs %v", name, costs)
			}
			n, _ := harness.At(costs[0], field).(float64)
			return n
		}
		if worst, measured := number("costly", "worstCase"), number("costly", "measured"); worst < 500_000 || measured < 5 || measured > 1000 {
			t.Errorf("costly: %v, measured %v", worst, measured)
		}
		if worst, measured := number("cheap", "worstCase"), number("cheap", "measured"); worst > 20 || worst < measured || measured == 0 {
			t.Errorf("cheap: %v, measured %v", worst, measured)
		}
		if problems := fmt.Sprint(h.Get(statesPath + "/validatingadmissionpolicies.costly").At("problems")); !strings.Contains(problems, "HighCost") {
			t.Errorf("problems %s", problems)
		}
	})
	t.Run("S20.4 S15.4 a kind of params that goes and comes as another", func(t *testing.T) {
		h.Must(http.StatusCreated, "POST", definitionsPath, boundedDefinition("limits", "Limit", "Namespaced"))
		const limits = "/apis/hostile.example.com/v1/namespaces/default/limits"
		const limit = `{"apiVersion":"hostile.example.com/v1","kind":"Limit","metadata":{"name":"p"},"spec":{"most":1}}`
		eventually := func(what string, code int, text string) {
			t.Helper()
			harness.Eventually(t, what, func() error {
				if r := judged("params"); r.Code != code || !strings.Contains(string(r.Raw), text) {
					return fmt.Errorf("%d %s", r.Code, r.Raw)
				}
				return nil
			})
		}
		create := func(path string) {
			t.Helper()
			harness.Eventually(t, "the kind is served", func() error {
				if r := h.Do("POST", path, limit); r.Code != http.StatusCreated {
					return fmt.Errorf("%d %s", r.Code, r.Raw)
				}
				return nil
			})
		}
		create(limits)
		judging(h, "params", `paramKind: {apiVersion: hostile.example.com/v1, kind: Limit}, validations: [{expression: "params.spec.most == 1"}]`,
			", paramRef: {name: p, namespace: default, parameterNotFoundAction: Deny}")
		eventually("the param is there", http.StatusCreated, "")
		h.Must(http.StatusOK, "DELETE", limits+"/p", "")
		eventually("S15.7 the param is gone", http.StatusUnprocessableEntity, "no params found for policy binding with `Deny` parameterNotFoundAction")
		h.Must(http.StatusOK, "DELETE", definitionsPath+"/limits.hostile.example.com", "")
		eventually("the kind is gone", http.StatusUnprocessableEntity, "failed to find resource referenced by paramKind")
		// The same kind, with another plural and cluster scope.
		harness.Eventually(t, "the definition can be made again", func() error {
			if r := h.Do("POST", definitionsPath, boundedDefinition("ceilings", "Limit", "Cluster")); r.Code != http.StatusCreated {
				return fmt.Errorf("%d %s", r.Code, r.Raw)
			}
			return nil
		})
		create("/apis/hostile.example.com/v1/ceilings")
		eventually("a namespace is not for that kind", http.StatusUnprocessableEntity, "paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
		h.Must(http.StatusOK, "PATCH", validatingBindings+"/params", `{"spec":{"paramRef":{"namespace":null}}}`, policyMerge...)
		eventually("the param of the new kind counts", http.StatusCreated, "")
	})
	t.Run("a huge param", func(t *testing.T) {
		h.Must(http.StatusCreated, "POST", configMaps("default"), fmt.Sprintf(`{"metadata":{"name":"huge"},"data":{"a":%q}}`, strings.Repeat("x", 1_000_000)))
		judging(h, "huge", `paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: "params.data.a.contains('y')"}, {expression: "lists.range(100).all(i, params.data.a.matches('y*z'))"}]`,
			", paramRef: {name: huge, namespace: default, parameterNotFoundAction: Deny}")
		harness.Eventually(t, "it is judged within the limits", func() error {
			if r := judged("huge"); r.Code != http.StatusUnprocessableEntity {
				return fmt.Errorf("%d %s", r.Code, r.Raw)
			}
			return nil
		})
	})
	t.Run("S14.16 a policy that denies everything can be repaired", func(t *testing.T) {
		h.Must(http.StatusCreated, "POST", validatingPolicies, policyObject("everything", `matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}, validations: [{expression: "false", message: never}]`))
		h.Must(http.StatusCreated, "POST", validatingBindings, policyObject("everything", "policyName: everything, validationActions: [Deny]"))
		if r := judged("other"); r.Code != http.StatusUnprocessableEntity || !strings.HasSuffix(r.Text("message"), "never") {
			t.Errorf("%d %s", r.Code, r.Raw)
		}
		h.Must(http.StatusOK, "PATCH", validatingBindings+"/everything", `{"metadata":{"labels":{"a":"b"}}}`, policyMerge...)
		h.Must(http.StatusOK, "PATCH", validatingPolicies+"/everything", `{"metadata":{"labels":{"a":"b"}}}`, policyMerge...)
		h.Must(http.StatusOK, "DELETE", validatingBindings+"/everything", "")
		h.Must(http.StatusOK, "DELETE", validatingPolicies+"/everything", "")
		h.Must(http.StatusCreated, "POST", configMaps("default"), configMap("repaired"))
	})
}
