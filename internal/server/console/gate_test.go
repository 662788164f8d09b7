package console

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// The console passes reads and questions of its own page on, only with the credentials of the
// kubeconfig.
func TestTheConsolePassesOnWhatItsPageMayAsk(t *testing.T) {
	var got *http.Request
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		got = req
		w.Header().Set("Set-Cookie", "a=b")
		io.WriteString(w, "from the cluster")
	}))
	defer cluster.Close()
	g, err := NewGate(&rest.Config{Host: cluster.URL, BearerToken: "kubeconfig"}, "127.0.0.1:4711")
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, target, body string, headers ...string) *httptest.ResponseRecorder {
		t.Helper()
		got = nil
		req := httptest.NewRequest(method, target, strings.NewReader(body))
		req.Host = "127.0.0.1:4711"
		for i := 0; i < len(headers); i += 2 {
			if headers[i] == "Host" {
				req.Host = headers[i+1]
			} else {
				req.Header.Set(headers[i], headers[i+1])
			}
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, req)
		return w
	}
	exchange := func(token string) (int, string) {
		w := send("POST", "/console/session", `{"token":"`+token+`"}`)
		var answer struct{ Session string }
		_ = json.Unmarshal(w.Body.Bytes(), &answer)
		return w.Code, answer.Session
	}
	if w := send("HEAD", "/console/session", ""); w.Code != http.StatusNoContent {
		t.Errorf("the page asks whether the command serves it: status %d", w.Code)
	}
	if code, _ := exchange("guessed"); code != http.StatusForbidden {
		t.Errorf("a guessed token: status %d", code)
	}
	code, session := exchange(g.once)
	if code != http.StatusOK || session == "" {
		t.Fatalf("the token of the address: status %d", code)
	}
	if code, _ := exchange(g.once); code != http.StatusForbidden {
		t.Errorf("the token of the address, again: status %d", code)
	}
	own := []string{"Authorization", "Bearer " + session}
	for _, c := range []struct {
		name, method, target string
		headers              []string
		code                 int
	}{
		{"the page", "GET", "/console/", nil, 200},
		{"the page, by a link of another page", "GET", "/console/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		{"the page, of another name", "GET", "/console/", []string{"Host", "evil.example.com:4711"}, 403},
		{"a read", "GET", "/api/v1/pods", own, 200},
		{"a watch", "GET", "/api/v1/pods?watch=1", own, 200},
		{"a read without the session", "GET", "/api/v1/pods", nil, 401},
		{"a read with the token of the address", "GET", "/api/v1/pods", []string{"Authorization", "Bearer " + g.once}, 401},
		{"a read by another name", "GET", "/api/v1/pods", append([]string{"Host", "evil.example.com:4711"}, own...), 403},
		{"a read by another page", "GET", "/api/v1/pods", append([]string{"Origin", "https://evil.example.com"}, own...), 403},
		{"a read by a script of another page", "GET", "/api/v1/pods", append([]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, own...), 403},
		{"a read by a link of another page", "GET", "/api/v1/pods", append([]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, own...), 403},
		{"a question", "POST", "/apis/gatehouse.dev/v1alpha1/admissionexplanations", own, 200},
		{"a view", "POST", "/console/view/calls", own, 200},
		{"a view without the session", "POST", "/console/view/calls", nil, 401},
		{"a write", "POST", "/api/v1/namespaces/a/pods", own, 403},
		{"a deletion", "DELETE", "/api/v1/namespaces/a/pods/b", own, 403},
		{"a token", "POST", "/api/v1/namespaces/a/serviceaccounts/b/token", own, 403},
		{"a command", "GET", "/api/v1/namespaces/a/pods/b/exec?command=sh", own, 403},
		{"a proxy", "GET", "/api/v1/namespaces/a/services/b/proxy/metrics", own, 403},
		{"an old proxy", "GET", "/api/v1/proxy/namespaces/a/services/b/x", own, 403},
		{"an object that is called proxy", "GET", "/api/v1/namespaces/proxy/pods/exec", own, 200},
	} {
		w := send(c.method, c.target, "{}", c.headers...)
		if w.Code != c.code {
			t.Errorf("%s: status %d, want %d: %s", c.name, w.Code, c.code, w.Body)
		}
		if c.code != http.StatusOK && got != nil {
			t.Errorf("%s reached the cluster", c.name)
		}
		if w.Header().Get("Content-Security-Policy") == "" || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%s: the headers are %v", c.name, w.Header())
		}
	}
	send("GET", "/api/v1/pods", "", append([]string{"Impersonate-User", "system:admin", "Cookie", "a=b", "X-Remote-User", "root", "Accept", "application/json"}, own...)...)
	if got == nil || got.Header.Get("Authorization") != "Bearer kubeconfig" || got.Header.Get("Accept") != "application/json" {
		t.Fatalf("the cluster got %+v", got)
	}
	for _, name := range []string{"Impersonate-User", "Cookie", "X-Remote-User", "X-Forwarded-For"} {
		if got.Header.Get(name) != "" {
			t.Errorf("the cluster got the header %s", name)
		}
	}
}
