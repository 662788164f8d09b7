package aggregation

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

var things = schema.GroupVersionResource{Group: "hostile.example.com", Version: "v1", Resource: "things"}

// reader returns a client of objects' metadata and a Proxy. The responses come from a server that
// is remote to the Aggregator.
func reader(t *testing.T, answer http.HandlerFunc) (metadata.Interface, *Proxy) {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	p := newProxy(Options{}, things.GroupVersion())
	p.target.Store(&target{name: "v1.hostile.example.com", namespace: "fakes", service: "hostile", port: 443})
	a := &Aggregator{}
	a.remote.Store(&map[schema.GroupVersion]*Proxy{things.GroupVersion(): p})
	reads := &Reads{}
	reads.Follow(a)
	config := &restclient.Config{Host: s.URL}
	config.Wrap(reads.Wrap)
	client, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client, p
}

// endless repeats texts until the reader has closed the connection.
func endless(w io.Writer, texts ...func(i int) string) {
	for i := 0; ; i++ {
		for _, text := range texts {
			if _, err := io.WriteString(w, text(i)); err != nil {
				return
			}
		}
	}
}

func always(text string) func(int) string { return func(int) string { return text } }

var filler = always(strings.Repeat("x", 1<<16))

// S22.23: an answer of a remote server to this server costs a bounded amount of memory and
// time, and the error names the remote server.
func TestWhatIsReadOfARemoteServerIsBounded(t *testing.T) {
	const head = `{"kind":"ThingList","apiVersion":"hostile.example.com/v1","metadata":{"resourceVersion":"1"},"items":[`
	object := func(i int) string {
		return fmt.Sprintf(`{"metadata":{"name":"a-%d","namespace":"n","uid":"00000000-0000-0000-0000-%012d"}}`, i, i)
	}
	list := func(t *testing.T, c metadata.Interface) error {
		_, err := c.Resource(things).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		return err
	}
	watch := func(t *testing.T, c metadata.Interface) error {
		w, err := c.Resource(things).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
		if err != nil {
			return err
		}
		defer w.Stop()
		for e := range w.ResultChan() {
			if status, failed := e.Object.(*metav1.Status); failed {
				return fmt.Errorf("v1.hostile.example.com: %s", status.Message)
			}
		}
		return fmt.Errorf("v1.hostile.example.com: the watch ended")
	}
	get := func(t *testing.T, c metadata.Interface) error {
		_, err := c.Resource(things).Namespace("n").Get(t.Context(), "a", metav1.GetOptions{})
		return err
	}
	cases := []struct {
		name   string
		answer http.HandlerFunc
		read   func(*testing.T, metadata.Interface) error
	}{
		{"a list that never ends", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, head+object(0))
			endless(w, func(i int) string { return "," + object(i) })
		}, list},
		{"a list of empty objects", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, head+"{}")
			endless(w, always(strings.Repeat(",{}", 1000)))
		}, list},
		{"an object that never ends", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, head+`{"metadata":{"name":"`)
			endless(w, filler)
		}, list},
		{"a field of the list that never ends", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"kind":"`)
			endless(w, filler)
		}, list},
		{"pages that never end", func(w http.ResponseWriter, req *http.Request) {
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1","continue":"again"},"items":[%s`, object(0))
			io.WriteString(w, strings.Repeat(","+object(1), 20000)+"]}")
		}, list},
		{"empty pages that never end", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"metadata":{"resourceVersion":"1","continue":"again"},"items":[]}`)
		}, list},
		{"an object with very many owners", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, head+`{"metadata":{"name":"a","ownerReferences":[{}`+strings.Repeat(",{}", 500_000)+`]}}]}`)
		}, list},
		{"objects without what is kept of them", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, head+"{}")
			endless(w, always(`,{"metadata":{"labels":{"a":"`+strings.Repeat("x", 1<<20)+`"}}}`))
		}, list},
		{"deep nesting", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, head)
			endless(w, always(strings.Repeat("[", 1<<16)))
		}, list},
		{"an error that never ends", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, "v1.hostile.example.com")
			endless(w, filler)
		}, list},
		{"an event that never ends", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"type":"ADDED","object":{"metadata":{"name":"`)
			endless(w, filler)
		}, watch},
		{"events of very large objects", func(w http.ResponseWriter, _ *http.Request) {
			endless(w, func(i int) string {
				return fmt.Sprintf(`{"type":"ADDED","object":{"metadata":{"name":"%d","uid":"%s"}}}`+"\n", i, strings.Repeat("u", 1<<20))
			})
		}, watch},
		{"one object that never ends", func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"metadata":{"name":"`)
			endless(w, filler)
		}, get},
	}
	for _, c := range speed.Some(t, 5, cases) {
		t.Run(c.name, func(t *testing.T) {
			client, _ := reader(t, func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				c.answer(w, req)
			})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			began := time.Now()
			err := c.read(t, client)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatal("the answer was accepted")
			}
			if !strings.HasPrefix(c.name, "an error") && !strings.Contains(err.Error(), "v1.hostile.example.com") {
				t.Errorf("the error does not name the server: %.300v", err)
			}
			if taken := int64(after.HeapSys) - int64(before.HeapSys); taken > 400<<20 {
				t.Errorf("%d MB of memory were taken", taken>>20)
			}
			if took := time.Since(began); took > 2*longestRead {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// S22.23: this server reads all pages of a list, and the watch after it.
func TestAnHonestServerIsReadToTheEnd(t *testing.T) {
	client, p := reader(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		query := req.URL.Query()
		switch {
		case query.Get("watch") != "":
			io.WriteString(w, `{"type":"ADDED","object":{"metadata":{"name":"c","resourceVersion":"8"}}}`+"\n"+
				`{"type":"DELETED","object":{"metadata":{"name":"c","resourceVersion":"9"}}}`+"\n"+
				`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"10"}}}`+"\n")
		case query.Get("continue") == "":
			io.WriteString(w, `{"metadata":{"resourceVersion":"7","continue":"b"},"items":[{"metadata":{"name":"a","uid":"1","finalizers":["f"],"ownerReferences":[{"kind":"K","name":"o","uid":"2"}]},"spec":{"x":1}}]}`)
		default:
			io.WriteString(w, `{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"b"}}]}`)
		}
	})
	list, err := client.Resource(things).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2 || list.ResourceVersion != "7" || list.Continue != "" || list.Items[0].Name != "a" || list.Items[1].Name != "b" ||
		list.Items[0].Finalizers[0] != "f" || list.Items[0].OwnerReferences[0].UID != "2" {
		t.Errorf("list: %+v", list)
	}
	w, err := client.Resource(things).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "7"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	got := ""
	for e := range w.ResultChan() {
		o := e.Object.(*metav1.PartialObjectMetadata)
		got += fmt.Sprintf("%s %s %s;", e.Type, o.Name, o.ResourceVersion)
	}
	if want := "ADDED c 8;DELETED c 9;BOOKMARK  10;"; got != want {
		t.Errorf("watch: %q, want %q", got, want)
	}
	if f := p.mu.followed["/apis/hostile.example.com/v1/things"]; f.objects != 2 {
		t.Errorf("followed: %+v", p.mu.followed)
	}
}

// S22.23: discovery and OpenAPI documents are bounded, too.
func TestDocumentsOfARemoteServerAreBounded(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/honest":
			io.WriteString(w, "{}")
		case "/values":
			endless(w, always("{},"))
		default:
			endless(w, filler)
		}
	}))
	defer func() {
		s.CloseClientConnections()
		s.Close()
	}()
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(Options{Self: at.Host}, things.GroupVersion())
	p.target.Store(&target{
		name: "v1.hostile.example.com", namespace: "default", service: "kubernetes", port: 443,
		transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	})
	for path, code := range map[string]int{
		"/honest": http.StatusOK, "/apis": http.StatusServiceUnavailable, "/values": http.StatusServiceUnavailable,
		"/openapi/v2": http.StatusServiceUnavailable, "/openapi/v3": http.StatusServiceUnavailable,
	} {
		w := httptest.NewRecorder()
		req := httptest.NewRequest("GET", path, nil).WithContext(asAggregator(context.Background()))
		p.always().ServeHTTP(w, req)
		if w.Code != code || code != http.StatusOK && !strings.Contains(w.Body.String(), "v1.hostile.example.com") {
			t.Errorf("%s: %d %.200s", path, w.Code, w.Body)
		}
	}
}

func asAggregator(ctx context.Context) context.Context {
	return request.WithUser(ctx, &user.DefaultInfo{Name: "system:kube-aggregator"})
}
