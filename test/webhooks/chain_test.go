package webhooks

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestChain verifies the interaction of the stages of admission: consecutive webhooks, the server's own
// checks, and the order of plugins.
func TestChain(t *testing.T) {
	t.Parallel()
	j := newJudged(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *judged)
	}{
		{"changes", testChain},
		{"races", testRaces},
		{"what is not said", testQuiet},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, j)
		})
	}
}

func testChain(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	h := j.HTTP(t, nil)
	labelled := func(key string) harness.Answer {
		return harness.Patch(`[{"op":"add","path":"/metadata/labels","value":{"` + key + `":"x"}}]`)
	}
	a := j.hooks.Hook("/"+ns+"/a", labelled("wanted"))
	b := j.hooks.Hook("/"+ns+"/b", harness.Allow)
	c := j.hooks.Hook("/"+ns+"/c", harness.Allow)
	register(t, j.Server, "v1", mutating,
		webhook("a", ns, a),
		webhook("b", ns, b, "objectSelector: {matchLabels: {wanted: x}}"),
		webhook("c", ns, c, `matchConditions: [{name: labelled, expression: "has(object.metadata.labels) && 'wanted' in object.metadata.labels"}]`))
	h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("one"))
	if len(b.Reviews()) != 1 {
		t.Error("S2.20 S2.21 a selector does not see what an earlier webhook changed")
	}
	if len(c.Reviews()) != 1 {
		t.Error("S2.36 a condition does not see what an earlier webhook changed")
	}
	a.Answer(harness.Allow)
	b.Forget()
	h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("two"))
	if len(b.Reviews()) != 0 {
		t.Error("S2.20 called without the label")
	}

	t.Run("S5.15 an object of a dry run is changed", func(t *testing.T) {
		h := j.HTTP(t, nil)
		a.Answer(labelled("dry"))
		r := h.Must(http.StatusCreated, "POST", configMaps(ns)+"?dryRun=All", configMap("dry"))
		if r.Text("metadata", "labels", "dry") != "x" || a.Last(t).Text("dryRun") != "true" {
			t.Errorf("labels %v", r.At("metadata", "labels"))
		}
		h.Must(http.StatusNotFound, "GET", configMaps(ns)+"/dry", "")
	})
	t.Run("S5.14 what webhooks write into metadata is checked", func(t *testing.T) {
		h := j.HTTP(t, nil)
		a.Answer(harness.Patch(`[{"op":"replace","path":"/metadata/name","value":"Not_A_Name"}]`))
		h.Refused(http.StatusUnprocessableEntity, "Invalid", "POST", configMaps(ns), configMap("named"))
		a.Answer(harness.Patch(`[{"op":"add","path":"/metadata/managedFields","value":[{"manager":"m","operation":"Nonsense","fieldsType":"FieldsV1","apiVersion":"v1"}]}]`))
		r := h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("managed"))
		if w := r.Header.Get("Warning"); !strings.Contains(w, "managedFields") {
			t.Errorf("Warning %q", w)
		}
		const owner = `{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"}`
		a.Answer(harness.Patch(`[{"op":"add","path":"/metadata/ownerReferences","value":[` + owner + `,` + owner + `]}]`))
		r = h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("owned"))
		want(t, "owners", len(r.At("metadata", "ownerReferences").([]any)), 1)
		if w := r.Header.Get("Warning"); !strings.Contains(w, "ownerReferences") {
			t.Errorf("Warning %q", w)
		}
	})
	t.Run("S4.15 a status beside allowed is ignored", func(t *testing.T) {
		h := j.HTTP(t, nil)
		a.Answer(harness.Respond(map[string]any{"allowed": true, "status": map[string]any{"code": 403, "message": "no"}}))
		h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("allowed"))
	})
	t.Run("S4.16 a denial names the webhook and says what it said", func(t *testing.T) {
		h := j.HTTP(t, nil)
		a.Answer(harness.Respond(map[string]any{"allowed": false, "status": map[string]any{"code": 403, "message": "because of this"}}))
		r := h.Do("POST", configMaps(ns), configMap("denied"))
		if m := r.Text("message"); !strings.Contains(m, `"a.`+ns+`.example.com"`) || !strings.Contains(m, "because of this") {
			t.Errorf("message %q", m)
		}
	})
	t.Run("S4.19 many warnings are cut", func(t *testing.T) {
		h := j.HTTP(t, nil)
		var long []any
		for i := range 20 {
			long = append(long, fmt.Sprintf("%02d %s", i, strings.Repeat("w", 600)))
		}
		a.Answer(harness.Respond(map[string]any{"allowed": true, "warnings": long}))
		r := h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("warned"))
		// 4,096 characters in total, 256 per warning.
		var cut []string
		for i := range 4096 / 256 {
			cut = append(cut, fmt.Sprintf(`299 - "%02d %s"`, i, strings.Repeat("w", 253)))
		}
		want(t, "warnings", r.Header.Values("Warning"), cut)
	})
}

