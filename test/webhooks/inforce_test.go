package webhooks

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// slowReads are the flags of a server whose regular reads of registrations are far apart, with the only controller whose
// objects tests need.
var slowReads = []string{"--admission-refresh-interval", "30s", "--admission-max-staleness", "1m", "--controllers", "namespace-controller"}

// TestRegistrationsAreInForceForWhoeverWroteThem verifies S11.8 for one server: a request that follows the
// response to the write of a registration is evaluated against that registration, for every way to write a
// registration. The regular reads are too slow to help.
func TestRegistrationsAreInForceForWhoeverWroteThem(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, slowReads...)
	h := s.HTTP(t, nil)
	hooks := harness.NewWebhookServer(t, nil)
	const merge, mutatingKind = "application/merge-patch+json", "MutatingWebhookConfiguration"
	configuration := func(version, kind string, answer string) string {
		deny := harness.Deny(map[string]any{"message": answer})
		return asJSON(map[string]any{
			"apiVersion": "admissionregistration.k8s.io/" + version, "kind": kind, "metadata": map[string]any{"name": "now"},
			"webhooks": []any{webhook("now", "default", hooks.Hook("/"+answer, deny))},
		})
	}
	collection := registrationsPath("v1", validating)
	at := collection + "/now"
	steps := []struct {
		name                      string
		code                      int
		method, path, body, media string
		// by occurs in the message of the next rejection; empty if the next request is admitted.
		by string
	}{
		{"created", 201, "POST", collection, configuration("v1", validating, "one"), "", "one"},
		{"deleted", 200, "DELETE", at, "", "", ""},
		{"created again", 201, "POST", collection, configuration("v1", validating, "two"), "", "two"},
		{"applied", 200, "PATCH", at + "?fieldManager=t&force=true", configuration("v1", validating, "three"), applyPatch, "three"},
		{"patched", 200, "PATCH", at, `{"webhooks":[]}`, merge, ""},
		{"written with PUT", 200, "PUT", at, "", "", "four"},
		{"deleted with all others", 200, "DELETE", collection, "", "", ""},
		{"created in v1beta1", 201, "POST", registrationsPath("v1beta1", mutatingKind), configuration("v1beta1", mutatingKind, "five"), "", "five"},
		{"deleted in v1beta1", 200, "DELETE", registrationsPath("v1beta1", mutatingKind) + "/now", "", "", ""},
	}
	for round := range speed.Of(2, 5) {
		for _, step := range steps {
			if step.method == "PUT" {
				version := h.Get(at).Text("metadata", "resourceVersion")
				step.body = strings.Replace(configuration("v1", validating, step.by), `"metadata":{`, `"metadata":{"resourceVersion":"`+version+`",`, 1)
			}
			var media []string
			if step.media != "" {
				media = []string{"Content-Type", step.media}
			}
			r := h.Must(step.code, step.method, step.path, step.body, media...)
			if warnings := r.Header.Values("Warning"); strings.Contains(fmt.Sprint(warnings), "not yet active") {
				t.Errorf("S11.8 round %d, %s: %q", round, step.name, warnings)
			}
			got := h.Do("POST", configMaps("default")+"?dryRun=All", configMap("judged"))
			if step.by == "" && got.Code == http.StatusCreated || step.by != "" && strings.HasSuffix(got.Text("message"), "denied the request: "+step.by) {
				continue
			}
			t.Errorf("S11.8 round %d, %s: what is written then gets %d %s", round, step.name, got.Code, got.Raw)
		}
	}
	t.Run("initializers", func(t *testing.T) {
		path := registrationsPath("v1alpha1", "InitializerConfiguration")
		for i := range speed.Of(2, 5) {
			h.Must(http.StatusCreated, "POST", path, toJSON(`
{apiVersion: admissionregistration.k8s.io/v1alpha1, kind: InitializerConfiguration, metadata: {name: now},
 initializers: [{name: now.example.com, rules: [{apiGroups: [""], apiVersions: ["*"], resources: [secrets]}]}]}`))
			body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"now-%d"}}`, i)
			h.Must(http.StatusAccepted, "POST", "/api/v1/namespaces/default/secrets?includeUninitialized=true", body)
			h.Must(http.StatusOK, "DELETE", path+"/now", "")
			body = fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"later-%d"}}`, i)
			h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/default/secrets?includeUninitialized=true", body)
		}
	})
	t.Run("by many at once", func(t *testing.T) {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				h := s.HTTP(t, nil)
				answer := fmt.Sprintf("many-%d", i)
				w := webhook(answer, "default", hooks.Hook("/"+answer, harness.Deny(map[string]any{"message": answer})),
					fmt.Sprintf(`objectSelector: {matchLabels: {many: m%d}}`, i))
				body := asJSON(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": validating, "metadata": map[string]any{"name": answer}, "webhooks": []any{w}})
				if r := h.Do("POST", collection, body); r.Code != http.StatusCreated {
					t.Errorf("%d %s", r.Code, r.Raw)
				}
				got := h.Do("POST", configMaps("default")+"?dryRun=All", configMap("judged", "many", fmt.Sprintf("m%d", i)))
				if !strings.HasSuffix(got.Text("message"), "denied the request: "+answer) {
					t.Errorf("S11.8 %s: %d %s", answer, got.Code, got.Raw)
				}
			})
		}
		all.Wait()
	})
}

// TestAWebhookMayRegisterWebhooks verifies that the write of a registration waits for no other request, even
// if a webhook sends it during a request that waits for this webhook.
func TestAWebhookMayRegisterWebhooks(t *testing.T) {
	t.Parallel()
	// The webhook matches everything, including writes of controllers.
	s := harness.Sole(t, slowReads...)
	h := s.HTTP(t, nil)
	hooks := harness.NewWebhookServer(t, nil)
	collection := registrationsPath("v1", validating)
	never := neverCalled("v1", validating, "inner", hook("inner.example.com", ""))
	registers := hooks.Hook("/registers", func(w http.ResponseWriter, r *harness.Review) {
		ctx, cancel := context.WithTimeout(r.HTTP.Context(), 20*time.Second)
		defer cancel()
		inner := s.HTTP(t, nil)
		done := make(chan int, 1)
		go func() { done <- inner.Do("POST", collection, never).Code }()
		select {
		case code := <-done:
			if code != http.StatusCreated {
				t.Errorf("the webhook's write got %d", code)
			}
		case <-ctx.Done():
			t.Error("S11.8 the webhook's write waits for the request that waits for the webhook")
		}
		harness.Allow(w, r)
	})
	w := webhook("outer", "default", registers, "timeoutSeconds: 30", "rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}]")
	h.Must(http.StatusCreated, "POST", collection, asJSON(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": validating, "metadata": map[string]any{"name": "outer"}, "webhooks": []any{w},
	}))
	h.Must(http.StatusCreated, "POST", configMaps("default"), configMap("judged"))
	h.Must(http.StatusOK, "DELETE", collection+"/outer", "")
}
