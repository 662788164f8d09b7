package console

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func send(t *testing.T, method, path, body string) (*http.Response, string) {
	t.Helper()
	next := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasPrefix(req.URL.Path, DrawPrefix) {
			Draw().ServeHTTP(w, req)
			return
		}
		io.WriteString(w, "next")
	})
	w := httptest.NewRecorder()
	Files(next).ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Result(), w.Body.String()
}

// The files need no credentials, are small together, and allow no other scripts than their own.
func TestFiles(t *testing.T) {
	size := 0
	for name, f := range contents() {
		size += len(f.content)
		answer, body := send(t, "GET", Prefix+name, "")
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
	answer, _ := send(t, "GET", Prefix, "")
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
		{"HEAD", Prefix + "session", http.StatusNotFound},
		{"POST", Prefix, http.StatusMethodNotAllowed}, {"GET", "/api", http.StatusOK}, {"GET", DrawPrefix + "trace", http.StatusMethodNotAllowed},
		{"POST", DrawPrefix + "none", http.StatusNotFound}, {"POST", DrawPrefix + "trace", http.StatusBadRequest},
	} {
		if answer, _ := send(t, c.method, c.path, ""); answer.StatusCode != c.code {
			t.Errorf("%s %s: status %d, want %d", c.method, c.path, answer.StatusCode, c.code)
		}
	}
	if answer, _ := send(t, "POST", DrawPrefix+"trace", `"`+strings.Repeat("x", MaxBody)+`"`); answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: status %d", answer.StatusCode)
	}
}

// Without the states of registrations, nothing is said about how many servers judge by them.
func TestHealthSaysNothingOfUnknownStates(t *testing.T) {
	const word = "not in force everywhere"
	for states, want := range map[string]bool{"null": false, "[]": true} {
		if answer, body := send(t, "POST", DrawPrefix+"health", `{"objects":[],"states":`+states+`}`); answer.StatusCode != http.StatusOK || strings.Contains(body, word) != want {
			t.Errorf("states %s: status %d, %q is there: %v", states, answer.StatusCode, word, !want)
		}
	}
}

