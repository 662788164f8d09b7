package webhooks

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// TestWebhooks runs tests whose webhooks match only the namespace of the test.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	j := newJudged(t)
	j.each = speed.Of(1, 4)
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

// judged is a test's access to a server with an audit log, where registrations become active as soon as they are written.
type judged struct {
	*harness.Server
	hooks *harness.WebhookServer
	audit string
	// each is the number of tested combinations of a kind and a failure policy for each fault; 4 are all.
	each int
}

// judging is the server of all judged.
var judging struct {
	sync.Mutex
	server *harness.Server
	audit  string
}

// newJudged returns the server of the package, which several tests use at the same time.
func newJudged(t *testing.T) *judged {
	t.Helper()
	judging.Lock()
	defer judging.Unlock()
	if judging.server == nil {
		startJudging(harness.Lasting(t))
	}
	judging.server.Report(t)
	return &judged{Server: judging.server, audit: judging.audit, hooks: harness.NewWebhookServer(t, nil)}
}

func startJudging(t *harness.Life) {
	t.Helper()
	dir := t.TempDir()
	policy := writeFile(t, filepath.Join(dir, "policy.yaml"), `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Request, verbs: [create, update, patch, delete, deletecollection, get]}]
`)
	tokens := writeFile(t, filepath.Join(dir, "tokens.csv"), `alice-token,alice,uid-alice,"devs"`+"\n")
	judging.audit = filepath.Join(dir, "audit.log")
	judging.server = harness.Start(t, "--audit-log-path", judging.audit, "--audit-policy-file", policy, "--token-auth-file", tokens, "--admission-consistency", "strict", "--runtime-config", "api/legacy=true")
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
				// The line is incomplete.
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

// webhookAnnotations returns the annotations set by admission webhooks. Other tests may have registered
// webhooks, so positions are replaced by index_N; TestPositions verifies them.
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

// decoded decodes a JSON object.
func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	content := map[string]any{}
	if err := json.Unmarshal([]byte(text), &content); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return content
}

// sortedKeys returns the names of an object's fields.
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
