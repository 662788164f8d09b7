package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/yaml"
)

// maxWork bounds the bytes that are allocated for one view.
const maxWork = 1 << 30

// For every question and every response of the API, a view uses bounded memory and returns a bounded text.
func TestViewsAreBounded(t *testing.T) {
	const read = "GET /api/v1/namespaces/default/pods/a"
	text := func(s string) string {
		b, _ := json.Marshal(s)
		return string(b)
	}
	explain := func(manifest string) string {
		return `{"operation":"CREATE","manifest":` + text(manifest) + `}`
	}
	object := func(content string) api {
		return api{read: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":` + content + `}`}
	}
	const wanted = `{"version":"v1","kind":"Pod","name":"a"}`
	deep := strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)
	wide := "[" + strings.Repeat("{},", 5<<20) + "{}]"
	for _, c := range []struct {
		name, view, body string
		also             api
		code             int
	}{
		{"many objects", "explain", explain(`{"a":[` + strings.Repeat("{},", 5<<20) + "{}]}"), nil, http.StatusRequestEntityTooLarge},
		{"many values", "explain", explain("a: [" + strings.Repeat("{},", 300_000) + "{}]"), nil, http.StatusBadRequest},
		{"many keys", "explain", explain("a: [" + strings.Repeat("{a},", 240_000) + "1]"), nil, http.StatusBadRequest},
		{"many documents", "explain", explain(strings.Repeat("---\n", 100_000)), nil, http.StatusBadRequest},
		{"many objects in a list", "explain", explain("{apiVersion: v1, kind: List, items: [" + strings.Repeat("{apiVersion: v1, kind: Pod},", 1000) + "]}"), nil, http.StatusBadRequest},
		{"aliases of a text", "explain", explain("a: &a " + strings.Repeat("x", 500_000) + "\nb: [" + strings.Repeat("*a,", 20_000) + "*a]"), nil, http.StatusBadRequest},
		{"aliases of aliases", "explain", explain("a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f]"), nil, http.StatusBadRequest},
		{"an alias of itself", "explain", explain("a: &a [*a]"), nil, http.StatusBadRequest},
		{"a deep manifest", "explain", explain(deep), nil, http.StatusBadRequest},
		{"a deep object, as YAML", "manifest", wanted, object(deep), http.StatusRequestEntityTooLarge},
		{"a deep object", "object", wanted, object(deep), http.StatusOK},
		{"a large object, as YAML", "manifest", wanted, object("[" + strings.Repeat("{},", 300_000) + "{}]"), http.StatusRequestEntityTooLarge},
		{"a large object", "object", wanted, object("[" + strings.Repeat("{},", 300_000) + "{}]"), http.StatusOK},
		{"more than is read", "object", wanted, object(wide), http.StatusRequestEntityTooLarge},
		{"large traces", "object", wanted, api{read: `{"kind":"Pod"}`, "GET /apis/gatehouse.dev/v1alpha1/namespaces/default/admissiontraces": `{"items":` + wide + `}`}, http.StatusOK},
		{"a trace of many steps", "trace", `{"id":"1"}`, api{"GET /apis/gatehouse.dev/v1alpha1/admissiontraces/1": `{"steps":[` + strings.Repeat(`{"plugin":"`+strings.Repeat("<", 5000)+`","error":"<"},`, 2500) + `{}]}`}, http.StatusRequestEntityTooLarge},
		{"metrics without an end", "calls", `{}`, api{"GET /metrics": strings.Repeat("x", 3<<20)}, http.StatusBadGateway},
		{"many other metrics", "calls", `{}`, api{"GET /metrics": strings.Repeat("x 1\n", 20<<20)}, http.StatusOK},
		{"many metrics", "calls", `{}`, api{"GET /metrics": strings.Repeat(callsFamily+"\n", 1<<20)}, http.StatusRequestEntityTooLarge},
		{"an object without fields", "object", `null`, nil, http.StatusBadRequest},
		{"an unknown field", "object", `{"traces":[null]}`, nil, http.StatusBadRequest},
		{"two questions", "trace", `{"id":"1"}{"id":"2"}`, nil, http.StatusBadRequest},
		{"counts that are none", "calls", `{"before":{"a":null,"b":{"buckets":{"x":1}}}}`, nil, http.StatusBadRequest},
		{"a path", "trace", `{"id":"../../../../api/v1/secrets"}`, nil, http.StatusNotFound},
		{"a path that is none", "object", `{"version":"%zz","kind":"\u0000","name":".."}`, nil, http.StatusNotFound},
	} {
		has := registered()
		for k, v := range c.also {
			has[k] = v
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		answer, body := send(t, has, "POST", viewPrefix+c.view, c.body)
		runtime.ReadMemStats(&after)
		if answer.StatusCode != c.code {
			t.Errorf("%s: status %d, want %d: %.300s", c.name, answer.StatusCode, c.code, body)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > maxWork {
			t.Errorf("%s: a body of %d bytes takes %d MiB", c.name, len(c.body), used>>20)
		}
		// JSON encodes some characters as six bytes.
		if len(body) > 6*maxDrawn {
			t.Errorf("%s: the answer has %d MiB", c.name, len(body)>>20)
		}
		t.Logf("%s: %d bytes: status %d, %d MiB, answer %d bytes", c.name, len(c.body), answer.StatusCode, (after.TotalAlloc-before.TotalAlloc)>>20, len(body))
	}
}

// The server does no work for a view that the user is not allowed to read, and such a user does not wait
// for other views.
func TestNothingIsDoneForStrangers(t *testing.T) {
	for name := range views {
		for _, code := range []string{"401", "403"} {
			asked := 0
			stranger := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				asked++
				api{req.Method + " " + req.URL.Path: code}.ServeHTTP(w, req)
			})
			turns := make(chan struct{})
			w := httptest.NewRecorder()
			body := `{}`
			switch name {
			case "object", "manifest":
				body = `{"version":"v1","kind":"Pod","name":"a"}`
			case "explain":
				// The body is not read.
				body = "["
			}
			serveView(w, httptest.NewRequest("POST", viewPrefix+name, strings.NewReader(body)), name, stranger, turns)
			blind := code == "403" && (name == "chain" || name == "health")
			if want := map[bool]int{true: http.StatusOK, false: map[string]int{"401": 401, "403": 403}[code]}[blind]; w.Code != want {
				t.Errorf("%s, %s: status %d, want %d: %s", name, code, w.Code, want, w.Body)
			}
			if asked == 0 {
				t.Errorf("%s, %s: the API was not asked", name, code)
			}
		}
	}
}