// Drawings show what is sent, and what others wrote in it is text.
func TestDrawings(t *testing.T) {
	const webhooks = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"<x-b>hooks"},"webhooks":[{"name":"deny.example.com",
		"clientConfig":{"url":"https://127.0.0.1:1/<img>"},"rules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*/*"],"scope":"*"}],"matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},"failurePolicy":"Fail","sideEffects":"None","admissionReviewVersions":["v1"]}]}`
	const states = `[{"registration":{"resource":"validatingwebhookconfigurations","name":"<x-b>hooks"},"inForce":false,"replicas":[{"name":"a","skipped":[{"webhook":"deny.example.com","target":"127.0.0.1:1","reason":"refused"}]}]}]`
	const metrics = `# TYPE apiserver_admission_webhook_admission_duration_seconds histogram\n` +
		`apiserver_admission_webhook_admission_duration_seconds_bucket{name=\"deny.example.com\",operation=\"CREATE\",rejected=\"true\",type=\"validating\",le=\"0.005\"} 3\n` +
		`apiserver_admission_webhook_admission_duration_seconds_bucket{name=\"deny.example.com\",operation=\"CREATE\",rejected=\"true\",type=\"validating\",le=\"+Inf\"} 4\n` +
		`apiserver_admission_webhook_admission_duration_seconds_sum{name=\"deny.example.com\",operation=\"CREATE\",rejected=\"true\",type=\"validating\"} 1\n` +
		`apiserver_admission_webhook_admission_duration_seconds_count{name=\"deny.example.com\",operation=\"CREATE\",rejected=\"true\",type=\"validating\"} 4\n`
	for _, c := range []struct {
		name, body string
		want       []string
	}{
		{"trace", `{"id":"1","outcome":"Denied","request":{"operation":"CREATE","resource":{"version":"v1","resource":"pods"},"name":"<x-b>"},"steps":[{"plugin":"P","pass":"mutating","error":"<i>"}]}`,
			[]string{"&lt;i&gt;", "Rejected by P"}},
		{"traces", `[{"ID":"5d","Operation":"CREATE","Object":"pods <x-b>","Outcome":"Allowed","Total":"1.5ms"}]`, []string{"#/traces/5d", `pods &lt;x-b&gt;`, "1.5ms"}},
		{"plan", `{"spec":{"operation":"CREATE","resource":{"resource":"pods"}},"status":{"plan":{"request":{"operation":"CREATE","kind":"Pod","name":"<x-b>"},"steps":[]},"tried":[{"kind":"K","name":"n","problems":["undefined field"],"costs":[{"field":"f","limit":9}]}]}}`,
			[]string{"undefined field", "no schema bounds"}},
		{"chain", `{"objects":[` + webhooks + `],"states":` + states + `,"metrics":"` + metrics + `","totals":{"ValidatingWebhookConfiguration":5},"hidden":{"MutatingWebhookConfiguration":"not allowed"}}`,
			[]string{"ValidatingAdmissionWebhook", `&lt;x-b&gt;hooks/deny.example.com`, "not in force", "refused", "4 calls, 4 rejected, p50 ≤ 5ms, p99 &gt; 5ms since the server started", "4 more", "MutatingWebhookConfiguration: not allowed"}},
		{"chain", `{"objects":[` + webhooks + `],"plan":{"request":{},"steps":[{"plugin":"ResourceQuota","pass":"validating"},{"plugin":"PodSecurity","pass":"validating"}]}}`, []string{
			">MutatingAdmissionPolicy <span class=\"muted\">0</span></h3>\n\n</li><li class=\"plugin acts\"><h3>MutatingAdmissionWebhook", "validating pass</h2>\n<ol class=\"plugins\"><li class=\"plugin acts\"><h3>ValidatingAdmissionPolicy",
			"</li><li class=\"plugin\"><h3>ResourceQuota"}},
		{"health", `{"objects":[` + webhooks + `],"states":` + states + `,"notes":["Not allowed: metrics."]}`, []string{"not called", "does not judge requests by it", "Not allowed: metrics.", "control-plane"}},
		{"health", `{"objects":[],"states":null,"metrics":"apiserver_storage_size_bytes{storage_cluster_id=\"etcd-0\"} 1.572864e+06\ngatehouse_storage_free_bytes 2147483648\n"}`, []string{"The database of etcd-0 has 1.5 MiB", "The disk of the embedded etcd has 2048 MiB free"}},
		{"health", `{"objects":[],"states":[{"registration":{"resource":"validatingadmissionpolicies","name":"p"},"inForce":false,"replicas":[
			{"name":"a","address":"10.0.0.1:6443","resourceVersion":"42","inForce":true},{"name":"b","resourceVersion":"41","inForce":false}]}],"servers":["gatehouse-controllers runs on a."]}`,
			[]string{"a at 10.0.0.1:6443 judges by 1 registration, of revisions up to 42", "b judges by 1 registration, of revisions up to 41; 1 are not in force there", "gatehouse-controllers runs on a.", "The server b does not judge requests by it as it is stored"}},
		{"calls", `{"metrics":"` + metrics + `","before":"` + strings.NewReplacer("} 4", "} 1", "} 3", "} 1").Replace(metrics) + `","seconds":61.2}`, []string{`"validating/deny.example.com":"3 calls, 3 rejected, p50 ≤ 5ms, p99 \u003e 5ms in the last 1m1s, 4 since the server started"`}},
		{"calls", `{"metrics":"` + metrics + `","before":"` + metrics + `","seconds":10}`, []string{"none in the last 10s, 4 since the server started"}},
		{"calls", `{"metrics":"` + metrics + `","before":"` + strings.ReplaceAll(metrics, "} 4", "} 9") + `","seconds":10}`, []string{"since the server started again"}},
		{"calls", `{"metrics":"gatehouse_admission_policy_evaluations_total{type=\"validating\",policy=\"p\",outcome=\"admitted\"} 3\n# TYPE gatehouse_admission_policy_evaluations_total counter\n"}`, []string{`{}`}},
		{"calls", `{"metrics":"# TYPE gatehouse_admission_policy_evaluations_total counter\ngatehouse_admission_policy_evaluations_total{type=\"validating\",policy=\"p\",outcome=\"admitted\"} 3\ngatehouse_admission_policy_evaluations_total{type=\"validating\",policy=\"p\",outcome=\"violated\"} 2\n"}`, []string{`"policy-validating/p":"5 evaluations, 2 violated since the server started"`}},
		{"object", `{"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","managedFields":[
			{"manager":"kubectl-create","fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{},"f:name":{},"f:args":{}}}}}},
			{"manager":"<x-b>","subresource":"status","fieldsV1":{"f:status":{"f:phase":{}},"f:metadata":{"f:finalizers":{".":{},"v:\"x\"":{}}}}}, {"manager":"broken","fieldsV1":{"f:spec":3}}],"finalizers":["y","x"]},
			"spec":{"containers":[{"name":"web","image":"i","args":["one"],"tty":true}]},"status":{"phase":"Running"}},"traces":null}`,
			[]string{`<span class="t">    - one</span></div>`, `image: i</span>`, "manager kubectl-create", "manager &lt;x-b&gt; (status)", `class="ln"><span class="n">14</span><span class="t">    tty: true`, `class="ln"><span class="n">5</span><span class="t">  - &#34;y&#34;`}},
		{"write", `{"kind":"Pod","metadata":{"name":"<x-c>","managedFields":[{"manager":"m"}]}}`, []string{`"text":"kind: Pod\nmetadata:\n  name: \u003cx-c\u003e\n"`}},
		{"object", `{"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"<x-b>","initializers":{"pending":[{"name":"late.example.com"}]}},"spec":{"containers":[{"name":"web","args":["<i>"]},{"name":"side","image":"s"}]}},
			"traces":[{"id":"7","outcome":"Allowed","request":{"operation":"CREATE","resource":{"version":"v1","resource":"pods"}},"steps":[{"plugin":"P","pass":"mutating","allowed":true,
			"calls":[{"webhook":{"configuration":"pods","name":"inject"},"patch":[{"op":"add","path":"/spec/containers/-","value":{"name":"side","image":"s"}}]}]}]}]}`,
			[]string{"waits for the initializer late.example.com", `set c0"><span class="n">13</span><span class="t">  - image: s</span><span class="by"><a href="#/traces/7">pods/inject</a>`, "- &lt;i&gt;"}},
		{"read", "apiVersion: v1\nkind: A\n---\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: B}\n", []string{`[{"apiVersion":"v1","kind":"A"},{"apiVersion":"v1","kind":"B"}]`}},
	} {
		answer, body := send(t, "POST", DrawPrefix+c.name, c.body)
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d: %s", c.name, answer.StatusCode, body)
			continue
		}
		var made drawing
		if json.Unmarshal([]byte(body), &made) == nil && made.HTML != "" {
			body = made.HTML
		}
		for _, want := range c.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the drawing has no %q:\n%s", c.name, want, body)
			}
		}
		if strings.Contains(body, "<x-b>") || strings.Contains(body, "<img") || strings.Contains(body, "<i>") {
			t.Errorf("%s: the drawing has markup that was sent:\n%s", c.name, body)
		}
	}
}

// Without traces, nothing is said about what they show.
func TestAnObjectWithoutTraces(t *testing.T) {
	for traces, want := range map[string]bool{"null": false, "[]": true} {
		answer, body := send(t, "POST", DrawPrefix+"object", `{"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}},"traces":`+traces+`}`)
		for _, word := range []string{"No trace shows", "Requests about it"} {
			if answer.StatusCode != http.StatusOK || strings.Contains(body, word) != want {
				t.Errorf("traces %s: status %d, %q is there: %v", traces, answer.StatusCode, word, !want)
			}
		}
	}
}
