package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/test/boundstest"
)

// userToken is the token of a user with all rights.
const userToken = "token-of-a-user-of-the-cluster"

// clustered returns an Agent of a cluster with one user.
func clustered(t *testing.T) *Agent {
	t.Helper()
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		code, out := http.StatusCreated, any(nil)
		switch {
		case strings.HasSuffix(req.URL.Path, "/tokenreviews"):
			var review authenticationv1.TokenReview
			if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			if review.Spec.Token == userToken {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "anna"}}
			}
			out = review
		case strings.HasSuffix(req.URL.Path, "/subjectaccessreviews"):
			var review authorizationv1.SubjectAccessReview
			if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			review.Status.Allowed = review.Spec.User == "anna"
			out = review
		default:
			code = http.StatusNotFound
			out = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: 404}
		}
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(out)
	}))
	t.Cleanup(cluster.Close)
	dir := t.TempDir()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: cluster.URL}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	o := Options{Kubeconfig: filepath.Join(dir, "kubeconfig"), Credentials: credentials(t), BindAddress: "127.0.0.1", TraceBytes: 1 << 20}
	if err := clientcmd.WriteToFile(*config, o.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.listener.Close() })
	return a
}

// S32.18: every endpoint of the agent, including the endpoints of k8s.io/apiserver, bounds the body and the time.
func TestEveryEndpointIsBounded(t *testing.T) {
	a := clustered(t)
	a.server.PrepareRun()
	paths := append(boundstest.Endpoints(a.server.Handler), Path, "/no/such/endpoint", "/apis/gatehouse.dev/v1alpha1/admissiontraces")
	for _, known := range []string{"/apis/", "/healthz", "/livez", "/metrics", "/openapi/v2", "/readyz"} {
		if !slices.Contains(paths, known) {
			t.Errorf("%s is not among the endpoints that were found: %v", known, paths)
		}
	}
	boundstest.Check(t, a.server.Handler, paths, []string{string(a.token), userToken}, func(req *http.Request) (time.Duration, int64) {
		l := limit(req)
		if l.Time > watchTime || l.Body > maxBody {
			t.Errorf("%s has %+v", req.URL.Path, l)
		}
		return l.Time, l.Body
	})
}

// S32.18: a watch has more time, and no body.
func TestTheLimitOfAWatch(t *testing.T) {
	const traces = "/apis/gatehouse.dev/v1alpha1/admissiontraces"
	for _, c := range []struct {
		method, target, body string
		want                 time.Duration
	}{
		{http.MethodGet, traces + "?watch=true", "", watchTime},
		{http.MethodGet, traces + "?watch=true", "x", 2 * time.Minute},
		{http.MethodPost, traces + "?watch=true", "", 2 * time.Minute},
		{http.MethodGet, "/healthz?watch=true", "", 2 * time.Minute},
		{http.MethodGet, traces, "", 2 * time.Minute},
		{http.MethodPost, Path + "?watch=true", "x", readTimeout},
	} {
		if got := limit(httptest.NewRequest(c.method, c.target, strings.NewReader(c.body))).Time; got != c.want {
			t.Errorf("%s %s with the body %q: %s, want %s", c.method, c.target, c.body, got, c.want)
		}
	}
}

// S32.18: connections without credentials, from one address or from 50, lock out neither the API server nor probes.
func TestConnectionsOfStrangers(t *testing.T) {
	a := clustered(t)
	ctx, stop := context.WithCancel(t.Context())
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() { ended <- a.Run(ctx, func() { close(ready) }) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	pem, err := os.ReadFile(filepath.Join(a.options.Credentials, selfsigned.AuthorityFile))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	address := a.listener.Addr().String()
	dialer := func(from string) *net.Dialer {
		return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
	}
	ask := func(from, method, path, token, body string) error {
		client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: dialer(from).DialContext, TLSClientConfig: config, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(ctx, method, "https://"+address+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", resp.Status)
		}
		return nil
	}
	post := func() error {
		return ask("127.0.0.1", http.MethodPost, Path, string(a.token), eventList(event("a")))
	}
	if err := post(); err != nil {
		t.Fatal(err)
	}
	for _, addresses := range []int{1, 50} {
		t.Run(fmt.Sprintf("from %d", addresses), func(t *testing.T) {
			var attack []net.Conn
			defer func() {
				for _, conn := range attack {
					conn.Close()
				}
			}()
			for i := range 1040 {
				conn, err := dialer(fmt.Sprintf("127.0.7.%d", i%addresses+1)).DialContext(ctx, "tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				attack = append(attack, conn)
				if i%10 == 0 {
					secure := tls.Client(conn, config)
					_, _ = fmt.Fprintf(secure, "POST %s HTTP/1.1\r\nHost: agent\r\nContent-Length: 100000\r\n\r\n[", Path)
				} else {
					_, _ = io.WriteString(conn, "\x16")
				}
			}
			for i := range 3 {
				if err := post(); err != nil {
					t.Errorf("audit events, time %d: %v", i, err)
				}
				if err := ask(fmt.Sprintf("127.0.0.%d", 2+i), http.MethodGet, "/livez", "", ""); err != nil {
					t.Errorf("a probe, time %d: %v", i, err)
				}
				if err := ask("127.0.0.1", http.MethodGet, "/apis/gatehouse.dev/v1alpha1/admissiontraces", userToken, ""); err != nil {
					t.Errorf("a user, time %d: %v", i, err)
				}
			}
		})
	}
}
