package chaos

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// hostile returns webhooks that try to harm the server.
func hostile() map[string]harness.Answer {
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	zeros := make([]byte, mib)
	for range 256 {
		_, _ = w.Write(zeros)
	}
	_ = w.Close()
	return map[string]harness.Answer{
		"hangs":  harness.Hang,
		"breaks": harness.Abort,
		"drips": func(w http.ResponseWriter, r *harness.Review) {
			for r.HTTP.Context().Err() == nil {
				if _, err := io.WriteString(w, " "); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		},
		"is-endless": func(w http.ResponseWriter, r *harness.Review) {
			w.Header().Set("Content-Type", "application/json")
			for r.HTTP.Context().Err() == nil {
				if _, err := w.Write(zeros); err != nil {
					return
				}
			}
		},
		"is-a-bomb": func(w http.ResponseWriter, _ *harness.Review) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		},
		"is-deep": harness.Raw(http.StatusOK, "application/json", strings.Repeat(`{"a":[`, 100_000)),
		"speaks-no-http": func(w http.ResponseWriter, _ *harness.Review) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, strings.Repeat("x", 100_000)+"\r\n\r\n")
		},
		"has-endless-headers": func(w http.ResponseWriter, _ *harness.Review) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			for header := "HTTP/1.1 200 OK\r\n"; ; header = "X-More: " + strings.Repeat("x", 10_000) + "\r\n" {
				if _, err := io.WriteString(c, header); err != nil {
					return
				}
			}
		},
		"redirects": func(w http.ResponseWriter, r *harness.Review) {
			w.Header().Set("Location", r.HTTP.URL.Path)
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
	}
}

// Requests matched by a hostile webhook are admitted with failurePolicy Ignore and rejected with Fail, in
// little more than its timeout; other requests are not affected, and the server's resources stay the same.
func TestHostileWebhooksHarmNobodyElse(t *testing.T) {
	t.Parallel()
	const timeout, most = time.Second, 20 * time.Second
	each := speed.Of(1, 3)
	s := harness.Start(t)
	server := harness.NewWebhookServer(t, nil)
	var hooks []any
	add := func(name, policy string, answer harness.Answer) {
		hook := server.Hook("/"+name, answer)
		hooks = append(hooks, map[string]any{
			"name": name + ".example.com", "clientConfig": hook.ClientConfig(), "admissionReviewVersions": []string{"v1"}, "sideEffects": "None",
			"failurePolicy": policy, "timeoutSeconds": int(timeout.Seconds()), "objectSelector": map[string]any{"matchLabels": map[string]any{"hook": name}},
			"rules": []any{map[string]any{"operations": []string{"CREATE"}, "apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"configmaps"}}},
		})
	}
	answers := hostile()
	names := speed.Some(t, 4, slices.Sorted(maps.Keys(answers)))
	for _, name := range names {
		answer := answers[name]
		add(name+"-ignore", "Ignore", answer)
		add(name+"-fail", "Fail", answer)
	}
	add("canary", "Fail", harness.Deny(nil))
	configuration, err := json.Marshal(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": map[string]any{"name": "hostile"}, "webhooks": hooks,
	})
	if err != nil {
		t.Fatal(err)
	}
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", string(configuration))
	labelled := func(name, hook string) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %q, "labels": {"hook": %q}}}`, name, hook)
	}
	harness.Eventually(t, "the webhooks are in force", func() error {
		if code, err := h.Try(harness.Context(t), "POST", configMaps+"?dryRun=All", labelled("canary", "canary")); err != nil || code == http.StatusCreated {
			return errors.Join(err, errors.New("they are not called"))
		}
		return nil
	})

	l := newLedger()
	stop := begin(t, l, s, "other", noneRefused(t))
	defer stop()
	rounds(t, speed.Of(1, 4), func(i int) {
		var calling sync.WaitGroup
		for _, name := range names {
			for policy, want := range map[string]int{"ignore": http.StatusCreated, "fail": http.StatusInternalServerError} {
				hook := name + "-" + policy
				for n := range each {
					calling.Go(func() {
						begun := time.Now()
						code, err := s.HTTP(t, nil).Try(t.Context(), "POST", configMaps, labelled(fmt.Sprintf("%s-%d-%d", hook, i, n), hook))
						if err != nil || code != want {
							t.Errorf("%s: %d, %v, want %d", hook, code, err, want)
						}
						if took := time.Since(begun); took > most {
							t.Errorf("%s: it took %s", hook, took)
						}
					})
				}
			}
		}
		calling.Wait()
		progress(t, l, 20)
	})
	stop()
	l.check(t, s)
	h.Get("/readyz")
}
