//go:build linux

package aggregation

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// misdeed is the behaviour of a hostile server for some kinds of requests that the main server sends by
// itself: discovery, OpenAPI, lists and watches.
type misdeed struct {
	name string
	on   request
	do   http.HandlerFunc
}

// request is a kind of request to an aggregated server.
type request int

const (
	forDiscovery request = iota
	forOpenAPI
	forList
	forWatch
)

// of returns the kind of a request.
func (f *fake) of(req *http.Request) request {
	switch {
	case strings.HasPrefix(req.URL.Path, "/openapi"):
		return forOpenAPI
	case strings.HasSuffix(req.URL.Path, "/things") && req.URL.Query().Get("watch") != "":
		return forWatch
	case strings.HasSuffix(req.URL.Path, "/things"):
		return forList
	}
	return forDiscovery
}

// endless writes a text repeatedly until the reader closes.
func endless(w io.Writer, text string) {
	for {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// raw writes a response without HTTP, and closes the connection.
func raw(answer func(w io.Writer)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		// Only an HTTP/1 connection can be hijacked.
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			defer conn.Close()
			answer(conn)
		}
	}
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}
}

// withoutEnd writes head, then again repeatedly.
func withoutEnd(head, again string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, head)
		endless(w, again)
	}
}

// drips writes a character at a time until the client disconnects.
func drips(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	for req.Context().Err() == nil {
		_, _ = io.WriteString(w, " ")
		w.(http.Flusher).Flush()
		time.Sleep(20 * time.Millisecond)
	}
}

