package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/options"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// TestWebhooks runs what needs no server of its own on one server, in which
// registrations are in force as soon as they are written. Every test has a
// namespace and webhooks that are called for that namespace only.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	j := newJudged(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *judged)
	}{
		{"denials", testDenials},
		{"side data", testSideData},
		{"several rejections", testSeveralRejections},
		{"external hooks", testExternalHooks},
		{"faults", testFaults},
		{"timeouts", testTimeouts},
		{"patches", testPatches},
		{"patches of two versions", testPatchesOfTwoVersions},
		{"reinvocation", testReinvocation},
		{"namespace selectors", testNamespaceSelectors},
		{"object selectors", testObjectSelectors},
		{"equivalent matches", testEquivalentMatches},
		{"match conditions", testMatchConditions},
		{"bad match conditions", testBadMatchConditions},
		{"dry run", testDryRun},
		{"operations", testOperations},
		{"generated names", testGeneratedNames},
		{"connections to pods", testConnect},
		{"rollbacks", testRollbacks},
		{"conflicts", testConflicts},
		{"collections", testDeleteCollection},
		{"custom kinds", testCustomKinds},
		{"initializers", testInitializersSeenByWebhooks},
		{"registered initializers", testRegisteredInitializers},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, j)
		})
	}
}

// judged is a server for tests of webhooks.
type judged struct {
	*harness.Server
	hooks *harness.WebhookServer
	audit string
}

func newJudged(t *testing.T) *judged {
	t.Helper()
	dir := t.TempDir()
	j := &judged{audit: filepath.Join(dir, "audit.log"), hooks: harness.NewWebhookServer(t, nil)}
	audit := options.NewAuditOptions()
	audit.LogOptions.Path = j.audit
	audit.PolicyFile = writeFile(t, filepath.Join(dir, "policy.yaml"), `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Request, verbs: [create, update, patch, delete, deletecollection, get]}]
`)
	tokens := writeFile(t, filepath.Join(dir, "tokens.csv"), `alice-token,alice,uid-alice,"devs"`+"\n")
	j.Server = harness.InProcess(t, server.Options{Audit: audit, TokenAuthFile: tokens, AdmissionConsistency: "strict", RuntimeConfig: []string{"api/legacy=true"}})
	return j
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// annotations returns the annotations of the audit event of a request.
func (j *judged) annotations(t *testing.T, r *harness.Response) map[string]string {
	t.Helper()
	id := r.Header.Get("Audit-Id")
	var found map[string]string
	harness.Eventually(t, "the audit event "+id, func() error {
		data, err := os.ReadFile(j.audit)
		if err != nil {
			return err
		}
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			if !strings.Contains(lines.Text(), id) {
				continue
			}
			var event struct {
				AuditID, Stage string
				Annotations    map[string]string
			}
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				// The line is being written.
				return err
			}
			if event.AuditID == id && event.Stage == "ResponseComplete" {
				found = event.Annotations
				return nil
			}
		}
		return errors.New("none")
	})
	return found
}

var position = regexp.MustCompile(`index_\d+$`)

// webhookAnnotations are those that admission has made. Other tests may have
// registered webhooks, so positions are shown as index_N; TestPositions looks at them.
func (j *judged) webhookAnnotations(t *testing.T, r *harness.Response) map[string]string {
	t.Helper()
	found := map[string]string{}
	for k, v := range j.annotations(t, r) {
		if strings.Contains(k, "webhook.admission.k8s.io/") || strings.Contains(k, ".example.com/") {
			found[position.ReplaceAllString(k, "index_N")] = v
		}
	}
	return found
}

const (
	mutating   = "MutatingWebhookConfiguration"
	validating = "ValidatingWebhookConfiguration"
)

// registrationsPath is where configurations of a kind are.
func registrationsPath(version, kind string) string {
	return "/apis/admissionregistration.k8s.io/" + version + "/" + strings.ToLower(kind) + "s"
}

// register writes a configuration for the time of the test. Its name starts with
// that of the test's first webhook.
func register(t *testing.T, s *harness.Server, version, kind string, webhooks ...map[string]any) string {
	t.Helper()
	name := strings.TrimSuffix(fmt.Sprint(webhooks[0]["name"]), ".example.com")
	registerAs(t, s, version, kind, name, webhooks...)
	return name
}

// registerAs is register for a configuration of a given name.
func registerAs(t *testing.T, s *harness.Server, version, kind, name string, webhooks ...map[string]any) {
	t.Helper()
	field := "webhooks"
	if version == "v1alpha1" {
		field = "externalAdmissionHooks"
	}
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", registrationsPath(version, kind), asJSON(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/" + version, "kind": kind,
		"metadata": map[string]any{"name": name}, field: webhooks,
	}))
	t.Cleanup(func() {
		if code, err := h.Try(context.Background(), "DELETE", registrationsPath(version, kind)+"/"+name, ""); err != nil || code != http.StatusOK && code != http.StatusNotFound {
			t.Errorf("unregistering %s: %d, %v", name, code, err)
		}
	})
}

// webhook is one entry of a configuration: called for everything that is done
// with the configmaps of the namespace, unless the lines, which are YAML fields,
// say otherwise.
func webhook(name, namespace string, hook *harness.Hook, lines ...string) map[string]any {
	w := map[string]any{
		"name":                    name + "." + namespace + ".example.com",
		"clientConfig":            hook.ClientConfig(),
		"rules":                   []any{rule("*", "/v1/configmaps")},
		"namespaceSelector":       map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": namespace}},
		"failurePolicy":           "Fail",
		"sideEffects":             "None",
		"timeoutSeconds":          10,
		"admissionReviewVersions": []any{"v1", "v1beta1"},
	}
	set(w, lines...)
	return w
}

// set sets fields, given in YAML.
func set(w map[string]any, lines ...string) {
	for _, line := range lines {
		fields := map[string]any{}
		if err := yaml.Unmarshal([]byte(line), &fields); err != nil {
			panic(fmt.Sprintf("%v in %s", err, line))
		}
		maps.Copy(w, fields)
	}
}

// rule is a rule for resources of the form GROUP/VERSION/RESOURCE.
func rule(operation string, resources ...string) map[string]any {
	var group, version string
	var list []any
	for _, r := range resources {
		parts := strings.SplitN(r, "/", 3)
		group, version = parts[0], parts[1]
		list = append(list, parts[2])
	}
	var operations []any
	for o := range strings.SplitSeq(operation, ",") {
		operations = append(operations, o)
	}
	return map[string]any{"operations": operations, "apiGroups": []any{group}, "apiVersions": []any{version}, "resources": list}
}

// rules is the line that gives a webhook rules.
func rules(list ...map[string]any) string { return asJSON(map[string]any{"rules": list}) }

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// decoded is a JSON object.
func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	content := map[string]any{}
	if err := json.Unmarshal([]byte(text), &content); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return content
}

// configMaps is where the configmaps of a namespace are.
func configMaps(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }

// sortedKeys are the names of an object's fields.
func sortedKeys(v any) []string {
	m, _ := v.(map[string]any)
	return slices.Sorted(maps.Keys(m))
}

// cancelled returns a context that is cancelled as soon as the condition holds.
func cancelled(t *testing.T, when func() bool) context.Context {
	ctx, cancel := context.WithCancel(harness.Context(t))
	var done sync.WaitGroup
	done.Go(func() {
		defer cancel()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !when() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return ctx
}
