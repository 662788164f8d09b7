package before

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
)

var update = flag.Bool("update", false, "write the generated blocks of docs/lint.md anew")

// advices are the sections with advice of the Kubernetes page "Admission Webhook Good Practices", in its order.
// instead is the alternative for advice that no configuration can violate visibly.
var advices = []struct{ anchor, title, instead string }{
	{"choose-admission-mechanism", "Choose an admission control mechanism", "Only the author of a webhook knows whether an expression could replace its code. See [admission policies](policies.md)."},
	{"no-crd-validation-defaulting", "Use built-in validation and defaulting for custom resources", ""},
	{"design-admission-webhooks-low-latency", "Design admission webhooks for low latency", ""},
	{"prevent-loops-competing-controllers", "Prevent loops caused by competing controllers", "[`gatehouse trace`](who-changed-it.md#traces) shows a patch that is made again and again, `gatehouse blame` by whom."},
	{"small-timeout", "Set a small timeout value", ""},
	{"load-balancer-webhook", "Use a load balancer to ensure webhook availability", ""},
	{"ha-deployment", "Use a high-availability deployment model", ""},
	{"webhook-limit-scope", "Limit the scope of each webhook", ""},
	{"filter-match-conditions", "Filter for specific requests by using match conditions", ""},
	{"match-all-versions", "Match all versions of an API", ""},
	{"patch-required-fields", "Patch only required fields", "[`gatehouse trace`](who-changed-it.md#traces) shows the patches."},
	{"dont-overwrite-arrays", "Don't overwrite array values", "[`gatehouse trace`](who-changed-it.md#traces) shows the patches."},
	{"avoid-side-effects", "Avoid side effects", ""},
	{"avoid-self-mutation", "Avoid self-mutations", ""},
	{"avoid-dependency-loops", "Avoid dependency loops", ""},
	{"fail-open-validate-final-state", "Fail open and validate the final state", ""},
	{"plan-future-field-updates", "Plan for future updates to fields", "[Test](testing.md) the webhook with a server of the new release."},
	{"prevent-webhook-self-trigger", "Prevent your webhook from triggering itself", ""},
	{"dont-change-immutable-objects", "Don't change immutable objects", ""},
	{"dont-rely-webhook-order", "Don't rely on mutating webhook invocation order", ""},
	{"ensure-mutating-webhook-idempotent", "Ensure that the mutating webhooks in your cluster are idempotent", "[`gatehouse trace`](who-changed-it.md#traces) shows the changes of a second call."},
	{"test-in-staging-environments", "Test webhooks in staging environments", "[Test](testing.md) with a server of your own."},
	{"ensure-mutations-dont-violate-validations", "Ensure that mutations don't violate validations", "[Test](testing.md) with all webhooks registered on one server."},
	{"test-minor-version-upgrades", "Test minor version upgrades to ensure consistent behavior", "[Test](testing.md) with a server of the new release."},
	{"validate-mutations", "Validate mutations before admission", ""},
	{"install-enable-mutating-webhook", "Install and enable a mutating webhook", "Register it with failurePolicy Ignore and a namespaceSelector first; the rules below look at both."},
	{"limit-edit-access", "Limit edit access to mutating webhooks", ""},
}

const lintExample = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: policies
webhooks:
- name: pods.policies.example.com
  clientConfig:
    service: {namespace: policies, name: policies}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, DELETE], resources: [pods]}
  matchConditions:
  - name: not-a-job
    expression: "!object.metadata.name.startsWith('job-')"
  admissionReviewVersions: [v1]
  sideEffects: None
---
apiVersion: v1
kind: Service
metadata: {namespace: policies, name: policies}
spec:
  selector: {app: policies}
  ports: [{port: 8443}]
