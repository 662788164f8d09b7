package console

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// api maps METHOD PATH, without the query, to a response. Other paths are not found. A response
// that begins with a number has that status.
type api map[string]string

func (a api) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	text, ok := a[req.Method+" "+req.URL.Path]
	code := http.StatusOK
	if !ok {
		text = "404"
	}
	if n, err := strconv.Atoi(text[:min(3, len(text))]); err == nil {
		if code, text = n, text[3:]; text == "" {
			text = fmt.Sprintf(`{"kind":"Status","message":"status %d of the API"}`, n)
		}
	}
	w.WriteHeader(code)
	io.WriteString(w, text)
}

func send(t testing.TB, a http.Handler, method, path, body string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(a).ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Result(), w.Body.String()
}

// The files need no credentials, are small together, and allow only their own scripts.
func TestFiles(t *testing.T) {
	size := 0
	for name, f := range contents() {
		size += len(f.content)
		answer, body := send(t, nil, "GET", Prefix+name, "")
		if answer.StatusCode != http.StatusOK || body != string(f.content) || answer.Header.Get("Content-Type") == "" {
			t.Errorf("%s: status %d, type %q", name, answer.StatusCode, answer.Header.Get("Content-Type"))
		}
		for _, bad := range []string{"https://", "<script>", " onclick=", " style=", "eval("} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %q", name, bad)
			}
		}
	}
	if size > 150<<10 {
		t.Errorf("the files have %d bytes", size)
	}
	answer, _ := send(t, nil, "GET", Prefix, "")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(answer.Header.Get("Content-Security-Policy"), want) {
			t.Errorf("the policy has no %q", want)
		}
	}
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/console", http.StatusMovedPermanently}, {"GET", Prefix + "none.js", http.StatusNotFound}, {"GET", Prefix + "../secret", http.StatusNotFound},
		{"HEAD", Prefix + "session", http.StatusNotFound}, {"POST", Prefix, http.StatusMethodNotAllowed}, {"GET", "/api", http.StatusOK},
		{"GET", viewPrefix + "trace", http.StatusMethodNotAllowed}, {"POST", viewPrefix + "none", http.StatusNotFound},
	} {
		if answer, _ := send(t, api{"GET /api": "{}"}, c.method, c.path, ""); answer.StatusCode != c.code {
			t.Errorf("%s %s: status %d, want %d", c.method, c.path, answer.StatusCode, c.code)
		}
	}
}

// registered is the API in the tests of views, with hostile texts in every place that users
// control.
func registered() api {
	const webhooks = `{"metadata":{"name":"<x-b>hooks"},"webhooks":[{"name":"deny.example.com",
		"clientConfig":{"url":"https://127.0.0.1:1/<img>"},"rules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*/*"],"scope":"*"}],"matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},"failurePolicy":"Fail","sideEffects":"None","admissionReviewVersions":["v1"]}]}`
	const states = `{"items":[{"registration":{"resource":"validatingwebhookconfigurations","name":"<x-b>hooks"},"inForce":false,"replicas":[
		{"name":"a","address":"10.0.0.1:6443","resourceVersion":"42","inForce":true,"skipped":[{"webhook":"deny.example.com","target":"127.0.0.1:1","reason":"refused"}]},
		{"name":"b","resourceVersion":"41","inForce":false}]}]}`
	const list = `{"apiVersion":"admissionregistration.k8s.io/v1","items":[`
	const path = "GET /apis/admissionregistration.k8s.io/v1/"
	return api{
		path + "validatingwebhookconfigurations":              list + webhooks + `]}`,
		path + "mutatingwebhookconfigurations":                "403",
		path + "validatingadmissionpolicies":                  list + `]}`,
		path + "validatingadmissionpolicybinding":             list + `]}`,
		"GET /apis/gatehouse.dev/v1alpha1/registrationstates": states,
		"GET /metrics": measured("4"), "GET /readyz": "[+]etcd ok\nreadyz check passed\n",
		"GET /api/v1/namespaces": "403",
		"GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases": `{"items":[{"metadata":{"name":"gatehouse-controllers"},"spec":{"holderIdentity":"a"}}]}`,
		"POST /apis/gatehouse.dev/v1alpha1/admissionexplanations": `{"status":{"plan":{"request":{"operation":"CREATE","kind":"Pod","name":"<x-b>"},"steps":[
			{"plugin":"ResourceQuota","pass":"validating"},{"plugin":"PodSecurity","pass":"validating"}]},"tried":[{"kind":"K","name":"n","problems":["undefined field"],"costs":[{"field":"f","limit":9}]}]}}`,
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews": `{"status":{"allowed":true}}`,
		"GET /api/v1": `{"resources":[{"name":"pods/log","kind":"Pod"},{"name":"pods","singularName":"pod","kind":"Pod","namespaced":true}]}`,
		"GET /apis/gatehouse.dev/v1alpha1/admissiontraces/1": `{"id":"1","outcome":"Denied","request":{"operation":"CREATE","resource":{"version":"v1","resource":"pods"},"name":"<x-b>"},
			"steps":[{"plugin":"P","pass":"mutating","error":"<i>"}]}`,
	}
}

