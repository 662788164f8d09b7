package webhooks

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func testDenials(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	hook := j.hooks.Hook("/"+ns, harness.Allow)
	for _, c := range []struct{ name, answer, want string }{
		{"S4.11 no status", `null`,
			`{"code":400,"message":"WEBHOOK denied the request without explanation"}`},
		{"S4.11 an empty status", `{}`,
			`{"code":400,"message":"WEBHOOK denied the request without explanation"}`},
		{"S4.12 a code and a message, and no reason", `{"code":403,"message":"not today"}`,
			`{"code":403,"message":"WEBHOOK denied the request: not today"}`},
		{"S4.12 a reason only", `{"reason":"Policy"}`,
			`{"code":400,"reason":"Policy","message":"WEBHOOK denied the request: Policy"}`},
		{"S4.11 a message counts before a reason", `{"reason":"Policy","message":"because"}`,
			`{"code":400,"reason":"Policy","message":"WEBHOOK denied the request: because"}`},
		{"S4.11 a code below 400", `{"code":200,"message":"m"}`,
			`{"code":400,"message":"WEBHOOK denied the request: m"}`},
		{"S4.11 a status Success", `{"code":409,"status":"Success","message":"m"}`,
			`{"code":409,"message":"WEBHOOK denied the request: m"}`},
		{"S4.14 a code that HTTP does not have", `{"code":1000,"message":"m"}`,
			`{"code":500,"message":"WEBHOOK denied the request: m"}`},
		{"S4.12 details", `{"code":422,"reason":"Invalid","message":"m","details":{"name":"x","causes":[{"reason":"FieldValueInvalid","message":"bad","field":"data.key"}]}}`,
			`{"code":422,"reason":"Invalid","message":"WEBHOOK denied the request: m","details":{"name":"x","causes":[{"reason":"FieldValueInvalid","message":"bad","field":"data.key"}]}}`},
		{"S4.12 when to come back", `{"code":429,"reason":"TooManyRequests","message":"m","details":{"retryAfterSeconds":7}}`,
			`{"code":429,"reason":"TooManyRequests","message":"WEBHOOK denied the request: m","details":{"retryAfterSeconds":7}}`},
	} {
		for _, kind := range []string{mutating, validating} {
			for _, version := range []string{"v1", "v1beta1"} {
				t.Run(fmt.Sprintf("%s, %s, %s", c.name, kind, version), func(t *testing.T) {
					h := j.HTTP(t, nil)
					hook.Answer(harness.Respond(decoded(t, `{"allowed":false,"status":`+c.answer+`}`)))
					w := webhook("deny", ns, hook, "failurePolicy: Ignore", "admissionReviewVersions: ["+version+"]")
					register(t, j.Server, version, kind, w)
					want := map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure"}
					merge(want, decoded(t, strings.Replace(c.want, "WEBHOOK", fmt.Sprintf(`admission webhook \"%s\"`, w["name"]), 1)))
					r := h.Do("POST", configMaps(ns), configMap("denied"))
					wantBody(t, r, int(want["code"].(float64)), want)
					retry, _ := harness.At(want, "details", "retryAfterSeconds").(float64)
					if got := r.Header.Get("Retry-After"); retry != 0 && got != fmt.Sprint(retry) {
						t.Errorf("S4.12 Retry-After is %q", got)
					}
					h.Refused(http.StatusNotFound, "NotFound", "GET", configMaps(ns)+"/denied", "")
				})
			}
		}
	}
}

// wantBody fails the test unless a response has the code and body.
func wantBody(t *testing.T, r *harness.Response, code int, body map[string]any) {
	t.Helper()
	want(t, "code", r.Code, code)
	want(t, "body", r.Body, body)
}

