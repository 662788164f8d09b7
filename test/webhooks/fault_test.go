package webhooks

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// fault is a kind of failure of a webhook.
type fault struct {
	name string
	// answer is the answer of the webhook's server.
	answer harness.Answer
	// url and ca replace the webhook's URL and CA bundle; lines are fields of the webhook.
	url   string
	ca    []byte
	lines []string
	// detail is the text after the name of the webhook in the message, part occurs later in the message, and
	// code is the status code in metrics.
	detail, part string
	code         int
}

const oneSecond = "timeoutSeconds: 1"

// newFaults returns all kinds of faults. Their servers are closed at the end of the test.
func newFaults(t testing.TB) []fault {
	t.Helper()
	fixed := func(body string) harness.Answer { return harness.Raw(http.StatusOK, "application/json", body) }
	authority := harness.NewAuthority(t, "faults")
	with := func(certificate tls.Certificate) (url string) {
		s := harness.NewWebhookServer(t, nil, func(s *httptest.Server) { s.TLS.Certificates = []tls.Certificate{certificate} })
		s.Hook("/", harness.Allow)
		return s.URL + "/"
	}
	const post = `failed to call webhook: Post "https://`
	return []fault{
		{name: "S7.4 refused", url: "https://" + harness.Refused(t) + "/", detail: post, part: "connect: connection refused", code: 503},
		{name: "S7.4 accepts and is silent", url: "https://" + silent(t) + "/", lines: []string{oneSecond}, detail: post, part: "no connection within 1s, timeoutSeconds of the webhook", code: 503},
		{name: "S7.4 an expired certificate", url: with(authority.Expired(t, "127.0.0.1")), ca: authority.Bundle, detail: post, part: "tls: failed to verify certificate: x509: certificate has expired", code: 503},
		{name: "S7.4 a certificate for another name", url: with(authority.Serving(t, "other.example.com")), ca: authority.Bundle, detail: post, part: "tls: failed to verify certificate: x509: cannot validate certificate for 127.0.0.1", code: 503},
		{name: "S7.4 a certificate that is not trusted", answer: harness.Allow, ca: authority.Bundle, detail: post, part: "tls: failed to verify certificate: x509: certificate signed by unknown authority", code: 503},
		{name: "S7.4 a CA bundle that is no PEM", answer: harness.Allow, ca: []byte("no PEM"), detail: "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block", code: 500},
		{name: "S7.7 hangs", answer: harness.Hang, lines: []string{oneSecond}, detail: post, part: "context deadline exceeded; no answer within 1s, timeoutSeconds of the webhook", code: 503},
		{name: "S7.7 drips", answer: drip, lines: []string{oneSecond}, detail: post, part: "reading the answer: context deadline exceeded; no answer within 1s", code: 503},
		{name: "S7.4 broken off", answer: harness.Abort, detail: post, code: 503},
		{name: "S7.4 reset midway", answer: resetMidway, detail: post, part: "reading the answer: ", code: 503},
		{name: "S4.21 a gigabyte", answer: gigabyte, detail: "failed to call webhook: the answer is larger than 16777216 bytes", code: 503},
		{name: "S7.13 HTTP 429 with Retry-After", answer: func(w http.ResponseWriter, _ *harness.Review) {
			w.Header().Set("Retry-After", "0")
			harness.Raw(http.StatusTooManyRequests, "text/plain", "slow down")(w, nil)
		}, detail: "failed to call webhook: the server has received too many requests", code: 429},
		{name: "S7.4 HTTP 400", answer: harness.Raw(400, "text/plain", "no"), detail: "failed to call webhook: the server rejected our request for an unknown reason", code: 400},
		{name: "S7.4 HTTP 403", answer: harness.Raw(403, "text/plain", "no entry"), detail: "failed to call webhook: no entry", code: 403},
		{name: "S7.4 HTTP 404", answer: harness.Raw(404, "text/plain", "x"), detail: "failed to call webhook: the server could not find the requested resource", code: 404},
		{name: "S7.4 HTTP 500", answer: harness.Raw(500, "text/plain", "oops"), detail: `failed to call webhook: an error on the server ("oops") has prevented the request from succeeding`, code: 500},
		{name: "S7.4 HTTP 503", answer: harness.Raw(503, "text/plain", "busy"), detail: "failed to call webhook: the server is currently unable to handle the request", code: 503},
		{name: "S7.4 a Status", answer: harness.Raw(418, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"teapot","code":418}`), detail: "failed to call webhook: teapot", code: 418},
		{name: "S8.9 a redirect", answer: func(w http.ResponseWriter, _ *harness.Review) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, detail: "failed to call webhook: ", part: "redirects are not followed", code: 307},
		{name: "S4.3 an empty body", answer: fixed(""), detail: "failed to call webhook: 0-length response with status code: 200 and content type: application/json", code: 503},
		{name: "S4.2 bad JSON", answer: fixed(`{"apiVersion":`), detail: "failed to call webhook: ", code: 503},
		{name: "S4.2 garbage", answer: harness.Raw(http.StatusOK, "text/html", "<html>\x00\xff"), detail: "failed to call webhook: the answer is not an AdmissionReview", code: 503},
		{name: "S4.4 a wrong type", answer: harness.Respond(map[string]any{"allowed": "true"}), detail: "failed to call webhook: ", code: 503},
		{name: "S4.5 another kind", answer: fixed(`{"apiVersion":"v1","kind":"Pod","response":{"allowed":true}}`), detail: "failed to call webhook: ", code: 503},
		{name: "S4.5 another version", answer: fixed(`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","response":{"allowed":true}}`), detail: "failed to call webhook: ", code: 503},
		{name: "S4.6 no response", answer: fixed(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`), detail: "received invalid webhook response: webhook response was absent", code: 503},
		{name: "S4.7 a wrong uid", answer: harness.Respond(map[string]any{"allowed": true, "uid": "1"}), detail: `received invalid webhook response: expected response.uid="`, code: 503},
	}
}

// silent starts a server that accepts connections and sends nothing.
func silent(t testing.TB) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	return l.Addr().String()
}

// resetMidway resets the connection in the middle of the answer.
func resetMidway(w http.ResponseWriter, _ *harness.Review) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
	raw := conn.(*tls.Conn).NetConn().(*net.TCPConn)
	_ = raw.SetLinger(0)
	raw.Close()
}

// drip sends a byte at intervals and never ends.
func drip(w http.ResponseWriter, r *harness.Review) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_, _ = io.WriteString(w, " ")
			w.(http.Flusher).Flush()
		case <-r.HTTP.Context().Done():
			return
		}
	}
}