// measured returns metrics with the given number of calls of a webhook.
func measured(calls string) string {
	return strings.ReplaceAll(`# TYPE apiserver_admission_webhook_admission_duration_seconds histogram
apiserver_admission_webhook_admission_duration_seconds_bucket{name="deny.example.com",operation="CREATE",rejected="true",type="validating",le="0.005"} 1
apiserver_admission_webhook_admission_duration_seconds_bucket{name="deny.example.com",operation="CREATE",rejected="true",type="validating",le="+Inf"} N
apiserver_admission_webhook_admission_duration_seconds_sum{name="deny.example.com",operation="CREATE",rejected="true",type="validating"} 1
apiserver_admission_webhook_admission_duration_seconds_count{name="deny.example.com",operation="CREATE",rejected="true",type="validating"} N
# TYPE some_other_family counter
some_other_family 3
# TYPE gatehouse_admission_policy_evaluations_total counter
gatehouse_admission_policy_evaluations_total{type="validating",policy="p",outcome="admitted"} 3
gatehouse_admission_policy_evaluations_total{type="validating",policy="p",outcome="violated"} 2
apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 1.572864e+06
gatehouse_storage_free_bytes 2147483648
`, "N", calls)
}

// Views show the responses of the API, and hostile texts in them stay text.
func TestViews(t *testing.T) {
	const pod = "GET /api/v1/namespaces/default/pods/a"
	const traces = "GET /apis/gatehouse.dev/v1alpha1/namespaces/default/admissiontraces"
	const before = `"before":{"validating/deny.example.com":{"calls":1,"rejected":1,"buckets":{"0.005":1}}}`
	for _, c := range []struct {
		name, body string
		// also has further responses of the API.
		also api
		want []string
	}{
		{"trace", `{"id":"1","namespace":"shop"}`, nil, []string{"&lt;i&gt;", "Rejected by P"}},
		{"trace", `{"id":"1","namespace":"shop"}`, api{"GET /apis/gatehouse.dev/v1alpha1/admissiontraces/1": "403",
			"GET /apis/gatehouse.dev/v1alpha1/namespaces/shop/admissiontraces/1": `{"id":"1","request":{"operation":"DELETE","user":"by-dave"}}`}, []string{"by-dave"}},
		{"explain", `{"manifest":"apiVersion: v1\nkind: Pod\n---\n---\n","policy":"{apiVersion: a, kind: b}","operation":"CREATE"}`, nil, []string{"undefined field", "no schema bounds"}},
		{"chain", `{}`, nil, []string{"ValidatingAdmissionWebhook", `&lt;x-b&gt;hooks/deny.example.com`, "not active", "refused",
			"4 calls, 4 rejected, p50 &gt; 5ms, p99 &gt; 5ms since the server started", "MutatingWebhookConfiguration: not allowed", "Not allowed: the labels of namespaces.",
			">MutatingAdmissionPolicy <span class=\"muted\">0</span></h3>\n\n</li><li class=\"plugin acts\"><h3>MutatingAdmissionWebhook", "validating pass</h2>\n<ol class=\"plugins\"><li class=\"plugin acts\"><h3>ValidatingAdmissionPolicy",
			"</li><li class=\"plugin\"><h3>ResourceQuota"}},
		{"chain", `{"filter":"no such","seconds":10,` + before + `}`, nil, []string{"MutatingWebhookConfiguration: not allowed"}},
		{"health", `{}`, nil, []string{"not called", "does not use its stored version yet", "Not allowed: the labels of namespaces.", "control-plane", "The database of etcd-0 has 1.5 MiB", "The disk of the embedded etcd has 2048 MiB free",
			"a at 10.0.0.1:6443 uses 1 registration, of revisions up to 42", "b uses 1 registration, of revisions up to 41; 1 of them in an older version", "gatehouse-controllers runs on a.",
			"The server b does not use its stored version yet", "not active everywhere", "This server is ready."}},
		{"health", `{}`, api{"GET /readyz": "500[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed"}, []string{"This server is not ready: [-]etcd failed"}},
		{"health", `{}`, api{"GET /cluster/member": `{"behind":2,"problems":["<i>no space"],"members":[{"name":"<x-b>a","address":"10.0.0.1:2380","leader":true},{"name":"b","address":"10.0.0.2:2380"},{"address":"10.0.0.3:2380","joining":true}]}`},
			[]string{"&lt;x-b&gt;a at 10.0.0.1:2380 is the member that leads.", "b at 10.0.0.2:2380 is a member.", "A server at 10.0.0.3:2380 is joining", "has yet to take in 2 entries of the log", "&lt;i&gt;no space"}},
		{"calls", `{"seconds":61.2,` + before + `}`, nil, []string{`"validating/deny.example.com":"3 calls, 3 rejected, p50 \u003e 5ms, p99 \u003e 5ms in the last 1m1s, 4 since the server started"`,
			`"policy-validating/p":"5 evaluations, 2 violated in the last`, `"counts":{"policy-validating/p":{"calls":5,"rejected":2},"validating/deny.example.com":{"calls":4,"rejected":4,"buckets":{"0.005":1}}}`}},
		{"calls", `{"seconds":10,"before":{"validating/deny.example.com":{"calls":4,"rejected":4}}}`, nil, []string{"none in the last 10s, 4 since the server started"}},
		{"calls", `{"seconds":1e300,"before":{"validating/deny.example.com":{"calls":9,"rejected":4}}}`, nil, []string{"since the server started again"}},
		{"calls", `{}`, api{"GET /metrics": "gatehouse_admission_policy_evaluations_total 3\n# TYPE gatehouse_admission_policy_evaluations_total counter\n"}, []string{`"texts":{}`}},
		{"object", `{"version":"v1","kind":"Pod","name":"a"}`, api{pod: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","managedFields":[
			{"manager":"kubectl-create","fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:name":{},"f:args":{}}}}}},
			{"manager":"<x-b>","subresource":"status","fieldsV1":{"f:status":{"f:phase":{}},"f:metadata":{"f:finalizers":{".":{},"v:\"x\"":{}}}}}, {"manager":"broken","fieldsV1":{"f:spec":3}}],"finalizers":["y","x"]},
			"spec":{"containers":[{"name":"web","image":"i","args":["one"],"tty":true}]},"status":{"phase":"Running"}}`},
			[]string{`<span class="t">    - one</span></div>`, `image: i</span>`, "manager kubectl-create", "manager &lt;x-b&gt; (status)", `class="ln"><span class="n">14</span><span class="t">    tty: true`, `class="ln"><span class="n">5</span><span class="t">  - &#34;y&#34;`,
				"Traces need Gatehouse"}},
		{"object", `{"version":"v1","kind":"pods","namespace":"default","name":"a"}`, api{pod: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"<x-b>","initializers":{"pending":[{"name":"late.example.com"}]}},"spec":{"containers":[{"name":"web","args":["<i>"]},{"name":"side","image":"s"}]}}`,
			traces: `{"items":[{"id":"7","outcome":"Allowed","request":{"operation":"CREATE","resource":{"version":"v1","resource":"pods"}},"steps":[{"plugin":"P","pass":"mutating","allowed":true,
			"calls":[{"webhook":{"configuration":"pods","name":"inject"},"mutated":true,"patch":[{"op":"add","path":"/spec/containers/-","value":{"name":"side","image":"s"}}]}]}]},null]}`},
			[]string{"waits for the initializer late.example.com", `set c0"><span class="n">13</span><span class="t">  - image: s</span><span class="by"><a href="#/traces/7">pods/inject</a>`, "- &lt;i&gt;"}},
		{"manifest", `{"version":"v1","kind":"pod","name":"a"}`, api{pod: `{"kind":"Pod","metadata":{"name":"<x-c>","managedFields":[{"manager":"m"}]}}`}, []string{`"text":"kind: Pod\nmetadata:\n  name: \u003cx-c\u003e\n"`}},
	} {
		has := registered()
		maps.Copy(has, c.also)
		answer, body := send(t, has, "POST", viewPrefix+c.name, c.body)
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d: %s", c.name, answer.StatusCode, body)
			continue
		}
		var made drawing
		if json.Unmarshal([]byte(body), &made) == nil && made.HTML != "" {
			body = made.HTML + strings.Join(made.Notes, "\n")
		}
		for _, want := range c.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the drawing has no %q:\n%s", c.name, want, body)
			}
		}
		if strings.Contains(body, "<x-b>") || strings.Contains(body, "<img") || strings.Contains(body, "<i>") {
			t.Errorf("%s: the drawing has markup that others wrote:\n%s", c.name, body)
		}
	}
}
