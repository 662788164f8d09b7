package customresources

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// S3.19: a conversion webhook gets the headers and the timeout that kube-apiserver sends.
func TestConversionsAreCalledAsKubeAPIServerCalls(t *testing.T) {
	e := newEnv(t)
	type seen struct{ query, agent, accept string }
	var got atomic.Pointer[seen]
	hook := newRawHook(t, func(map[string]any) any {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got.Store(&seen{r.URL.RawQuery, r.UserAgent(), r.Header.Get("Accept")})
			http.Error(w, "no", http.StatusTeapot)
		})
	})
	e.define(widgets)
	e.must(201, "POST", widgetsPath, widget("a", "{color: blue}"))
	e.update("widgets.example.com", func(spec *apiextensionsSpec) { spec.Conversion = hook.conversion("v1") })
	e.must(500, "GET", betaPath+"/a", "")
	if want := (seen{"timeout=30s", "kube-apiserver-admission", "application/json, */*"}); *got.Load() != want {
		t.Errorf("got %+v, want %+v", *got.Load(), want)
	}
}

// S7.18: an object that cannot be converted cannot be read, and the answer has the text of
// kube-apiserver.
func TestWhatCannotBeConverted(t *testing.T) {
	e := newEnv(t)
	hook := newRawHook(t, func(review map[string]any) any {
		return answer(review, map[string]any{"result": map[string]any{"status": "Failure", "message": "no way"}})
	})
	e.define(widgets)
	e.must(201, "POST", widgetsPath, widget("a", "{color: blue}"))
	e.must(201, "POST", widgetsPath, widget("b", "{color: blue}"))
	e.update("widgets.example.com", func(spec *apiextensionsSpec) { spec.Conversion = hook.conversion("v1") })
	corrupt := func(name string) string {
		return fmt.Sprintf("/example.com/widgets/ns/%s, ResourceVersion: 0, AdditionalErrorMsg: object not decodable", name)
	}
	for _, c := range []struct {
		do, body, reason, text string
		code                   int
	}{
		{"GET " + betaPath + "/a", "", "InternalError", corrupt("a"), 500},
		{"DELETE " + betaPath + "/a?dryRun=All", "", "InternalError", corrupt("a"), 500},
		{"DELETE " + betaPath + "?dryRun=All", "", "StorageReadError", corrupt("a"), 500},
		{"GET " + betaPath + "?limit=1", "", "StorageReadError", corrupt("a"), 500},
		{"GET " + betaPath, "", "TooManyRequests", "storage is (re)initializing", 429},
	} {
		method, path, _ := strings.Cut(c.do, " ")
		r := e.do(method, path, c.body)
		text := string(r.raw)
		if r.code != c.code || r.at("reason") != c.reason || !strings.Contains(text, c.text) || c.code == 500 && !strings.Contains(text, "failed: no way") {
			t.Errorf("%s: %d %s, want %d, %s and %q", c.do, r.code, text, c.code, c.reason, c.text)
		}
	}
}