// A few views are drawn at once. Further views wait, and get a 429 after their time limit.
func TestViewsWaitForTheirTurn(t *testing.T) {
	ask := func(turns chan struct{}) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		serveView(w, httptest.NewRequest("POST", viewPrefix+"calls", strings.NewReader("{}")), "calls", registered(), turns)
		return w
	}
	synctest.Test(t, func(t *testing.T) {
		turns := make(chan struct{}, 1)
		turns <- struct{}{}
		if w := ask(turns); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Errorf("without a place: status %d: %s", w.Code, w.Body)
		}
		<-turns
		if w := ask(turns); w.Code != http.StatusOK || len(turns) != 0 {
			t.Errorf("with a place: status %d, %d places are taken after it", w.Code, len(turns))
		}
	})
}

// A view reads with the credentials of its request, and passes no other header on. An aborted response of
// the API is an error of the view.
func TestAViewReadsAsItsViewer(t *testing.T) {
	req := httptest.NewRequest("POST", viewPrefix+"trace", strings.NewReader(`{"id":"1"}`))
	for _, name := range []string{"Authorization", "Impersonate-User", "X-Remote-User", "Accept-Encoding", "Upgrade", "If-None-Match"} {
		req.Header.Set(name, "x")
	}
	var got *http.Request
	w := httptest.NewRecorder()
	Handler(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		got = req
		panic(http.ErrAbortHandler)
	})).ServeHTTP(w, req)
	if w.Code != http.StatusBadGateway {
		t.Errorf("an answer that is broken off: status %d", w.Code)
	}
	body, _ := io.ReadAll(got.Body)
	if got.Method != "GET" || got.URL.Path != "/apis/gatehouse.dev/v1alpha1/admissiontraces/1" || len(body) > 0 || got.RemoteAddr != req.RemoteAddr || got.TLS != req.TLS {
		t.Errorf("the API gets %s %s with %q", got.Method, got.URL, body)
	}
	for name, want := range map[string]string{"Authorization": "x", "Impersonate-User": "x", "X-Remote-User": "x", "Accept-Encoding": "", "Upgrade": "", "If-None-Match": ""} {
		if got.Header.Get(name) != want {
			t.Errorf("the API gets the header %s: %q", name, got.Header.Get(name))
		}
	}
}