`

// The generated blocks of docs/lint.md are current: an example with its output, all rules with an
// anchor each, and the advice of Kubernetes. The text around them is written by hand.
func TestTheLintPageIsCurrent(t *testing.T) {
	file, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "docs", "lint.md"))
	if err != nil {
		t.Fatal(err)
	}
	current, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(current)
	for _, block := range []struct{ name, text string }{
		{"output", "```text\n" + printed(t, "hooks.yaml") + "```\n"},
		{"example", "```yaml\n" + lintExample + "```\n"},
		{"rules", allRules()},
		{"advice", adviceTable()},
	} {
		begin, end := "<!-- BEGIN "+block.name+": go test ./internal/commands/cli/before -update -->\n", "<!-- END "+block.name+" -->\n"
		before, rest, found := strings.Cut(page, begin)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("docs/lint.md lacks the lines %s and %s", begin, end)
		}
		page = before + begin + "\n" + block.text + "\n" + end + after
	}
	if *update {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(current), page); diff != "" {
		t.Errorf("docs/lint.md is not up to date; run go test ./internal/commands/cli/before -update (-page +rules):\n%s", diff)
	}
}

// The link of each finding leads to a heading of docs/lint.md.
func TestLinksOfFindingsHaveHeadings(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "lint.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range lint.Rules() {
		_, anchor, ok := strings.Cut(rulesURI+r.ID, "/docs/lint.md#")
		if !ok || !strings.Contains(string(page), "\n### "+anchor+"\n") {
			t.Errorf("docs/lint.md has no heading for %s", rulesURI+r.ID)
		}
	}
}

// allRules has a section for each rule. The examples are in lint --explain.
func allRules() string {
	var b strings.Builder
	for _, r := range lint.Rules() {
		level := strings.ToUpper(string(r.Level[:1])) + string(r.Level[1:])
		if r.OnWrite {
			level += ", also a warning of `gatehouse serve` on the write"
		}
		if r.Advice != "" {
			level += fmt.Sprintf("; [advice of Kubernetes](%s#%s)", practicesURI, r.Advice)
		}
		fmt.Fprintf(&b, "### %s\n\n%s. **%s.** %s %s\n\n", r.ID, level, r.Title, r.Why, r.Fix)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// adviceTable has the rules for each advice of Kubernetes, or the reason for none.
func adviceTable() string {
	var b strings.Builder
	b.WriteString("| advice | rules |\n|---|---|\n")
	for _, a := range advices {
		answer := strings.Join(rulesFor(a.anchor), ", ")
		if a.instead != "" {
			answer = strings.TrimSpace(answer + " " + a.instead)
		}
		fmt.Fprintf(&b, "| [%s](%s#%s) | %s |\n", a.title, practicesURI, a.anchor, answer)
	}
	return b.String()
}

// gatehouse lint --explain RULE prints all sections of the rule.
func TestExplainSaysAll(t *testing.T) {
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for _, r := range lint.Rules() {
		var out bytes.Buffer
		cmd := NewLint(command.Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard})
		cmd.SetArgs([]string{"--explain", r.ID})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Error(err)
		}
		said := words(out.String())
		for _, part := range []string{r.ID, string(r.Level), r.Title, r.Why, r.Fix, r.Advice, r.Fails, r.Passes} {
			if !strings.Contains(said, words(part)) {
				t.Errorf("%s: %s lacks %s", r.ID, said, words(part))
			}
		}
	}
}

// Every rule with an advice refers to an existing advice, and every advice has a rule or a reason.
func TestEveryAdviceHasARule(t *testing.T) {
	known := map[string]bool{}
	for _, a := range advices {
		known[a.anchor] = true
		if len(rulesFor(a.anchor)) == 0 && a.instead == "" {
			t.Errorf("no rule stands for %s", a.anchor)
		}
	}
	for _, r := range lint.Rules() {
		if r.Advice != "" && !known[r.Advice] {
			t.Errorf("%s stands for %s, which the page does not have", r.ID, r.Advice)
		}
	}
}

func rulesFor(anchor string) (list []string) {
	for _, r := range lint.Rules() {
		if r.Advice == anchor {
			list = append(list, fmt.Sprintf("[`%s`](#%[1]s)", r.ID))
		}
	}
	return list
}

// printed runs the command in a directory with the example and returns its output.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("hooks.yaml", []byte(lintExample), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := NewLint(command.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "lint found") {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}
