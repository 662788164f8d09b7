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

// Very many requests in the same instant do not keep each other from being answered:
// administrators wait until it is their turn, users beyond the bound get 429, and
// watches do not count. Nothing of it stays in the server.
func TestManyRequestsInOneInstant(t *testing.T) {
	crowd := speed.Of(300, 1000)
	// On a machine that is too slow for so many, reads of registrations may take long.
	s := harness.Start(t, "--admission-consistency", "strict", "--admission-max-staleness", "1m", "--authorization-mode", "AlwaysAllow")
	h := s.HTTP(t, nil)
	ns, judged := s.Namespace(t), s.Namespace(t)
	hook := harness.NewWebhookServer(t, nil).Hook("/", harness.Allow)
	h.Must(http.StatusCreated, "POST", registrationsPath("v1", validating), configuration(validating, "all", map[string]any{
		"name": "all.example.com", "clientConfig": hook.ClientConfig(), "rules": []any{rule("CREATE", "/v1/configmaps")},
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": judged}},
		"sideEffects":       "None", "timeoutSeconds": 30, "admissionReviewVersions": []any{"v1"},
	}))
	// handled is how many goroutines handle requests; the server watches itself.
	handled := func() int {
		return strings.Count(string(h.Get("/debug/pprof/goroutine?debug=2").Raw), "resources.(*Handler).ServeHTTP(")
	}
	before := handled()
	alice := s.HTTP(t, s.As("alice"))
	for _, c := range []struct {
		name         string
		client       *harness.HTTP
		method, path string
		// want is what at least one gets, may what others may get.
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

// Connections on which nothing is said, or half a word, keep no client waiting.
func TestSilentConnectionsDelayNobody(t *testing.T) {
	silent := speed.Of(500, 3000)
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
	// One handshake after the other would take days.
	if took := time.Since(begin); took > harness.Patience/2 {
		t.Errorf("a new client got its answer after %v", took)
	} else {
		t.Logf("a new client got its answer after %v", took)
	}
}
