package serving

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// A burst of simultaneous requests does not prevent responses: administrators wait for their turn, users
// beyond the limit get 429, and watches do not count. The server keeps no goroutines of the burst.
func TestManyRequestsInOneInstant(t *testing.T) {
	crowd := speed.Of(150, 1000)
	// On a slow machine, reads of registrations may be delayed during the burst.
	s := harness.Start(t, "--admission-consistency", "strict", "--admission-max-staleness", "1m", "--authorization-mode", "AlwaysAllow")
	h := s.HTTP(t, nil)
	ns, judged := s.Namespace(t), s.Namespace(t)
	hook := harness.NewWebhookServer(t, nil).Hook("/", harness.Allow)
	h.Must(http.StatusCreated, "POST", registrationsPath("v1", validating), configuration(validating, "all", map[string]any{
		"name": "all.example.com", "clientConfig": hook.ClientConfig(), "rules": []any{rule("CREATE", "/v1/configmaps")},
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": judged}},
		"sideEffects":       "None", "timeoutSeconds": 30, "admissionReviewVersions": []any{"v1"},
	}))
	// handled counts the goroutines that handle requests; internal watches have some, too.
	handled := func() int {
		return strings.Count(string(h.Get("/debug/pprof/goroutine?debug=2").Raw), "resources.(*Handler).ServeHTTP(")
	}
	before := handled()
	alice := s.HTTP(t, s.As("alice"))
	for _, c := range []struct {
		name         string
		client       *harness.HTTP
		method, path string
		// want is the code of at least one response, may the permitted code of the others.
		want, may int
	}{
		{"administrators", h, "POST", configMaps(ns), http.StatusCreated, http.StatusCreated},
		{"users", alice, "POST", configMaps(ns), http.StatusCreated, http.StatusTooManyRequests},
		{"judged administrators", h, "POST", configMaps(judged), http.StatusCreated, http.StatusCreated},
		{"watches", alice, "GET", configMaps(ns) + "?watch=1&resourceVersion=0&timeoutSeconds=5&fieldSelector=metadata.name=none", http.StatusOK, http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			codes := make([]int, crowd)
			var group sync.WaitGroup
			for i := range crowd {
				group.Go(func() {
					var err error
					if codes[i], err = c.client.Try(harness.Context(t), c.method, c.path, configMap(fmt.Sprintf("%s-%d", strings.ToLower(c.name[:1]), i))); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			count := map[int]int{}
			for _, code := range codes {
				count[code]++
				if code != c.want && code != c.may {
					t.Errorf("a request got %d", code)
				}
			}
			if count[c.want] == 0 {
				t.Errorf("how many got which code: %v", count)
			}
		})
	}
	harness.Eventually(t, "no request is handled any more", func() error {
		if n := handled(); n > before+crowd/100 {
			return fmt.Errorf("%d requests, %d before", n, before)
		}
		return nil
	})
}

// Connections that send nothing, or half a message, delay no client.
func TestSilentConnectionsDelayNobody(t *testing.T) {
	speed.Long(t)
	const silent = 3000
	s := harness.Start(t)
	address := strings.TrimPrefix(s.URL, "https://")
	for i := range silent {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if i%2 == 1 {
			// The beginning of a TLS record.
			if _, err := conn.Write([]byte{22, 3, 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := time.Now()
	s.HTTP(t, nil).Get("/api/v1/namespaces/default")
	// With sequential handshakes, this would take days.
	if took := time.Since(begin); took > harness.Patience/2 {
		t.Errorf("a new client got its answer after %v", took)
	} else {
		t.Logf("a new client got its answer after %v", took)
	}
}