func testSideData(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	hook := j.hooks.Hook("/"+ns, harness.Allow)
	for _, kind := range []string{mutating, validating} {
		w := webhook(strings.ToLower(kind), ns, hook)
		name := fmt.Sprint(w["name"])
		for _, c := range []struct {
			name, answer string
			code         int
			warnings     []string
			annotations  map[string]string
		}{
			{"S4.17 S4.18 of an allowed request", `{"allowed":true,"warnings":["old","old","also \"quoted\"","","a\u0007b"],"auditAnnotations":{"k":"v","bad/key":"x"}}`,
				http.StatusCreated, []string{`299 - "old"`, `299 - "also \"quoted\""`}, map[string]string{name + "/k": "v"}},
			{"S4.17 S4.18 of a denied request", `{"allowed":false,"warnings":["beware"],"auditAnnotations":{"k":"v"}}`,
				http.StatusBadRequest, []string{`299 - "beware"`}, map[string]string{name + "/k": "v"}},
			{"S4.20 not of an answer that cannot be used", `{"allowed":true,"uid":"wrong","warnings":["beware"],"auditAnnotations":{"k":"v"}}`,
				http.StatusInternalServerError, nil, map[string]string{}},
		} {
			t.Run(c.name+", "+kind, func(t *testing.T) {
				hook.Answer(harness.Respond(decoded(t, c.answer)))
				configuration := register(t, j.Server, "v1", kind, w)
				if kind == mutating {
					c.annotations["mutation.webhook.admission.k8s.io/round_0_index_N"] = asJSON(struct {
						C string `json:"configuration"`
						W string `json:"webhook"`
						M bool   `json:"mutated"`
					}{configuration, name, false})
				}
				r := j.HTTP(t, nil).Must(c.code, "POST", configMaps(ns)+"?dryRun=All", configMap("c"))
				want(t, "warnings", r.Header.Values("Warning"), c.warnings)
				want(t, "audit annotations", j.webhookAnnotations(t, r), c.annotations)
			})
		}
	}
}

func testSeveralRejections(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	first, second := j.hooks.Hook("/first"+ns, harness.Allow), j.hooks.Hook("/second"+ns, harness.Allow)
	asked := make(chan struct{})
	first.Answer(func(w http.ResponseWriter, r *harness.Review) {
		// The other webhook has already answered.
		<-asked
		harness.Deny(map[string]any{"message": "first"})(w, r)
	})
	second.Answer(func(w http.ResponseWriter, r *harness.Review) {
		harness.Deny(map[string]any{"message": "second", "code": 409})(w, r)
		close(asked)
	})
	registerAs(t, j.Server, "v1", validating, "a."+ns, webhook("first", ns, first), webhook("second", ns, second))
	registerAs(t, j.Server, "v1", validating, "b."+ns, webhook("third", ns, second, "clientConfig: {url: 'https://"+harness.Refused(t)+"'}"))
	r := j.HTTP(t, nil).Do("POST", configMaps(ns), configMap("c"))
	want(t, "S6.4 code", r.Code, http.StatusBadRequest)
	want(t, "S6.4 the first in order is the message", r.Text("message"), fmt.Sprintf("admission webhook %q denied the request: first", "first."+ns+".example.com"))
	want(t, "S6.4 the second is a cause", r.At("details", "causes", "0"), any(map[string]any{
		"reason": "AdmissionWebhookDenied", "message": fmt.Sprintf("admission webhook %q denied the request: second", "second."+ns+".example.com"),
	}))
	if got := r.Text("details", "causes", "1", "message"); !strings.HasPrefix(got, fmt.Sprintf(`Internal error occurred: failed calling webhook %q: `, "third."+ns+".example.com")) {
		t.Errorf("S6.4 the third cause is %q", got)
	}
}