// A page of another origin gets no view, whatever credentials its browser sends.
func TestOnlyTheConsoleAsksForViews(t *testing.T) {
	for site, code := range map[string]int{"same-origin": http.StatusOK, "": http.StatusOK, "cross-site": http.StatusForbidden, "same-site": http.StatusForbidden} {
		w, req := httptest.NewRecorder(), httptest.NewRequest("POST", viewPrefix+"calls", strings.NewReader("{}"))
		req.Header.Set("Sec-Fetch-Site", site)
		if Handler(registered()).ServeHTTP(w, req); w.Code != code {
			t.Errorf("a page of %q: status %d, want %d", site, w.Code, code)
		}
	}
}

// A viewer without any right is not told that there are no problems or no registrations.
func TestHealthWithoutRights(t *testing.T) {
	const path = "GET /apis/admissionregistration.k8s.io/v1/"
	nothing := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		api{req.Method + " " + req.URL.Path: "403"}.ServeHTTP(w, req)
	})
	list := `{"items":[]}`
	for _, c := range []struct {
		name           string
		api            http.Handler
		health, status string
		whole          bool
	}{
		{"no right", nothing, "You may read no registrations: nothing is known of their health.", "You may read no registrations", false},
		{"some right", api{path + "validatingwebhookconfigurations": list, path + "mutatingwebhookconfigurations": "403"}, "Nothing was found in what you may read.", "0 registrations that you may read", false},
		{"all rights", api{path + "validatingwebhookconfigurations": list, path + "mutatingwebhookconfigurations": list}, "Nothing was found.", "0 registrations", true},
	} {
		for _, view := range []string{"health", "chain"} {
			answer, body := send(t, c.api, "POST", viewPrefix+view, "{}")
			var made drawing
			if err := json.Unmarshal([]byte(body), &made); err != nil || answer.StatusCode != http.StatusOK {
				t.Fatalf("%s, %s: status %d, %v", c.name, view, answer.StatusCode, err)
			}
			if made.Status != c.status || made.Whole != c.whole {
				t.Errorf("%s, %s: %q, whole %v", c.name, view, made.Status, made.Whole)
			}
			if view == "chain" && strings.Contains(made.HTML, "ValidatingAdmissionWebhook <span class=\"muted\">not known</span>") != (c.name == "no right") {
				t.Errorf("%s: the drawing counts what cannot be seen:\n%s", c.name, made.HTML)
			}
			if view == "health" && (!strings.Contains(made.HTML, c.health) || strings.Contains(made.HTML, "callout ok") != c.whole || strings.Contains(made.HTML, "<b>0</b> registrations") == (c.name == "no right")) {
				t.Errorf("%s: the drawing has not %q:\n%s", c.name, c.health, made.HTML)
			}
			// Without the states of registrations, the number of servers that use them is unknown.
			if strings.Contains(made.HTML, "not active everywhere") {
				t.Errorf("%s, %s: what is not known is a number", c.name, view)
			}
		}
	}
}

