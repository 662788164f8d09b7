package test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// testFaults has every way in which a webhook can fail, with either policy, in
// either pass.
func testFaults(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	other := harness.NewAuthority(t, "another")
	fixed := func(body string) harness.Answer { return harness.Raw(http.StatusOK, "application/json", body) }
	type failure struct {
		title, webhook, pass, policy string
		code                         int
	}
	var failures []failure
	for i, fault := range []struct {
		name   string
		answer harness.Answer
		// lines are fields of the webhook, ca what it trusts instead of its
		// server's authority.
		lines []string
		ca    []byte
		// detail is how the text goes on that follows the name of the webhook,
		// code the one in metrics.
		detail string
		code   int
	}{
		{"S7.4 refused", nil, []string{`clientConfig: {url: "https://` + harness.Refused(t) + `/"}`}, nil, `failed to call webhook: Post "https://`, 503},
		{"S7.4 a certificate that is not trusted", harness.Allow, nil, other.Bundle, `failed to call webhook: Post "https://`, 503},
		{"S7.4 a CA bundle that is no PEM", harness.Allow, nil, []byte("no PEM"), "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block", 500},
		{"S7.7 timeout", harness.Hang, []string{"timeoutSeconds: 1"}, nil, `failed to call webhook: Post "https://`, 503},
		{"S7.4 broken off", harness.Abort, nil, nil, `failed to call webhook: Post "https://`, 503},
		{"S7.4 HTTP 400", harness.Raw(400, "text/plain", "no"), nil, nil, "failed to call webhook: the server rejected our request for an unknown reason", 400},
		{"S7.4 HTTP 403", harness.Raw(403, "text/plain", "no entry"), nil, nil, "failed to call webhook: no entry", 403},
		{"S7.4 HTTP 404", harness.Raw(404, "text/plain", "x"), nil, nil, "failed to call webhook: the server could not find the requested resource", 404},
		{"S7.4 HTTP 500", harness.Raw(500, "text/plain", "oops"), nil, nil, `failed to call webhook: an error on the server ("oops") has prevented the request from succeeding`, 500},
		{"S7.4 HTTP 503", harness.Raw(503, "text/plain", "busy"), nil, nil, "failed to call webhook: the server is currently unable to handle the request", 503},
		{"S7.4 a Status", harness.Raw(418, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"teapot","code":418}`), nil, nil, "failed to call webhook: teapot", 418},
		{"S8.9 a redirect", func(w http.ResponseWriter, _ *harness.Review) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, nil, nil, "failed to call webhook: ", 307},
		{"S4.3 an empty body", fixed(""), nil, nil, "failed to call webhook: 0-length response with status code: 200 and content type: application/json", 503},
		{"S4.2 bad JSON", fixed(`{"apiVersion":`), nil, nil, "failed to call webhook: ", 503},
		{"S4.4 a wrong type", harness.Respond(map[string]any{"allowed": "true"}), nil, nil, "failed to call webhook: ", 503},
		{"S4.5 another kind", fixed(`{"apiVersion":"v1","kind":"Pod","response":{"allowed":true}}`), nil, nil, "failed to call webhook: ", 503},
		{"S4.5 another version", fixed(`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","response":{"allowed":true}}`), nil, nil, "failed to call webhook: ", 503},
		{"S4.6 no response", fixed(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`), nil, nil, "received invalid webhook response: webhook response was absent", 503},
		{"S4.7 a wrong uid", harness.Respond(map[string]any{"allowed": true, "uid": "1"}), nil, nil, `received invalid webhook response: expected response.uid="`, 503},
	} {
		for _, kind := range []string{mutating, validating} {
			for _, policy := range []string{"Fail", "Ignore"} {
				short := fmt.Sprintf("f%d.%s.%s", i, strings.ToLower(kind[:5]), strings.ToLower(policy))
				w := webhook(short, ns, j.hooks.Hook("/"+short+ns, fault.answer), "failurePolicy: "+policy,
					`objectSelector: {matchLabels: {fault: "`+short+`"}}`)
				set(w, fault.lines...)
				if fault.ca != nil {
					w["clientConfig"] = map[string]any{"url": harness.At(w, "clientConfig", "url"), "caBundle": fault.ca}
				}
				name := fmt.Sprint(w["name"])
				pass, annotation := "validating", "validating"
				if kind == mutating {
					pass, annotation = "admit", "mutation"
				}
				title := fmt.Sprintf("%s, %s, %s", fault.name, kind, policy)
				failures = append(failures, failure{title, name, pass, policy, fault.code})
				t.Run(title, func(t *testing.T) {
					h := j.HTTP(t, nil)
					register(t, j.Server, "v1", kind, w)
					r := h.Do("POST", configMaps(ns), configMap(short, "fault", short))
					opened := j.webhookAnnotations(t, r)["failed-open."+annotation+".webhook.admission.k8s.io/round_0_index_N"]
					if policy == "Ignore" {
						want(t, "S7.3 code", r.Code, http.StatusCreated)
						want(t, "S5.27 S6.7 annotation", opened, name)
						return
					}
					status := r.Refusal(http.StatusInternalServerError, "InternalError")
					if prefix := fmt.Sprintf("Internal error occurred: failed calling webhook %q: %s", name, fault.detail); !strings.HasPrefix(status.Message, prefix) {
						t.Errorf("S7.2 message is %q, want %q...", status.Message, prefix)
					}
					if !strings.Contains(status.Message, fmt.Sprintf("%s %q, webhook 1", kind, short+"."+ns)) {
						t.Errorf("message does not say where the webhook is registered: %q", status.Message)
					}
					if len(status.Details.Causes) != 1 || status.Message != "Internal error occurred: "+status.Details.Causes[0].Message {
						t.Errorf("S7.2 details are %v", status.Details)
					}
					want(t, "annotation", opened, "")
					want(t, "stored", h.Do("GET", configMaps(ns)+"/"+short, "").Code, http.StatusNotFound)
				})
			}
		}
	}
	metrics := j.HTTP(t, nil).Metrics()
	for _, f := range failures {
		labels := []string{`name="` + f.webhook + `"`, `type="` + f.pass + `"`}
		count := func(what, metric string, wanted float64, more ...string) {
			want(t, f.title+": "+what, metrics.Value("apiserver_admission_webhook_"+metric, append(more, labels...)...), wanted)
		}
		rejected, opened := 1.0, 0.0
		if f.policy == "Ignore" {
			rejected, opened = 0, 1
		}
		count("S10.2 requests", "request_total", 1, fmt.Sprintf(`code="%d"`, f.code), fmt.Sprintf(`rejected="%t"`, rejected == 1), `operation="CREATE"`)
		count("S10 latencies", "admission_duration_seconds_count", 1, fmt.Sprintf(`rejected="%t"`, rejected == 1), `operation="CREATE"`)
		count("S7.3 failures ignored", "fail_open_count", opened)
		count("S10.3 rejections", "rejection_count", rejected)
		count("S10.3 rejections by type", "rejection_count", rejected, `error_type="calling_webhook_error"`, fmt.Sprintf(`rejection_code="%d"`, f.code))
	}
	t.Run("S3.6 a version of the review that is not known is passed over", func(t *testing.T) {
		hook := j.hooks.Hook("/v9"+ns, harness.Allow)
		register(t, j.Server, "v1", validating, webhook("v9", ns, hook, "admissionReviewVersions: [v9, v1beta1, v1]", "objectSelector: {matchLabels: {fault: v9}}"))
		j.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps(ns), configMap("v9", "fault", "v9"))
		want(t, "asked", hook.Last(t).Body["apiVersion"], any("admission.k8s.io/v1beta1"))
	})
	t.Run("S4.7 a wrong uid is nothing in v1beta1", func(t *testing.T) {
		hook := j.hooks.Hook("/uid"+ns, harness.Respond(map[string]any{"allowed": true, "uid": "1"}))
		register(t, j.Server, "v1", validating, webhook("uid", ns, hook, "admissionReviewVersions: [v1beta1]", "objectSelector: {matchLabels: {fault: uid}}"))
		j.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps(ns), configMap("uid", "fault", "uid"))
		want(t, "asked", hook.Last(t).Body["apiVersion"], any("admission.k8s.io/v1beta1"))
	})
}

// testTimeouts is the table of S3.3, and what becomes of a request that runs out
// of its own time.
func testTimeouts(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	// The second hook is asked when the first has taken its time.
	gate := make(chan struct{})
	slow := j.hooks.Hook("/slow"+ns, func(w http.ResponseWriter, r *harness.Review) {
		<-gate
		harness.Allow(w, r)
	})
	fast := j.hooks.Hook("/fast"+ns, harness.Allow)
	last := j.hooks.Hook("/last"+ns, harness.Allow)
	long, short := "timeoutSeconds: 20", "timeoutSeconds: 5"
	registerAs(t, j.Server, "v1", mutating, "a."+ns,
		webhook("long", ns, fast, long, "objectSelector: {matchLabels: {case: long}}"),
		webhook("short", ns, fast, short, "objectSelector: {matchLabels: {case: short}}"),
		webhook("first", ns, slow, long, "objectSelector: {matchLabels: {case: slow}}", "sideEffects: NoneOnDryRun"),
		webhook("second", ns, fast, long, "objectSelector: {matchLabels: {case: slow}}", "sideEffects: NoneOnDryRun"))
	h := j.HTTP(t, nil)
	for _, c := range []struct{ name, label, query, want string }{
		{"S3.3 the request has less than the hook", "long", "&timeout=10s", "timeout=10s"},
		{"S3.3 the hook has less than the request", "short", "&timeout=10s", "timeout=5s"},
		{"S3.3 fractions are rounded up", "long", "&timeout=2500ms", "timeout=3s"},
		{"S3.3 no limit but the hook's", "long", "", "timeout=20s"},
	} {
		h.Must(http.StatusCreated, "POST", configMaps(ns)+"?dryRun=All"+c.query, configMap("c", "case", c.label))
		want(t, c.name, fast.Last(t).HTTP.URL.RawQuery, c.want)
		want(t, "S3.2 the path", fast.Last(t).HTTP.URL.Path, fast.Path)
	}
	time.AfterFunc(1100*time.Millisecond, func() { close(gate) })
	h.Must(http.StatusCreated, "POST", configMaps(ns)+"?dryRun=All&timeout=10s", configMap("c", "case", "slow"))
	want(t, "S3.3 the first hook", slow.Last(t).HTTP.URL.RawQuery, "timeout=10s")
	want(t, "S3.3 after a second in an earlier hook", fast.Last(t).HTTP.URL.RawQuery, "timeout=9s")

	for _, kind := range []string{mutating, validating} {
		t.Run("S7.3 an Ignore hook does not use up the request's time, "+kind, func(t *testing.T) {
			hang, label := j.hooks.Hook("/hang"+kind+ns, harness.Hang), strings.ToLower(kind)
			selector := "objectSelector: {matchLabels: {case: " + label + "}}"
			last.Forget()
			registerAs(t, j.Server, "v1", kind, "b."+label+ns,
				webhook("hang."+label, ns, hang, "failurePolicy: Ignore", selector), webhook("last."+label, ns, last, selector))
			r := j.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps(ns)+"?timeout=1s", configMap(label, "case", label))
			want(t, "calls of the next hook", len(last.Reviews()), 1)
			want(t, "failures ignored", len(j.webhookAnnotations(t, r)) > 0, true)
		})
		t.Run("S7.2 S7.7 a Fail hook may, "+kind, func(t *testing.T) {
			hang, label := j.hooks.Hook("/fail"+kind+ns, harness.Hang), "fail-"+strings.ToLower(kind)
			register(t, j.Server, "v1", kind, webhook(label, ns, hang, "objectSelector: {matchLabels: {case: "+label+"}}"))
			r := j.HTTP(t, nil).Do("POST", configMaps(ns)+"?timeout=1s", configMap(label, "case", label))
			if r.Code != http.StatusInternalServerError && r.Code != http.StatusGatewayTimeout {
				t.Errorf("%d %s", r.Code, r.Raw)
			}
			j.HTTP(t, nil).Refused(http.StatusNotFound, "NotFound", "GET", configMaps(ns)+"/"+label, "")
		})
	}
	t.Run("S7.10 a client that leaves", func(t *testing.T) {
		h := j.HTTP(t, nil)
		hang := j.hooks.Hook("/left"+ns, harness.Hang)
		w := webhook("left", ns, hang, "failurePolicy: Ignore", "objectSelector: {matchLabels: {case: left}}")
		register(t, j.Server, "v1", validating, w)
		if _, err := h.Try(cancelled(t, func() bool { return len(hang.Reviews()) > 0 }), "POST", configMaps(ns), configMap("left", "case", "left")); err == nil {
			t.Fatal("the request was not cancelled")
		}
		// The call is over when it is counted.
		name := fmt.Sprintf(`name="%s"`, w["name"])
		harness.Eventually(t, "the call is counted", func() error {
			if n := h.Metrics().Value("apiserver_admission_webhook_request_total", name); n != 1 {
				return fmt.Errorf("%v", n)
			}
			return nil
		})
		want(t, "S7.10 failures ignored", h.Metrics().Value("apiserver_admission_webhook_fail_open_count", name), 0.0)
		want(t, "S7.10 rejections", h.Metrics().Value("apiserver_admission_webhook_rejection_count", name), 0.0)
	})
}