func testExternalHooks(t *testing.T, j *judged) {
	const kind = "ExternalAdmissionHookConfiguration"
	h := j.HTTP(t, nil)
	ns := j.Namespace(t)
	// A v1alpha1 webhook is always behind a service.
	hooks := harness.NewWebhookServer(t, []string{"hook." + ns + ".svc"})
	hook := hooks.Hook("/", harness.Allow)
	host, port, _ := strings.Cut(hooks.Address(), ":")
	want(t, "host", host, "127.0.0.1")
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/services", toJSON(
		`{apiVersion: v1, kind: Service, metadata: {name: hook}, spec: {type: ExternalName, externalName: localhost, ports: [{port: %s}]}}`, port))
	name := "check." + ns + ".example.com"
	w := map[string]any{
		"name":              name,
		"clientConfig":      map[string]any{"service": map[string]any{"namespace": ns, "name": "hook"}, "caBundle": hook.CABundle()},
		"rules":             []any{rule("CREATE,UPDATE,DELETE", "/v1/configmaps")},
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": ns}},
	}
	registerAs(t, j.Server, "v1alpha1", kind, ns, w)

	h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("c", "color", "red"))
	review := hook.Last(t)
	want(t, "S12.1 apiVersion", review.Body["apiVersion"], any("admission.k8s.io/v1alpha1"))
	want(t, "S12.1 status", review.Body["status"], any(map[string]any{"allowed": false}))
	want(t, "S12.2 fields", sortedKeys(review.Request()), []string{"kind", "name", "namespace", "object", "oldObject", "operation", "resource", "userInfo"})
	want(t, "S12.3 the object is versioned", review.Text("object", "apiVersion")+" "+review.Text("object", "kind"), "v1 ConfigMap")
	want(t, "S12.9 hooks see the final object", review.Text("object", "metadata", "uid") != "", true)

	for _, c := range []struct {
		name, answer string
		code         int
		message      string
	}{
		{"S12.6 allowed without apiVersion and kind", `{"spec":{},"status":{"allowed":true}}`, 200, ""},
		{"S12.10 denied with a reason only", `{"spec":{},"status":{"allowed":false,"status":{"reason":"the pod is evil"}}}`, 400,
			fmt.Sprintf("admission webhook %q denied the request: the pod is evil", name)},
		{"S12.7 no status", `{}`, 400, fmt.Sprintf("admission webhook %q denied the request without explanation", name)},
		{"S12.10 a code", `{"status":{"allowed":false,"status":{"code":403,"message":"m"}}}`, 403, fmt.Sprintf("admission webhook %q denied the request: m", name)},
		{"S12.11 another kind is an error, which is ignored", `{"apiVersion":"v1","kind":"Pod","status":{"allowed":false}}`, 200, ""},
		{"S12.8 a patch is nothing", `{"status":{"allowed":true},"response":{"allowed":true,"patchType":"JSONPatch","patch":"W10="}}`, 200, ""},
	} {
		t.Run("scenario 16: "+c.name, func(t *testing.T) {
			hook.Answer(harness.Raw(http.StatusOK, "application/json", c.answer))
			r := j.HTTP(t, nil).Do("PATCH", configMaps(ns)+"/c", `{"data":{"key":"`+c.name+`"}}`, "Content-Type", mergePatch)
			want(t, "code", r.Code, c.code)
			want(t, "message", r.Text("message"), c.message)
		})
	}
	t.Run("S12.4 a delete has the old object", func(t *testing.T) {
		hook.Answer(harness.Allow)
		j.HTTP(t, nil).Must(http.StatusOK, "DELETE", configMaps(ns)+"/c", "")
		want(t, "oldObject", hook.Last(t).Text("oldObject", "metadata", "labels", "color"), "red")
		want(t, "object", hook.Last(t).Request("object"), nil)
	})
	t.Run("S12.16 dry run", func(t *testing.T) {
		status := j.HTTP(t, nil).Refused(http.StatusBadRequest, "BadRequest", "POST", configMaps(ns)+"?dryRun=All", configMap("d"))
		want(t, "message", status.Message, fmt.Sprintf("admission webhook %q does not support dry run", name))
	})
	t.Run("S12.18 a failure that is ignored", func(t *testing.T) {
		hook.Answer(harness.Raw(http.StatusInternalServerError, "text/plain", "oops"))
		h := j.HTTP(t, nil)
		r := h.Must(http.StatusCreated, "POST", configMaps(ns), configMap("e"))
		want(t, "annotations", j.webhookAnnotations(t, r), map[string]string{"failed-open.external.webhook.admission.k8s.io/round_0_index_N": name})
		// One failure in this test, and one by another kind above.
		want(t, "metric", h.Metrics().Value("apiserver_admission_webhook_fail_open_count", `name="`+name+`"`, `type="validating"`), 2.0)
	})
	t.Run("S1.34 S12.11 failurePolicy Fail, by update", func(t *testing.T) {
		h := j.HTTP(t, nil)
		h.Must(http.StatusOK, "PATCH", registrationsPath("v1alpha1", kind)+"/"+ns, `[{"op":"replace","path":"/externalAdmissionHooks/0/failurePolicy","value":"Fail"}]`, "Content-Type", jsonPatch)
		hook.Answer(harness.Raw(http.StatusInternalServerError, "text/plain", "oops"))
		status := h.Refused(http.StatusInternalServerError, "InternalError", "POST", configMaps(ns), configMap("f"))
		if !strings.HasPrefix(status.Message, fmt.Sprintf(`Internal error occurred: failed calling webhook %q: failed to call webhook: an error on the server ("oops")`, name)) {
			t.Errorf("message is %q", status.Message)
		}
	})
}
