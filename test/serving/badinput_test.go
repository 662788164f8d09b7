package serving

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// TestBadInput sends invalid requests and checks that the client gets an error, that nothing is stored, and
// that the server is unaffected.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	path := "/api/v1/namespaces/" + ns + "/configmaps"
	h.Must(http.StatusCreated, "POST", path, configMap("there"))
	before := goroutines(t, h)

	deep := func(open, close string, n int) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"data":` + strings.Repeat(open, n) + strings.Repeat(close, n) + `}`
	}
	deepInitializers := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep","initializers":` + strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat("}", 100_000) + `}}`
	aliases := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'i'; c++ {
		aliases += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	// S27.9: with expanded aliases, this would be 500 GB.
	long := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: boom}\na: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 500_000) + "*a]\n"
	for _, c := range speed.Some(t, 10, []struct {
		name, method, path string
		body               io.Reader
		headers            []string
		codes              []int
	}{
		{"100 MB", "POST", path, repeated(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{"k":"`, "x", 100<<20), nil, []int{413}},
		{"100 MB of a patch", "PATCH", path + "/there", repeated(`{"data":{"k":"`, "x", 100<<20), []string{"Content-Type", strategicPatch}, []int{413}},
		{"100 MB of an apply", "PATCH", path + "/there?fieldManager=x", repeated(`{"data":{"k":"`, "x", 100<<20), []string{"Content-Type", applyPatch}, []int{413}},
		{"2 MB that etcd does not take", "POST", path, repeated(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{"k":"`, "x", 2<<20), nil, []int{400, 413, 422}},
		{"100,000 levels of objects", "POST", path, strings.NewReader(deep(`{"a":`, "}", 100_000)), nil, []int{400}},
		{"100,000 levels of lists", "POST", path, strings.NewReader(deep("[", "]", 100_000)), nil, []int{400}},
		{"100,000 levels of initializers", "POST", path, strings.NewReader(deepInitializers), nil, []int{400}},
		{"100,000 levels in YAML", "POST", path, strings.NewReader("apiVersion: v1\nkind: ConfigMap\ndata: " + strings.Repeat("[", 100_000)), []string{"Content-Type", "application/yaml"}, []int{400}},
		{"100,000 levels of a merge patch", "PATCH", path + "/there", strings.NewReader(`{"data":` + strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat("}", 100_001)), []string{"Content-Type", mergePatch}, []int{400, 422}},
		{"100,000 levels of a strategic patch", "PATCH", path + "/there", strings.NewReader(`{"data":` + strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat("}", 100_001)), []string{"Content-Type", strategicPatch}, []int{400, 422}},
		{"100,000 levels of a strategic patch of initializers", "PATCH", path + "/there", strings.NewReader(`{"metadata":{"initializers":` + strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat("}", 100_002)), []string{"Content-Type", strategicPatch}, []int{400, 422}},
		{"100,000 levels of an apply", "PATCH", path + "/there?fieldManager=x", strings.NewReader(`{"data":` + strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat("}", 100_001)), []string{"Content-Type", applyPatch}, []int{400, 422}},
		{"a JSON patch with a deep path", "PATCH", path + "/there", strings.NewReader(`[{"op":"add","path":"` + strings.Repeat("/a", 100_000) + `","value":1}]`), []string{"Content-Type", jsonPatch}, []int{400, 422}},
		{"a JSON patch that copies without end", "PATCH", path + "/there", strings.NewReader(`[{"op":"add","path":"/data/x","value":"` + strings.Repeat("y", 100_000) + `"}` + strings.Repeat(`,{"op":"copy","from":"/data","path":"/data/z"}`, 40) + `]`), []string{"Content-Type", jsonPatch}, []int{400, 413, 422}},
		{"YAML aliases that explode", "POST", path, strings.NewReader("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: boom}\n" + aliases), []string{"Content-Type", "application/yaml"}, []int{400, 413}},
		{"YAML aliases that explode, applied", "PATCH", path + "/boom?fieldManager=x", strings.NewReader("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: boom}\n" + aliases), []string{"Content-Type", applyPatch}, []int{400, 413}},
		{"YAML aliases of a long text", "POST", path, strings.NewReader(long), []string{"Content-Type", "application/yaml"}, []int{413}},
		{"YAML aliases of a long text, applied", "PATCH", path + "/boom?fieldManager=x", strings.NewReader(long), []string{"Content-Type", applyPatch}, []int{413}},
		{"bytes that are not UTF-8", "POST", path, strings.NewReader("{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"utf\"},\"da\xff\xfeta\":{\"k\":\"\xff\"}}"), []string{"Content-Type", "application/yaml"}, []int{400}},
		{"a name that is not UTF-8", "POST", path, strings.NewReader("{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"u\xff\"}}"), nil, []int{400, 422}},
		{"a null byte in a name", "POST", path, strings.NewReader(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a\u0000b"}}`), nil, []int{422}},
		{"dots as a name", "GET", path + "/..%2f..%2fsecrets", nil, nil, []int{400, 404}},
		{"two dots as a name", "PUT", path + "/%2e%2e", strings.NewReader(configMap("..")), nil, []int{400, 404, 405, 422}},
		{"a number that is too large", "POST", "/api/v1/namespaces/" + ns + "/services", strings.NewReader(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"n"},"spec":{"ports":[{"port":1e400}]}}`), nil, []int{400}},
		{"a header of 2 MB", "GET", path, nil, []string{"X-Big", strings.Repeat("x", 2<<20)}, []int{431, 0}},
		{"a long path", "GET", path + "/" + strings.Repeat("a", 500_000), nil, nil, []int{400, 404, 414, 431}},
		{"a long selector", "GET", path + "?labelSelector=" + strings.Repeat("a%3Db%2C", 20_000) + "a%3Db", nil, nil, []int{200, 400}},
		{"a deep continue token", "GET", path + "?limit=1&continue=" + strings.Repeat("e30", 10_000), nil, nil, []int{400}},
		{"a field manager that is too long", "POST", path + "?fieldManager=" + strings.Repeat("m", 1000), strings.NewReader(configMap("managed")), nil, []int{422}},
		{"parameters that make no sense", "GET", path + "?limit=-1", nil, nil, []int{200, 400, 422}},
		{"a percent sign", "GET", path + "?labelSelector=%25zz", nil, nil, []int{400}},
	}) {
		t.Run(c.name, func(t *testing.T) {
			body := c.body
			if body == nil {
				body = http.NoBody
			}
			h := s.HTTP(t, nil)
			code, err := h.TrySend(harness.Context(t), c.method, c.path, body, c.headers...)
			for _, want := range c.codes {
				// A server may close the connection of a request that is too large.
				if code == want && (err == nil || want == 0 || want == 413) {
					return
				}
			}
			if err != nil && c.codes[0] == 413 {
				t.Skipf("the connection ended before the answer: %v", err)
			}
			t.Errorf("%d, %v; want one of %v", code, err, c.codes)
		})
	}

	t.Run("requests that end in the middle", func(t *testing.T) {
		for range halves {
			cut(t, s, h, path)
		}
	})
	want(t, "stored", names(h.Get(path)), []string{"there"})
	want(t, "data of what was there", h.Get(path+"/there").At("data"), any(map[string]any{"key": "value"}))
	// A ready server is still starting controllers, with some hundred goroutines in total. A goroutine leaked
	// by each request would add many more.
	harness.Eventually(t, "the requests leave no goroutines behind", func() error {
		if now := goroutines(t, h); now > before+halves/2 {
			return fmt.Errorf("%d, and before %d requests there were %d", now, halves, before)
		}
		return nil
	})
}

// halves is the number of requests that end in the middle: large enough that their leaked goroutines would
// outnumber the goroutines of starting controllers.
const halves = 500

// cut sends the head of a request with a body and closes the connection in the middle of the body.
func cut(t *testing.T, s *harness.Server, h *harness.HTTP, path string) {
	t.Helper()
	conn, err := h.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"kind\":", path)
}

// goroutines counts the goroutines of the server outside its storage: the first read of a kind opens streams
// to etcd, which stay open.
func goroutines(t *testing.T, h *harness.HTTP) int {
	t.Helper()
	count := 0
	for line := range strings.Lines(string(h.Get("/debug/pprof/goroutine?debug=2").Raw)) {
		creator, ok := strings.CutPrefix(line, "created by ")
		if ok && !slices.ContainsFunc(storage, func(prefix string) bool { return strings.HasPrefix(creator, prefix) }) {
			count++
		}
	}
	if count == 0 {
		t.Fatal("no goroutines")
	}
	return count
}

// storage lists the prefixes of the names of storage functions.
var storage = []string{"go.etcd.io/", "google.golang.org/grpc", "k8s.io/apiserver/pkg/storage/", "context."}

// repeated returns a JSON object that ends in a string of n characters.
func repeated(head, text string, n int64) io.Reader {
	return io.MultiReader(strings.NewReader(head), io.LimitReader(endless(text[0]), n), strings.NewReader(`"}}`))
}

type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

// TestRawConnections sends plain TCP to a TLS port.
func TestRawConnections(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff", strings.Repeat("x", 1<<16)} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, text)
		conn.Close()
	}
	s.HTTP(t, nil).Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", "/api/v1/namespaces/no-such-namespace", "")
}