// FuzzViews draws arbitrary responses of an API.
func FuzzViews(f *testing.F) {
	for name := range views {
		f.Add(name, `{"id":"1"}`, `{"items":[null,{"steps":[{"calls":[{}]}]}]}`)
		f.Add(name, `{"version":"v1","kind":"Pod","name":"a"}`, `{"resources":[{"name":"pods","kind":"Pod"}],"metadata":{"initializers":{"pending":[1]}},"status":{"allowed":true,"tried":[{}],"plan":{"steps":[{}]}}}`)
		f.Add(name, `{"manifest":"{apiVersion: v1, kind: Pod}","before":{"a":{"buckets":{"1":2}}}}`, measured("4"))
		f.Add(name, `{}`, `{"apiVersion":"admissionregistration.k8s.io/v1","items":[{"webhooks":[{"name":"a"}]}]}`)
	}
	f.Fuzz(func(t *testing.T, name, asked, answer string) {
		if views[name] == nil {
			return
		}
		anything := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, answer) })
		answered, body := send(t, anything, "POST", viewPrefix+name, asked)
		if answered.StatusCode == http.StatusOK && !json.Valid([]byte(body)) {
			t.Errorf("the answer is not JSON: %s", body)
		}
	})
}

// FuzzManifest formats an object as YAML, and parses it back to an equal object.
func FuzzManifest(f *testing.F) {
	for _, text := range []string{`{"a":[[],[[1,2],{}],{"b":{}}],"c":null}`, `{"a":" x\n y\n","b":["\n  1\n 2\n\n"," \n"],"yes":"no","1":1.5,"":""}`, `{"a":[["- x\ny"],[{"k":"a\n\nb\n"}]]}`, `{"\n":"x","\u2028":{"\u0085":[]}}`, `{"a":"\u0085\u2028#: x","b":"~","c":"0x1"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var object map[string]any
		if json.Unmarshal([]byte(text), &object) != nil || len(object) == 0 {
			return
		}
		want, _ := json.Marshal(object)
		same := func(text []byte) (string, bool) {
			again := map[string]any{}
			err := yaml.Unmarshal(text, &again)
			got, _ := json.Marshal(again)
			return fmt.Sprintf("%s, %v", got, err), bytes.Equal(got, want)
		}
		written, ok := manifest(object)
		// sigs.k8s.io/yaml cannot parse everything that it writes.
		whole, err := yaml.Marshal(object)
		if _, readable := same(whole); !ok || err != nil || !readable {
			return
		}
		if got, ok := same([]byte(written)); !ok {
			t.Errorf("%s is written as\n%s\nwhich is read as %s", want, written, got)
		}
	})
}

// FuzzReadObjects parses arbitrary texts.
func FuzzReadObjects(f *testing.F) {
	for _, text := range []string{"apiVersion: v1\nkind: A\n---\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: B}\n", "a: &a [*a]", "<<: &a {b: *a}", "---\n...\n---", "\t", "a: !!binary x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		objects, err := readObjects(text)
		if err == nil && len(objects) > maxObjects {
			t.Errorf("%d objects", len(objects))
		}
		for _, o := range objects {
			if o["kind"] == nil {
				t.Errorf("%v is no object", o)
			}
		}
	})
}

// A text may have several documents and lists. Their objects are read in order.
func TestReadObjects(t *testing.T) {
	objects, err := readObjects("apiVersion: v1\r\nkind: A\r\n---\n---\napiVersion: v1\nkind: List\nitems:\n- &b {apiVersion: v1, kind: B}\n- *b\n")
	if got := fmt.Sprint(objects); err != nil || got != "[map[apiVersion:v1 kind:A] map[apiVersion:v1 kind:B] map[apiVersion:v1 kind:B]]" {
		t.Errorf("%s, %v", got, err)
	}
}