// gigabyte sends a gigabyte, unless the client closes the connection.
func gigabyte(w http.ResponseWriter, _ *harness.Review) {
	chunk := bytes.Repeat([]byte(" "), 1<<20)
	for range 1 << 10 {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// testFaults covers every kind of failure of a webhook. In the long run each kind is tested with both failure
// policies, in both passes; in the ordinary run, with one of the four combinations.
func testFaults(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	type failure struct {
		title, webhook, pass, policy string
		code                         int
	}
	var failures []failure
	random := speed.Random(t)
	combinations := [][2]string{{mutating, "Fail"}, {mutating, "Ignore"}, {validating, "Fail"}, {validating, "Ignore"}}
	for i, fault := range newFaults(t) {
		for _, n := range random.Perm(len(combinations))[:j.each] {
			kind, policy := combinations[n][0], combinations[n][1]
			short := fmt.Sprintf("f%d.%s.%s", i, strings.ToLower(kind[:5]), strings.ToLower(policy))
			hook := j.hooks.Hook("/"+short+ns, fault.answer)
			w := fault.webhook(short, ns, hook, policy)
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
				began := time.Now()
				r := h.Do("POST", configMaps(ns), configMap(short, "fault", short))
				// A fault costs at most timeoutSeconds; the limit is generous for busy machines, and
				// below the timeout of the request.
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("it took %s", took)
				}
				if n := len(hook.Reviews()); n > 1 {
					t.Errorf("S7.13 the webhook was asked %d times", n)
				}
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
				if !strings.Contains(status.Message, fault.part) {
					t.Errorf("message is %q, want %q in it", status.Message, fault.part)
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

// webhook returns a faulty webhook for configmaps with its short name as label.
func (f *fault) webhook(short, ns string, hook *harness.Hook, policy string) map[string]any {
	w := webhook(short, ns, hook, "failurePolicy: "+policy, `objectSelector: {matchLabels: {fault: "`+short+`"}}`)
	set(w, f.lines...)
	config := hook.ClientConfig()
	if f.url != "" {
		config["url"] = f.url
	}
	if f.ca != nil {
		config["caBundle"] = f.ca
	}
	w["clientConfig"] = config
	return w
}

// TestFaultsLeaveNothingBehind makes webhooks fail in all ways, several at once: afterwards the server has as
// many goroutines and open files as before.
func TestFaultsLeaveNothingBehind(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	s := harness.Start(t, "--admission-consistency", "strict", "--admission-webhook-breaker", "off")
	ns := s.Namespace(t)
	h := s.HTTP(t, nil)
	open := func() (goroutines, files float64) {
		m := h.Metrics()
		return m.Single("go_goroutines"), m.Single("process_open_fds")
	}
	// The first run creates long-lived state, such as the caches of kinds.
	failTogether(t, s, ns, 1)
	goroutines, files := open()
	for range 20 {
		g, f := open()
		goroutines, files = min(g, goroutines), min(f, files)
	}
	failTogether(t, s, ns, 3)
	// Each fault occurs at least eight times. The numbers of goroutines and files vary slightly at any time.
	const some = 5
	harness.Eventually(t, "what there was before", func() error {
		if g, f := open(); g > goroutines+some || f > files+some {
			return fmt.Errorf("%v goroutines and %v files, and there were %v and %v", g, f, goroutines, files)
		}
		return nil
	})
}

// failTogether makes a number of requests fail for each kind of fault, all kinds concurrently. When it
// returns, the webhook servers are closed, and so are the connections that the server keeps for later calls.
func failTogether(t *testing.T, s *harness.Server, ns string, times int) {
	t.Run(fmt.Sprintf("S7.3 every fault, times %d", times), func(t *testing.T) {
		h, hooks := s.HTTP(t, nil), harness.NewWebhookServer(t, nil)
		byKind := map[string][]map[string]any{}
		var labels []string
		for i, fault := range newFaults(t) {
			for _, kind := range []string{mutating, validating} {
				for _, policy := range []string{"Fail", "Ignore"} {
					label := fmt.Sprintf("f%d.%s.%s", i, strings.ToLower(kind[:5]), strings.ToLower(policy))
					labels = append(labels, label)
					byKind[kind] = append(byKind[kind], fault.webhook(label, ns, hooks.Hook("/"+label, fault.answer), policy))
				}
			}
		}
		for kind, webhooks := range byKind {
			registerAs(t, s, "v1", kind, "faults", webhooks...)
		}
		var created atomic.Int64
		for range times {
			var all sync.WaitGroup
			for _, label := range labels {
				all.Go(func() {
					code, err := h.Try(harness.Context(t), "POST", configMaps(ns)+"?dryRun=All", configMap("c", "fault", label))
					if err != nil {
						t.Errorf("%s: %v", label, err)
					}
					if code == http.StatusCreated {
						created.Add(1)
					}
				})
			}
			all.Wait()
		}
		want(t, "created", created.Load(), int64(times*len(labels)/2))
	})
}

// testTimeouts covers the table of S3.3, and requests that exceed their own timeout.
func testTimeouts(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	// The second webhook is called after the delay of the first.
	slow := j.hooks.Hook("/slow"+ns, func(w http.ResponseWriter, r *harness.Review) {
		time.Sleep(1100 * time.Millisecond)
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
		{"S3.3 fractions are rounded up", "long", "&timeout=2900ms", "timeout=3s"},
		{"S3.3 no limit but the hook's", "long", "", "timeout=20s"},
	} {
		h.Must(http.StatusCreated, "POST", configMaps(ns)+"?dryRun=All"+c.query, configMap("c", "case", c.label))
		want(t, c.name, fast.Last(t).HTTP.URL.RawQuery, c.want)
		want(t, "S3.2 the path", fast.Last(t).HTTP.URL.Path, fast.Path)
	}
	began := time.Now()
	h.Must(http.StatusCreated, "POST", configMaps(ns)+"?dryRun=All&timeout=10s", configMap("c", "case", "slow"))
	took := time.Since(began)
	want(t, "S3.3 the first hook", slow.Last(t).HTTP.URL.RawQuery, "timeout=10s")
	// Less than half a second is reserved for later stages.
	var left int
	if _, err := fmt.Sscanf(fast.Last(t).HTTP.URL.RawQuery, "timeout=%ds", &left); err != nil || left > 9 || float64(left) < 9.5-took.Seconds() {
		t.Errorf("S3.3 after a second in an earlier hook, of %s in all: %q", took, fast.Last(t).HTTP.URL.RawQuery)
	}

	t.Run("S7.11 no request has more than 34 s", func(t *testing.T) {
		first := j.hooks.Hook("/fiveseconds"+ns, func(w http.ResponseWriter, r *harness.Review) {
			time.Sleep(5 * time.Second)
			harness.Allow(w, r)
		})
		second := j.hooks.Hook("/rest"+ns, harness.Allow)
		for i, hook := range []*harness.Hook{first, second} {
			registerAs(t, j.Server, "v1", mutating, fmt.Sprintf("c%d.%s", i, ns),
				webhook(fmt.Sprint("cap", i), ns, hook, "timeoutSeconds: 30", "objectSelector: {matchLabels: {case: cap}}", "sideEffects: NoneOnDryRun"))
		}
		j.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps(ns), configMap("cap", "case", "cap"))
		want(t, "the first hook", first.Last(t).HTTP.URL.RawQuery, "timeout=30s")
		var left int
		if _, err := fmt.Sscanf(second.Last(t).HTTP.URL.RawQuery, "timeout=%ds", &left); err != nil || left >= 30 || left < 20 {
			t.Errorf("the second hook is called with %q, want what is left of 34 s after 5", second.Last(t).HTTP.URL.RawQuery)
		}
	})

	for _, kind := range []string{mutating, validating} {
		t.Run("S7.3 an Ignore hook does not use up the request's time, "+kind, func(t *testing.T) {
			hang, label := j.hooks.Hook("/hang"+kind+ns, harness.Hang), strings.ToLower(kind)
			selector := "objectSelector: {matchLabels: {case: " + label + "}}"
			registerAs(t, j.Server, "v1", kind, "b."+label+ns,
				webhook("hang."+label, ns, hang, "failurePolicy: Ignore", selector), webhook("last."+label, ns, last, selector))
			r := inTime(t, j.HTTP(t, nil), configMaps(ns), time.Second, http.StatusCreated, func(n int) string {
				last.Forget()
				return configMap(fmt.Sprint(label, n), "case", label)
			})
			want(t, "calls of the next hook", len(last.Reviews()), 1)
			want(t, "failures ignored", len(j.webhookAnnotations(t, r)) > 0, true)
		})
		t.Run("S7.7 S7.8 a Fail hook may, "+kind, func(t *testing.T) {
			hang, label := j.hooks.Hook("/fail"+kind+ns, harness.Hang), "fail-"+strings.ToLower(kind)
			w := webhook(label, ns, hang, "objectSelector: {matchLabels: {case: "+label+"}}")
			register(t, j.Server, "v1", kind, w)
			r := inTime(t, j.HTTP(t, nil), configMaps(ns), 2*time.Second, http.StatusGatewayTimeout, func(int) string { return configMap(label, "case", label) })
			status := r.Refusal(http.StatusGatewayTimeout, "Timeout")
			if prefix := fmt.Sprintf("Timeout: request did not complete within the allotted timeout: failed calling webhook %q: failed to call webhook: Post ", w["name"]); !strings.HasPrefix(status.Message, prefix) {
				t.Errorf("message is %q, want %q...", status.Message, prefix)
			}
			want(t, "S3.3 what the hook is told", hang.Last(t).HTTP.URL.RawQuery, "timeout=2s")
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
		// The metric is updated after the call.
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