func testRaces(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	h := j.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("c"))
	other := j.HTTP(t, nil)
	raced := false
	hook := j.hooks.Hook("/"+ns, func(w http.ResponseWriter, r *harness.Review) {
		if !raced {
			raced = true
			// No webhook admits this write: its user is exempt below.
			if code, err := other.Try(t.Context(), "PATCH", configMaps(ns)+"/c", `{"data":{"raced":"yes"}}`, "Content-Type", mergePatch, "Impersonate-User", "racer", "Impersonate-Group", "system:masters"); err != nil || code != http.StatusOK {
				t.Errorf("racing write: %d %v", code, err)
			}
		}
		harness.Allow(w, r)
	})
	register(t, j.Server, "v1", mutating, webhook("race", ns, hook, `matchConditions: [{name: others, expression: "request.userInfo.username != 'racer'"}]`))
	r := h.Must(http.StatusOK, "PATCH", configMaps(ns)+"/c", `{"data":{"mine":"too"}}`, "Content-Type", mergePatch)
	if r.Text("data", "raced") != "yes" || r.Text("data", "mine") != "too" {
		t.Errorf("data %v", r.At("data"))
	}
	reviews := hook.Reviews()
	if len(reviews) != 2 {
		t.Fatalf("S5.24 called %d times, want again after the conflict", len(reviews))
	}
	if reviews[0].Text("oldObject", "data", "raced") != "" || reviews[1].Text("oldObject", "data", "raced") != "yes" {
		t.Errorf("S5.24 oldObject is not the newer one in the second call")
	}
	if reviews[0].Text("uid") == reviews[1].Text("uid") {
		t.Error("S5.24 the second evaluation is not one of its own")
	}
}

func testQuiet(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	h := j.HTTP(t, nil)
	warned := j.hooks.Hook("/"+ns, func(w http.ResponseWriter, r *harness.Review) {
		w.Header().Set("Warning", `299 - "from the server of the webhook"`)
		harness.Allow(w, r)
	})
	skipped := j.hooks.Hook("/"+ns+"/skipped", harness.Allow)
	register(t, j.Server, "v1", validating, webhook("w", ns, warned), webhook("skipped", ns, skipped, `objectSelector: {matchLabels: {never: set}}`))
	r := h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("c"))
	if w := r.Header.Get("Warning"); w != "" {
		t.Errorf("S8.11 the client is told %q", w)
	}
	metrics := h.Metrics()
	if got := metrics.Value("apiserver_admission_webhook_request_total", `name="skipped.`+ns+`.example.com"`); got != 0 {
		t.Errorf("S10.4 a hook that was not called counts %v", got)
	}
	if got := metrics.Value("apiserver_admission_webhook_request_total", `name="w.`+ns+`.example.com"`, `code="200"`); got != 1 {
		t.Errorf("S10.5 the call counts %v", got)
	}
	if got := metrics.Value("apiserver_admission_webhook_admission_duration_seconds_count", `name="w.`+ns+`.example.com"`); got != 1 {
		t.Errorf("S10.5 the call's latency counts %v", got)
	}
	if got := metrics.Value("apiserver_admission_step_admission_duration_seconds_count", `type="validate"`, `operation="CREATE"`); got == 0 {
		t.Error("S10.5 the pass is not counted")
	}

	// The mutating pass takes two rounds, and the validating webhook is called once.
	add := func(key string) harness.Answer {
		return harness.Patch(`[{"op":"add","path":"/data/` + key + `","value":"x"}]`)
	}
	selected := "objectSelector: {matchLabels: {case: rounds}}"
	fails := j.hooks.Hook("/"+ns+"/fails", harness.Raw(http.StatusInternalServerError, "text/plain", "oops"))
	register(t, j.Server, "v1", mutating,
		webhook("one", ns, j.hooks.Hook("/"+ns+"/one", add("one")), selected, "reinvocationPolicy: IfNeeded"),
		webhook("two", ns, j.hooks.Hook("/"+ns+"/two", add("two")), selected))
	register(t, j.Server, "v1", validating, webhook("fails", ns, fails, selected, "failurePolicy: Ignore"))
	r = h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("rounds", "case", "rounds"))
	annotations := j.webhookAnnotations(t, r)
	want(t, "S6.8 calls", len(fails.Reviews()), 1)
	for key, wanted := range map[string]bool{
		"mutation.webhook.admission.k8s.io/round_1_index_N":               true,
		"failed-open.validating.webhook.admission.k8s.io/round_0_index_N": true,
		"failed-open.validating.webhook.admission.k8s.io/round_1_index_N": false,
	} {
		if _, found := annotations[key]; found != wanted {
			t.Errorf("S6.8 annotation %s: %v, want %v", key, found, wanted)
		}
	}
}

