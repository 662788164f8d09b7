package webhooks

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func testPatches(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	hook := j.hooks.Hook("/"+ns, harness.Allow)
	name := "patch." + ns + ".example.com"
	cannot := fmt.Sprintf("Internal error occurred: admission webhook %q returned a patch that could not be applied: ", name)
	failed := fmt.Sprintf("Internal error occurred: failed calling webhook %q: ", name)
	typeless := func(w http.ResponseWriter, r *harness.Review) {
		harness.Respond(map[string]any{"allowed": true, "patch": base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/data/added","value":"x"}]`))})(w, r)
	}
	for _, c := range []struct {
		name   string
		answer harness.Answer
		lines  []string
		// refusal is the beginning of the message if the request is rejected; always means that it is
		// rejected with failurePolicy Ignore, too.
		refusal string
		always  bool
		// mutated and patched are values of the audit annotations.
		mutated, patched bool
		// data is the stored data.
		data map[string]any
	}{
		{name: "S5.4 add", answer: harness.Patch(`[{"op":"add","path":"/data/added","value":"x"}]`), mutated: true, patched: true, data: map[string]any{"key": "value", "added": "x"}},
		{name: "S5.4 remove and test", answer: harness.Patch(`[{"op":"test","path":"/data/key","value":"value"},{"op":"remove","path":"/data/key"},{"op":"add","path":"/data/a~1b","value":"x"}]`),
			refusal: "ConfigMap ", always: true, mutated: true, patched: true},
		{name: "S5.4 copy and move", answer: harness.Patch(`[{"op":"copy","from":"/data/key","path":"/data/copy"},{"op":"move","from":"/data/key","path":"/data/moved"}]`),
			mutated: true, patched: true, data: map[string]any{"copy": "value", "moved": "value"}},
		{name: "S5.5 a patch that changes nothing", answer: harness.Patch(`[{"op":"replace","path":"/data/key","value":"value"}]`), patched: true, data: map[string]any{"key": "value"}},
		{name: "S4.9 an empty patch", answer: harness.Patch(`[]`), data: map[string]any{"key": "value"}},
		{name: "S5.4 an unknown field is dropped", answer: harness.Patch(`[{"op":"add","path":"/nonsense","value":{"a":1}}]`), patched: true, data: map[string]any{"key": "value"}},
		{name: "S5.6 S7.15 a test that fails", answer: harness.Patch(`[{"op":"test","path":"/data/key","value":"other"}]`), refusal: cannot, data: map[string]any{"key": "value"}},
		{name: "S5.7 add without a parent", answer: harness.Patch(`[{"op":"add","path":"/nothing/here","value":1}]`), refusal: cannot, data: map[string]any{"key": "value"}},
		{name: "S5.7 remove of what is not there", answer: harness.Patch(`[{"op":"remove","path":"/data/nothing"}]`), refusal: cannot, data: map[string]any{"key": "value"}},
		{name: "S5.6 a value of a wrong type", answer: harness.Patch(`[{"op":"replace","path":"/data","value":"text"}]`), refusal: cannot, data: map[string]any{"key": "value"}},
		{name: "S5.6 no patch", answer: harness.Patch(`{"op":"add"}`), refusal: failed + "received undecodable patch in webhook response: ", data: map[string]any{"key": "value"}},
		{name: "S5.8 another kind", answer: harness.Patch(`[{"op":"replace","path":"/kind","value":"Secret"}]`), refusal: fmt.Sprintf("Internal error occurred: admission webhook %q returned a patch that is not allowed: ", name), always: true},
		{name: "S4.9 no type, v1", answer: typeless, refusal: failed + "received invalid webhook response: webhook returned response.patch but not response.patchType", data: map[string]any{"key": "value"}},
		{name: "S4.9 no type, v1beta1", answer: typeless, lines: []string{"admissionReviewVersions: [v1beta1]"}, mutated: true, patched: true, data: map[string]any{"key": "value", "added": "x"}},
		{name: "S4.9 another type", answer: harness.Respond(map[string]any{"allowed": true, "patchType": "Merge", "patch": "W3sib3AiOiJhZGQifV0="}), refusal: failed, data: map[string]any{"key": "value"}},
		{name: "S4.9 a patch with a denial", answer: harness.Respond(map[string]any{"allowed": false, "patchType": "JSONPatch", "patch": "W10="}), refusal: fmt.Sprintf("admission webhook %q denied the request", name), always: true},
	} {
		for _, policy := range []string{"Fail", "Ignore"} {
			t.Run(c.name+", "+policy, func(t *testing.T) {
				h := j.HTTP(t, nil)
				hook.Answer(c.answer)
				configuration := register(t, j.Server, "v1", mutating, webhook("patch", ns, hook, append(c.lines, "failurePolicy: "+policy, rules(rule("CREATE", "/v1/configmaps")))...))
				r := h.Do("POST", configMaps(ns), configMap("c"))
				refused := c.refusal != "" && (policy == "Fail" || c.always)
				if refused {
					if message := r.Text("message"); r.Code < 400 || !strings.HasPrefix(message, c.refusal) {
						t.Errorf("%d %q, want %q...", r.Code, message, c.refusal)
					}
					h.Refused(http.StatusNotFound, "NotFound", "GET", configMaps(ns)+"/c", "")
				} else {
					want(t, "code", r.Code, http.StatusCreated)
					want(t, "stored", h.Get(configMaps(ns)+"/c").At("data"), any(c.data))
					h.Must(http.StatusOK, "DELETE", configMaps(ns)+"/c", "")
				}
				got := j.webhookAnnotations(t, r)
				wanted := map[string]string{}
				const at = ".webhook.admission.k8s.io/round_0_index_N"
				wanted["mutation"+at] = fmt.Sprintf(`{"configuration":%q,"webhook":%q,"mutated":%t}`, configuration, name, c.mutated)
				if c.patched {
					var review struct {
						Patch []any `json:"patch"`
					}
					if err := json.Unmarshal([]byte(got["patch"+at]), &review); err != nil || len(review.Patch) == 0 {
						t.Errorf("S5.26 patch annotation %q: %v", got["patch"+at], err)
					}
					wanted["patch"+at] = got["patch"+at]
				}
				if !refused && c.refusal != "" {
					wanted["failed-open.mutation"+at] = name
				}
				want(t, "S5.25 S5.26 S5.27 annotations", got, wanted)
			})
		}
	}

	t.Run("S5.4 defaults after a patch", func(t *testing.T) {
		hook.Answer(harness.Patch(`[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar","image":"example/sidecar"}}]`))
		register(t, j.Server, "v1", mutating, webhook("patch", ns, hook, rules(rule("CREATE", "/v1/pods"))))
		r := j.HTTP(t, nil).Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/pods", pod("p"))
		want(t, "imagePullPolicy", r.Text("spec", "containers", "1", "imagePullPolicy"), "Always")
		want(t, "terminationMessagePath", r.Text("spec", "containers", "1", "terminationMessagePath"), "/dev/termination-log")
	})
	t.Run("S6.6 what a patch makes is validated", func(t *testing.T) {
		hook.Answer(harness.Patch(`[{"op":"add","path":"/spec/containers/-","value":{"name":"main","image":"example/sidecar"}}]`))
		register(t, j.Server, "v1", mutating, webhook("patch", ns, hook, rules(rule("CREATE", "/v1/pods"))))
		h := j.HTTP(t, nil)
		second := j.hooks.Hook("/validating"+ns, harness.Allow)
		register(t, j.Server, "v1", validating, webhook("after", ns, second, rules(rule("CREATE", "/v1/pods"))))
		h.Refused(http.StatusUnprocessableEntity, "Invalid", "POST", "/api/v1/namespaces/"+ns+"/pods", pod("q"))
		want(t, "S6.6 validating calls", len(second.Reviews()), 0)
	})
	for _, policy := range []string{"Fail", "Ignore"} {
		t.Run("S5.9 a patch on DELETE, "+policy, func(t *testing.T) {
			h := j.HTTP(t, nil)
			h.Do("POST", configMaps(ns), configMap("gone"))
			hook.Answer(harness.Patch(`[{"op":"add","path":"/data/added","value":"x"}]`))
			register(t, j.Server, "v1", mutating, webhook("patch", ns, hook, rules(rule("DELETE", "/v1/configmaps")), "failurePolicy: "+policy))
			status := h.Refused(http.StatusInternalServerError, "InternalError", "DELETE", configMaps(ns)+"/gone", "")
			want(t, "message", status.Message, fmt.Sprintf("Internal error occurred: admission webhook %q attempted to modify the object, which is not supported for this operation", name))
			hook.Answer(harness.Patch(`[]`))
			h.Must(http.StatusOK, "DELETE", configMaps(ns)+"/gone", "")
		})
	}
	t.Run("S4.9 a patch of a validating webhook", func(t *testing.T) {
		hook.Answer(harness.Patch(`[{"op":"add","path":"/data/added","value":"x"}]`))
		register(t, j.Server, "v1", validating, webhook("patch", ns, hook))
		status := j.HTTP(t, nil).Refused(http.StatusInternalServerError, "InternalError", "POST", configMaps(ns), configMap("c"))
		if !strings.HasPrefix(status.Message, failed+"received invalid webhook response: validating webhook may not return response.patch") {
			t.Errorf("message is %q", status.Message)
		}
	})
}

// testPatchesOfTwoVersions has three webhooks see an object in versions other than the request's, each with
// the changes of the earlier webhooks.
func testPatchesOfTwoVersions(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	var hooks []*harness.Hook
	var webhooks []map[string]any
	versions := []string{"extensions/v1beta1", "apps/v1", "apps/v1beta2"}
	for i, version := range versions {
		h := j.hooks.Hook(fmt.Sprintf("/%s%d", ns, i), harness.Patch(fmt.Sprintf(`[{"op":"add","path":"/metadata/labels/by-%d","value":"x"},{"op":"replace","path":"/spec/replicas","value":%d}]`, i, 10+i)))
		hooks = append(hooks, h)
		webhooks = append(webhooks, webhook(fmt.Sprintf("v%d", i), ns, h, "matchPolicy: Equivalent", rules(rule("CREATE", version+"/deployments"))))
	}
	register(t, j.Server, "v1", mutating, webhooks...)
	j.HTTP(t, nil).Must(http.StatusCreated, "POST", "/apis/apps/v1beta1/namespaces/"+ns+"/deployments", deployment("apps/v1beta1", "d"))
	seen := []string{"app"}
	for i, h := range hooks {
		review := h.Last(t)
		want(t, "S2.27 version", review.Text("object", "apiVersion"), versions[i])
		want(t, "S5.3 labels so far", sortedKeys(review.Request("object", "metadata", "labels")), seen)
		if i > 0 {
			want(t, "S5.3 replicas", review.Text("object", "spec", "replicas"), fmt.Sprint(9+i))
		}
		seen = append(seen, fmt.Sprintf("by-%d", i))
	}
	stored := j.HTTP(t, nil).Get("/apis/apps/v1/namespaces/" + ns + "/deployments/d")
	want(t, "S5.11 stored labels", sortedKeys(stored.At("metadata", "labels")), seen)
	want(t, "S5.11 stored replicas", stored.Text("spec", "replicas"), "12")
}

// testReinvocation covers the table of S5.23, except the rows with a built-in mutator: no built-in plugin of
// the server changes configmaps. The webhooks declare NoneOnDryRun, so that they are never called ahead of
// their turn and the calls can be counted.
func testReinvocation(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	const x, y = `[{"op":"add","path":"/data/set","value":"x"}]`, `[{"op":"add","path":"/data/set","value":"y"}]`
	const label = `[{"op":"add","path":"/metadata/labels","value":{"wanted":"yes"}}]`
	counter := func(n int) string { return fmt.Sprintf(`[{"op":"add","path":"/data/n%d","value":"x"}]`, n) }
	for i, c := range []struct {
		name string
		// a and b return the patch for a call, counted from 1; "" for no patch.
		a, b         func(call int) string
		aLine, bLine string
		calls        [2]int
		// rounds lists the mutation annotations of the audit event: round, webhook, whether mutated.
		rounds []string
	}{
		{name: "A changes nothing", calls: [2]int{1, 1}, rounds: []string{"0 a false", "0 b false"}},
		{name: "A changes", a: func(int) string { return x }, calls: [2]int{1, 1}, rounds: []string{"0 a true", "0 b false"}},
		{name: "A changes, B changes, A changes nothing", a: func(int) string { return x }, b: func(int) string { return counter(0) },
			calls: [2]int{2, 1}, rounds: []string{"0 a true", "0 b true", "1 a false"}},
		{name: "A and B fight", a: func(int) string { return x }, b: func(int) string { return y },
			calls: [2]int{2, 2}, rounds: []string{"0 a true", "0 b true", "1 a true", "1 b true"}},
		{name: "A always changes", a: counter, b: func(int) string { return y },
			calls: [2]int{2, 2}, rounds: []string{"0 a true", "0 b true", "1 a true", "1 b false"}},
		{name: "S5.21 A did not match in the first pass", b: func(int) string { return label }, aLine: "objectSelector: {matchLabels: {wanted: 'yes'}}",
			calls: [2]int{0, 1}, rounds: []string{"0 b true"}},
		{name: "S5.20 Never", b: func(int) string { return y }, aLine: "reinvocationPolicy: Never", bLine: "reinvocationPolicy: Never",
			calls: [2]int{1, 1}, rounds: []string{"0 a false", "0 b true"}},
		{name: "S5.18 only A is marked", b: func(int) string { return y }, bLine: "reinvocationPolicy: Never",
			calls: [2]int{2, 1}, rounds: []string{"0 a false", "0 b true", "1 a false"}},
	} {
		t.Run("S5.23 "+c.name, func(t *testing.T) {
			answer := func(patch func(int) string) harness.Answer {
				n := 0
				return func(w http.ResponseWriter, r *harness.Review) {
					n++
					if patch == nil || patch(n) == "" {
						harness.Allow(w, r)
						return
					}
					harness.Patch(patch(n))(w, r)
				}
			}
			a, b := j.hooks.Hook(fmt.Sprintf("/a%d%s", i, ns), answer(c.a)), j.hooks.Hook(fmt.Sprintf("/b%d%s", i, ns), answer(c.b))
			const again, once = "reinvocationPolicy: IfNeeded", "sideEffects: NoneOnDryRun"
			register(t, j.Server, "v1", mutating, webhook("a", ns, a, again, once, c.aLine), webhook("b", ns, b, again, once, c.bLine))
			r := j.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps(ns), configMap(fmt.Sprintf("c%d", i)))
			want(t, "calls of A and B", [2]int{len(a.Reviews()), len(b.Reviews())}, c.calls)
			want(t, "S5.25 rounds", rounds(t, j, r, ns), c.rounds)
		})
	}
	t.Run("S5.23 calls ahead of turn change nothing", func(t *testing.T) {
		a := j.hooks.Hook("/a"+ns, harness.Patch(x))
		b := j.hooks.Hook("/b"+ns, harness.Patch(y))
		const again = "reinvocationPolicy: IfNeeded"
		register(t, j.Server, "v1", mutating, webhook("a", ns, a, again), webhook("b", ns, b, again))
		for i := range 5 {
			r := j.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps(ns), configMap(fmt.Sprintf("ahead-%d", i)))
			want(t, "rounds", rounds(t, j, r, ns), []string{"0 a true", "0 b true", "1 a true", "1 b true"})
			want(t, "the last word", r.Text("data", "set"), "y")
		}
	})
}

// rounds returns the mutation annotations of a request: round, webhook, whether mutated.
func rounds(t *testing.T, j *judged, r *harness.Response, ns string) []string {
	t.Helper()
	var list []string
	for key, value := range j.annotations(t, r) {
		at, ok := strings.CutPrefix(key, "mutation.webhook.admission.k8s.io/round_")
		if !ok {
			continue
		}
		v := decoded(t, value)
		list = append(list, fmt.Sprintf("%s %s %v", at[:1], strings.TrimSuffix(fmt.Sprint(v["webhook"]), "."+ns+".example.com"), v["mutated"]))
	}
	slices.Sort(list)
	return list
}