func misdeeds() []misdeed {
	const (
		ok   = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
		list = `{"kind":"ThingList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{}`
	)
	long := strings.Repeat("x", 1<<16)
	manyResources := func() string {
		var b strings.Builder
		b.WriteString(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"GROUP/v1","resources":[{"name":"a","kind":"A","verbs":["get"]}`)
		for i := range 10_000 {
			fmt.Fprintf(&b, `,{"name":"things%d","singularName":"","namespaced":true,"kind":"Thing%[1]d","verbs":["create","delete","get","list","watch"]}`, i)
		}
		b.WriteString("]}")
		return b.String()
	}()
	longNames := func() string {
		name := strings.Repeat("n", 100_000)
		return fmt.Sprintf(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"GROUP/v1","resources":[{"name":"%[1]s1","kind":"%[1]s1","namespaced":true,"verbs":["create","delete","get","list","watch"]},{"name":"%[1]s2","kind":"%[1]s2","namespaced":true,"verbs":["create","delete","get","list","watch"]}]}`, name)
	}()
	return []misdeed{
		{"a list without end", forList, withoutEnd(list, strings.Repeat(`,{"metadata":{"name":"a","namespace":"n","uid":"u"}}`, 1000))},
		{"an object without end", forList, withoutEnd(list+`,{"metadata":{"name":"`, long)},
		{"a packed list without end", forList, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, list+`,{"metadata":{"name":"`)
			endless(z, long)
		}},
		{"a list of wrong types", forList, says(`{"kind":7,"metadata":"none","items":{"a":["b"]}}`)},
		{"a list that ends early", forList, raw(func(w io.Writer) { _, _ = io.WriteString(w, ok+"Content-Length: 1000\r\n\r\n"+list) })},
		{"a list elsewhere", forList, func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "https://127.0.0.1:1/apis", http.StatusTemporaryRedirect)
		}},
		{"a watch of garbage without end", forWatch, withoutEnd("what is this ", long)},
		{"a watch of one event without end", forWatch, withoutEnd(`{"type":"ADDED","object":{"metadata":{"name":"`, long)},
		{"discovery without end", forDiscovery, withoutEnd(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"GROUP/v1","resources":[{"name":"`, long)},
		{"discovery of too many kinds", forDiscovery, says(manyResources)},
		{"discovery of very long names", forDiscovery, says(longNames)},
		{"discovery drop by drop", forDiscovery, drips},
		{"discovery that never comes", forDiscovery, func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }},
		{"discovery of wrong types", forDiscovery, says(`[{"kind":{"a":"b"},"groups":7}]`)},
		{"headers without end", forDiscovery, raw(func(w io.Writer) { _, _ = io.WriteString(w, ok); endless(w, "X-A: "+long+"\r\n") })},
		{"a chunk without end", forDiscovery, raw(func(w io.Writer) {
			_, _ = io.WriteString(w, ok+"Transfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\n")
			endless(w, long)
		})},
		{"documents without end", forOpenAPI, withoutEnd(`{"swagger":"2.0","definitions":{"`, long)},
	}
}

// newHostile starts a server that behaves normally except for one misdeed.
func newHostile(t *testing.T, group string, m misdeed) *fake {
	t.Helper()
	f := newFake(t, group, nil)
	f.answer(func(w http.ResponseWriter, req *http.Request) {
		if f.of(req) != forWatch {
			says(`{"kind":"ThingList","apiVersion":"`+group+`/v1","metadata":{"resourceVersion":"1"},"items":[]}`)(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-req.Context().Done()
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.first = func(w http.ResponseWriter, req *http.Request) bool {
		switch {
		case f.of(req) == m.on:
			m.do(filled{w, group}, req)
		case req.URL.Path == "/apis/"+group+"/v1":
			// The collector and the quotas watch deletable resources.
			says(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"GROUP/v1","resources":[{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["create","delete","get","list","watch"]}]}`)(filled{w, group}, req)
		default:
			return false
		}
		return true
	}
	return f
}

// filled is a ResponseWriter that inserts the group into the response.
type filled struct {
	http.ResponseWriter
	group string
}

func (f filled) WriteString(s string) (int, error) {
	if len(s) < 1<<16 || strings.HasPrefix(s, "{") {
		s = strings.ReplaceAll(s, "GROUP", f.group)
	}
	return io.WriteString(f.ResponseWriter, s)
}

// Write implements io.Writer.
func (f filled) Write(p []byte) (int, error) { return f.ResponseWriter.Write(p) }

// Flush implements http.Flusher.
func (f filled) Flush() { f.ResponseWriter.(http.Flusher).Flush() }

// Hijack implements http.Hijacker.
func (f filled) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return f.ResponseWriter.(http.Hijacker).Hijack()
}

// resident returns a line of the kernel's memory statistics of a server, in MiB.
func resident(t *testing.T, s *harness.Server, line string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(line + `:\s+(\d+) kB`).FindSubmatch(status)
	if match == nil {
		t.Fatalf("no %s in\n%s", line, status)
	}
	n, err := strconv.Atoi(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n >> 10
}

// S22.23: seventeen hostile servers behind one process at the same time cost it a bounded amount of memory,
// each is reported, and all other requests work.
func TestHostileServersHurtNobody(t *testing.T) {
	speed.Long(t)
	main := harness.Start(t, "--controllers", "*")
	kubectl, admin := main.Kubectl(t, "fakes"), main.HTTP(t, nil)
	kubectl.Must("create", "namespace", "fakes")
	good := newFake(t, "good.example.com", emptyList)
	good.register(t, kubectl)
	available(t, admin, "v1.good.example.com", "True")
	before := resident(t, main, "VmRSS")

	all := misdeeds()
	for i, m := range all {
		newHostile(t, fmt.Sprintf("hostile%d.example.com", i), m).register(t, kubectl)
	}
	// Meanwhile the server handles other requests.
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	slowest, worked := time.Duration(0), 0
	working.Go(func() {
		const configMaps = "/api/v1/namespaces/fakes/configmaps"
		for ; ctx.Err() == nil; worked++ {
			name := fmt.Sprintf("c-%d", worked)
			for _, step := range []struct {
				code               int
				method, path, body string
			}{
				{http.StatusCreated, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":%q}}`, name)},
				{http.StatusOK, "GET", configMaps, ""},
				{http.StatusOK, "GET", "/apis", ""},
				{http.StatusOK, "GET", "/openapi/v3", ""},
				{http.StatusOK, "GET", things("good.example.com"), ""},
				{http.StatusOK, "DELETE", configMaps + "/" + name, ""},
			} {
				began := time.Now()
				code, err := admin.Try(ctx, step.method, step.path, step.body)
				if (err != nil || code != step.code) && ctx.Err() == nil {
					t.Errorf("%s %s: %d, %v", step.method, step.path, code, err)
				}
				if ctx.Err() != nil {
					return
				}
				slowest = max(slowest, time.Since(began))
			}
			harness.Breathe(ctx)
		}
	})
	named := map[string]string{}
	harness.Eventually(t, "each is named", func() error {
		metrics, logged := admin.Metrics(), main.Log()
		for i, m := range all {
			group := fmt.Sprintf("hostile%d.example.com", i)
			if named[m.name] == "" {
				status := admin.Get("/apis/apiregistration.k8s.io/v1/apiservices/v1." + group)
				named[m.name] = whoIsNamed(group, status, metrics, logged)
			}
		}
		var missing []string
		for _, m := range all {
			if named[m.name] == "" {
				missing = append(missing, m.name)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("neither a status nor a metric nor the log names the servers of: %s", strings.Join(missing, "; "))
		}
		return nil
	})
	for _, m := range all {
		t.Logf("%s: %.300s", m.name, named[m.name])
	}
	// The collector and the quotas work, too.
	owner := admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces/fakes/configmaps", `{"metadata":{"name":"owner"}}`)
	admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces/fakes/configmaps", owned("leaf", owner0(t, owner.Raw)))
	admin.Must(http.StatusOK, "DELETE", "/api/v1/namespaces/fakes/configmaps/owner", "")
	harness.Eventually(t, "garbage is collected", func() error {
		if code, err := admin.Try(t.Context(), "GET", "/api/v1/namespaces/fakes/configmaps/leaf", ""); code != http.StatusNotFound {
			return fmt.Errorf("%d, %v", code, err)
		}
		return nil
	})
	stop()
	working.Wait()
	most, now := resident(t, main, "VmHWM"), resident(t, main, "VmRSS")
	t.Logf("%d rounds of work, the slowest request took %s; %d MiB before, %d at most, %d now", worked, slowest, before, most, now)
	if most > before+700 {
		t.Errorf("%d MiB of memory were taken; %d before", most, before)
	}
	if slowest > 20*time.Second {
		t.Errorf("a request that concerns no hostile server took %s", slowest)
	}
	for _, i := range []int{0, 8} {
		admin.Must(http.StatusOK, "DELETE", fmt.Sprintf("/apis/apiregistration.k8s.io/v1/apiservices/v1.hostile%d.example.com", i), "")
	}
}

// whoIsNamed returns the place where an administrator can see the name of a hostile server; empty if there is
// none.
func whoIsNamed(group string, apiService *harness.Response, metrics harness.Metrics, logged string) string {
	if strings.Contains(string(apiService.Raw), `"status":"False"`) {
		return "the status of its APIService: " + string(apiService.Raw[strings.Index(string(apiService.Raw), `"conditions"`):])
	}
	if n := metrics.Value("gatehouse_aggregator_refused_answers_total", `name="v1.`+group+`"`); n > 0 {
		return fmt.Sprintf("%v refused answers in the metric", n)
	}
	for line := range strings.Lines(logged) {
		if strings.Contains(line, group) {
			return "logged: " + line
		}
	}
	return ""
}

// owner0 returns a reference to a ConfigMap.
func owner0(t *testing.T, configMap []byte) owner {
	t.Helper()
	var o struct{ Metadata struct{ Name, UID string } }
	if err := json.Unmarshal(configMap, &o); err != nil {
		t.Fatal(err)
	}
	return owner{"v1", "ConfigMap", o.Metadata.Name, o.Metadata.UID}
}