// TestPluginOrder verifies S9.2 and S9.11: flags select plugins by name, and the plugins keep the order of
// the admission chain.
func TestPluginOrder(t *testing.T) {
	t.Parallel()
	hooks := harness.NewWebhookServer(t, nil)
	for _, c := range []struct {
		name    string
		control []string
		calls   int
	}{
		{"S9.11 NamespaceLifecycle first: nobody is called for a namespace that is not there",
			[]string{"NamespaceLifecycle", "MutatingAdmissionWebhook", "GenericAdmissionWebhook", "ValidatingAdmissionWebhook", "Initializers"}, 0},
		{"S9.2 S9.11 webhooks first: they are called", []string{"MutatingAdmissionWebhook", "NamespaceLifecycle"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := harness.Start(t, "--admission-control", strings.Join(c.control, ","), "--admission-consistency", "strict")
			hook := hooks.Hook("/"+strings.Join(c.control, "-"), harness.Allow)
			w := webhook("order", "order", hook)
			delete(w, "namespaceSelector")
			register(t, s, "v1", mutating, w)
			s.HTTP(t, nil).Must(http.StatusNotFound, "POST", configMaps("nowhere"), configMap("c"))
			if got := len(hook.Reviews()); got != c.calls {
				t.Errorf("called %d times, want %d", got, c.calls)
			}
		})
	}
}

// TestInitializedKinds verifies S11.4, S2.39 and S11.20: every kind can have initializers except the kinds
// that configure admission, and the verb * includes initialize.
func TestInitializedKinds(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--admission-consistency", "strict")
	h, ns := s.HTTP(t, nil), s.Namespace(t)
	h.Must(http.StatusCreated, "POST", registrationGroup+"v1alpha1/initializerconfigurations",
		`{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"InitializerConfiguration","metadata":{"name":"all"},"initializers":[`+
			`{"name":"all.example.com","rules":[{"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]}]}`)
	const include = "?includeUninitialized=true"
	for _, c := range []struct {
		name, path, body string
		code             int
	}{
		{"S11.4 a kind of the core group", "/api/v1/namespaces/" + ns + "/configmaps", configMap("c"), http.StatusAccepted},
		{"S11.4 a kind of another group", "/apis/coordination.k8s.io/v1/namespaces/" + ns + "/leases", `{"metadata":{"name":"l"}}`, http.StatusAccepted},
		{"S11.4 a kind without a namespace", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"r"}}`, http.StatusAccepted},
		{"S11.4 S2.39 a kind that configures admission", registrationGroup + "v1/mutatingwebhookconfigurations",
			neverCalled("v1", "MutatingWebhookConfiguration", "m", hook("a.example.com", "")), http.StatusCreated},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := h.Must(c.code, "POST", c.path+include, c.body)
			if pending := r.Text("metadata", "initializers", "pending", "0", "name"); (pending == "all.example.com") != (c.code == http.StatusAccepted) {
				t.Errorf("pending %q", pending)
			}
		})
	}
	t.Run("S11.20 the verb * covers initialize", func(t *testing.T) {
		eve := s.HTTP(t, s.As("eve"))
		object := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bypass","initializers":{"pending":[]}}}`
		role := func(name, verbs string) {
			h.Must(http.StatusAccepted, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/roles"+include,
				`{"metadata":{"name":"`+name+`","initializers":{"pending":[{"name":"by.hand.example.com"}]}},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":[`+verbs+`]}]}`)
			h.Must(http.StatusOK, "PATCH", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/roles/"+name, `{"metadata":{"initializers":null}}`, "Content-Type", mergePatch)
			h.Must(http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/rolebindings",
				`{"metadata":{"name":"`+name+`","initializers":{"pending":[]}},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"`+name+`"},"subjects":[{"kind":"User","name":"eve"}]}`)
		}
		role("creates", `"create"`)
		harness.Eventually(t, "the right to create", func() error {
			if r := eve.Do("POST", "/api/v1/namespaces/"+ns+"/configmaps", object); !strings.Contains(r.Text("message"), "create with initializers denied") {
				return fmt.Errorf("%d %s", r.Code, r.Text("message"))
			}
			return nil
		})
		role("everything", `"*"`)
		harness.Eventually(t, "the right to everything", func() error {
			if r := eve.Do("POST", "/api/v1/namespaces/"+ns+"/configmaps", object); r.Code != http.StatusCreated {
				return fmt.Errorf("%d %s", r.Code, r.Text("message"))
			}
			return nil
		})
	})
}
