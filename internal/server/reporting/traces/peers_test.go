package traces

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/traces/v1alpha1"
)

func TestOtherServersAreAskedForATrace(t *testing.T) {
	has := func(namespace string) string {
		return `{"items":[{"metadata":{"name":"abc","namespace":"` + namespace + `","resourceVersion":"7"},"outcome":"Denied"}]}`
	}
	const none = `{"items":[]}`
	for name, tc := range map[string]struct {
		// answers are the responses of the other servers; "!401" is a status, "away" a server that
		// is gone.
		answers   []string
		namespace string
		found     bool
		message   string
	}{
		"the second has it":           {answers: []string{none, has("shop")}, found: true},
		"one is away, another has it": {answers: []string{"away", has("shop")}, found: true},
		"in the namespace":            {answers: []string{has("shop")}, namespace: "shop", found: true},
		"in another namespace":        {answers: []string{has("shop")}, namespace: "bank", message: `"abc" not found`},
		"no server has it":            {answers: []string{none, none}, message: `"abc" not found`},
		"no other server":             {message: `"abc" not found`},
		"one is away":                 {answers: []string{none, "away"}, message: `"abc" not found: the server at https://`},
		"one does not know this one":  {answers: []string{"!401"}, message: "could not be asked"},
		"one is another program":      {answers: []string{"<html>"}, message: "could not be asked"},
		"one never ends":              {answers: []string{"endless"}, message: "could not be asked"},
		"one sends something else":    {answers: []string{strings.Replace(has("shop"), "abc", "abd", 1)}, message: `"abc" not found`},
		"one leads elsewhere":         {answers: []string{"!302"}, message: "could not be asked"},
		"an address is none":          {answers: []string{"address"}, message: "could not be asked"},
		"the addresses are not known": {answers: []string{"unknown"}, message: "the other servers are not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var addresses []string
			var addressesErr error
			transport := http.DefaultTransport.(*http.Transport).Clone()
			transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
			defer transport.CloseIdleConnections()
			for _, answer := range tc.answers {
				switch answer {
				case "address":
					addresses = append(addresses, "http://127.0.0.1:1/\x1b[2J")
					continue
				case "unknown":
					addressesErr = errors.New("etcd is away")
					continue
				}
				server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					want := "/apis/gatehouse.dev/v1alpha1/admissiontraces"
					if tc.namespace != "" {
						want = "/apis/gatehouse.dev/v1alpha1/namespaces/" + tc.namespace + "/admissiontraces"
					}
					if r.URL.Path != want || r.URL.Query().Get("fieldSelector") != "metadata.name=abc" {
						t.Errorf("asked for %s", r.URL)
					}
					if u, g := r.Header.Get("X-Remote-User"), r.Header.Values("X-Remote-Group"); u != "anna" || len(g) != 1 || g[0] != "dev" {
						t.Errorf("asked as %q of %q", u, g)
					}
					switch {
					case answer == "endless":
						for piece := make([]byte, 1<<20); r.Context().Err() == nil; {
							if _, err := w.Write(piece); err != nil {
								return
							}
						}
					case answer == "!302":
						http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
					case answer == "!401":
						w.WriteHeader(http.StatusUnauthorized)
					default:
						w.Write([]byte(answer))
					}
				}))
				defer server.Close()
				addresses = append(addresses, server.URL)
				if answer == "away" {
					server.Close()
				}
			}
			peers := &Peers{Addresses: func(context.Context) ([]string, error) { return addresses, addressesErr }, Transport: transport}
			ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "anna", Groups: []string{"dev"}})
			if tc.namespace != "" {
				ctx = request.WithNamespace(ctx, tc.namespace)
			}
			obj, err := NewStorage(NewRing(1<<20), peers, trace.RecordOptions{}).Get(ctx, "abc", &metav1.GetOptions{})
			if !tc.found {
				if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), tc.message) || tc.message == `"abc" not found` && !strings.HasSuffix(err.Error(), tc.message) {
					t.Errorf("%v, %v", obj, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := obj.(*v1alpha1.AdmissionTrace)
			if got.Name != "abc" || got.Namespace != "shop" || got.Outcome != "Denied" || got.ResourceVersion != "" {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestAServerThatHangsIsNotWaitedForLong(t *testing.T) {
	ended := make(chan struct{})
	hangs := roundTripper(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		close(ended)
		return nil, r.Context().Err()
	})
	peers := &Peers{Transport: hangs, Addresses: func(context.Context) ([]string, error) { return []string{"https://192.0.2.1"}, nil }}
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "anna"})
	ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if found, note := peers.find(ctx, "abc"); found != nil || !strings.Contains(note, "192.0.2.1 could not be asked") {
		t.Errorf("%v, %q", found, note)
	}
	<-ended
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// S22.28: a panic while another server is asked ends neither this server nor the request.
func TestAPanicWhileAnotherServerIsAsked(t *testing.T) {
	broken := roundTripper(func(*http.Request) (*http.Response, error) { panic("broken") })
	peers := &Peers{Transport: broken, Addresses: func(context.Context) ([]string, error) { return []string{"https://192.0.2.1"}, nil }}
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: "u"})
	if found, note := peers.find(ctx, "abc"); found != nil || !strings.Contains(note, "192.0.2.1 could not be asked") {
		t.Errorf("%v, %q", found, note)
	}
}
