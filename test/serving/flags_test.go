package serving

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// Flags of kube-apiserver have the same effect here.
func TestFlagsOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := harness.NewAuthority(t, "of names")
	cert, key := authority.Pair(t, "other.example.com")
	certFile, keyFile := harness.WriteFile(t, filepath.Join(dir, "other.crt"), string(cert)), harness.WriteFile(t, filepath.Join(dir, "other.key"), string(key))
	s := harness.StartOn(t, filepath.Join(dir, "data"),
		"--tls-min-version", "VersionTLS13", "--tls-sni-cert-key", certFile+","+keyFile+":other.example.com",
		"--strict-transport-security-directives", "max-age=100", "--cors-allowed-origins", `^https://example\.com$`,
		"--goaway-chance", "0.02", "--request-timeout", "5s", "--min-request-timeout", "1", "--anonymous-auth=false",
		"--service-account-max-token-expiration", "1h", "--service-account-extend-token-expiration=false",
		"--storage-media-type", "application/json", "--event-ttl", "2s", "--service-node-port-range", "31000-31001",
		"--apiserver-count", "3", "--etcd-quorum-read", "--min-compatibility-version", "1.37", "--etcd-compaction-interval", "500ms",
		"--shutdown-delay-duration", "2s")
	for name, test := range map[string]func(*testing.T){
		"--tls-min-version": func(t *testing.T) {
			conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
			if err == nil {
				conn.Close()
				t.Error("TLS 1.2 is accepted")
			}
		},
		"--tls-sni-cert-key": func(t *testing.T) {
			conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), &tls.Config{RootCAs: authority.Pool(), ServerName: "other.example.com"})
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		},
		"--strict-transport-security-directives, --cors-allowed-origins": func(t *testing.T) {
			r := s.HTTP(t, nil).Get("/version", "Origin", "https://example.com")
			if r.Header.Get("Strict-Transport-Security") != "max-age=100" || r.Header.Get("Access-Control-Allow-Origin") != "https://example.com" {
				t.Errorf("headers: %v", r.Header)
			}
			if r := s.HTTP(t, nil).Get("/version", "Origin", "https://example.org"); r.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("another origin: %v", r.Header)
			}
		},
		"--goaway-chance": func(t *testing.T) {
			client, err := rest.HTTPClientFor(s.Admin)
			if err != nil {
				t.Fatal(err)
			}
			var opened atomic.Int64
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
				if !i.Reused {
					opened.Add(1)
				}
			}})
			for range 10_000 {
				req, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/version", nil)
				if err != nil {
					t.Fatal(err)
				}
				if r, err := client.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					r.Body.Close()
				}
				if opened.Load() > 1 {
					return
				}
			}
			t.Error("10,000 requests came on one connection")
		},
		"--request-timeout": func(t *testing.T) {
			hooks := harness.NewWebhookServer(t, nil)
			harness.RegisterAs(t, s, "v1", "ValidatingWebhookConfiguration", "slow", harness.Webhook("slow", "default", hooks.Hook("/", harness.Hang), "timeoutSeconds: 30"))
			r := s.HTTP(t, nil).Do("POST", harness.ConfigMaps("default"), harness.ConfigMap("late"))
			if r.Code != http.StatusGatewayTimeout && r.Code != http.StatusInternalServerError {
				t.Errorf("%d %s", r.Code, r.Raw)
			}
		},
		"--min-request-timeout": func(t *testing.T) {
			w := s.HTTP(t, nil).Watch("/api/v1/namespaces?watch=1&resourceVersion=0")
			for {
				if _, err := w.Read(); errors.Is(err, io.EOF) {
					return
				} else if err != nil {
					t.Fatal(err)
				}
			}
		},
		"--service-account-*-token-expiration": func(t *testing.T) {
			for asked, most := range map[int64]int64{7200: 3600, 3607: 3600} {
				if got := lifetime(t, s, asked); got > most {
					t.Errorf("a token that was asked for %d s is valid for %d s", asked, got)
				}
			}
		},
		"--storage-media-type": func(t *testing.T) {
			s.HTTP(t, nil).Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"as-json"}}`)
			found := false
			_ = filepath.Walk(filepath.Join(s.DataDir, "etcd"), func(path string, info os.FileInfo, err error) error {
				if err == nil && info.Mode().IsRegular() {
					data, _ := os.ReadFile(path)
					found = found || strings.Contains(string(data), `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"as-json"`)
				}
				return nil
			})
			if !found {
				t.Error("no namespace is stored as JSON")
			}
		},
		"--event-ttl": func(t *testing.T) {
			const events = "/api/v1/namespaces/default/events"
			s.HTTP(t, nil).Must(http.StatusCreated, "POST", events, `{"metadata":{"name":"short"},"involvedObject":{"namespace":"default"}}`)
			harness.Eventually(t, "the event is gone", func() error {
				if r := s.HTTP(t, nil).Do("GET", events+"/short", ""); r.Code != http.StatusNotFound {
					return fmt.Errorf("%d", r.Code)
				}
				return nil
			})
		},
		"--service-node-port-range": func(t *testing.T) {
			r := s.HTTP(t, nil).Do("POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"n"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
			if port, _ := r.At("spec", "ports", "0", "nodePort").(float64); r.Code != http.StatusCreated || port != 31000 && port != 31001 {
				t.Errorf("%d %s", r.Code, r.Raw)
			}
		},
		"--etcd-compaction-interval": func(t *testing.T) {
			h := s.HTTP(t, nil)
			old := h.Get(harness.ConfigMaps("default")).Text("metadata", "resourceVersion")
			h.Must(http.StatusCreated, "POST", harness.ConfigMaps("default"), harness.ConfigMap("compacted"))
			harness.Eventually(t, "the old version is gone", func() error {
				if r := h.Do("GET", "/api/v1/namespaces/default/events?resourceVersionMatch=Exact&resourceVersion="+old, ""); r.Code != http.StatusGone {
					return fmt.Errorf("%d", r.Code)
				}
				return nil
			})
		},
		"S26.5, S26.7 --min-compatibility-version": func(t *testing.T) { theReleaseItself(t, s) },
	} {
		t.Run(name, test)
	}
	anonymous := func(s *harness.Server, path string) int {
		return s.HTTP(t, rest.AnonymousClientConfig(s.Admin)).Do("GET", path, "").Code
	}
	type row struct {
		s            *harness.Server
		version, api int
	}
	usual := harness.Shared(t)
	rows := map[string]row{
		"--anonymous-auth=false": {s, http.StatusUnauthorized, http.StatusUnauthorized},
		"without the flag":       {usual, http.StatusOK, http.StatusUnauthorized},
	}
	if speed.IsLong() {
		rows["--anonymous-auth"] = row{harness.Start(t, "--anonymous-auth"), http.StatusOK, http.StatusForbidden}
	}
	for name, c := range rows {
		if version, api := anonymous(c.s, "/version"), anonymous(c.s, "/api/v1/secrets"); version != c.version || api != c.api {
			t.Errorf("%s: %d and %d", name, version, api)
		}
	}
	if got := lifetime(t, usual, 3607); got < 300*24*3600 {
		t.Errorf("without flags, the token of a pod is valid for %d s", got)
	}
	if log := s.Log(); !strings.Contains(log, "--apiserver-count has no effect") || !strings.Contains(log, "--etcd-quorum-read has no effect") {
		t.Errorf("no warnings: %s", log)
	}
	t.Run("--shutdown-delay-duration", func(t *testing.T) { endsAfterADelay(t, s, 2*time.Second) })
}

// endsAfterADelay ends the server, which serves requests during its shutdown delay and is not ready.
func endsAfterADelay(t *testing.T, s *harness.Server, delay time.Duration) {
	h := s.HTTP(t, nil)
	h.Get("/readyz")
	asked := time.Now()
	if err := syscall.Kill(s.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the server is not ready", func() error {
		if code := h.Do("GET", "/readyz/ending", "").Code; code != http.StatusInternalServerError {
			return fmt.Errorf("%d", code)
		}
		return nil
	})
	h.Get("/livez")
	h.Must(http.StatusCreated, "POST", harness.ConfigMaps("default"), harness.ConfigMap("still"))
	if code, log := s.AwaitEnd(t); code != 0 || time.Since(asked) < delay {
		t.Errorf("ended with %d after %s: %s", code, time.Since(asked), log)
	}
}

// lifetime requests a pod's token for a number of seconds, and returns the seconds that it is valid for.
func lifetime(t *testing.T, s *harness.Server, seconds int64) int64 {
	t.Helper()
	pods := "/api/v1/namespaces/default/pods"
	name := fmt.Sprintf("for-%d", seconds)
	var token, uid string
	// The service account of the namespace is created shortly.
	harness.Eventually(t, "there is a pod", func() error {
		if r := s.HTTP(t, nil).Do("POST", pods, harness.Pod(name)); r.Code != http.StatusCreated && r.Code != http.StatusConflict {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		uid = s.HTTP(t, nil).Get(pods+"/"+name).Text("metadata", "uid")
		return nil
	})
	harness.Eventually(t, "there is a token", func() error {
		r := s.HTTP(t, nil).Do("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", fmt.Sprintf(`{"spec":{"expirationSeconds":%d,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":%q,"uid":%q}}}`, seconds, name, uid))
		if r.Code != http.StatusCreated {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		token = r.Text("status", "token")
		return nil
	})
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no token", token)
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct{ Iat, Exp int64 }
	if err := json.Unmarshal(data, &claims); err != nil {
		t.Fatal(err)
	}
	return claims.Exp - claims.Iat
}
