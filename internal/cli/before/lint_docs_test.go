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

	"github.com/gatehouse-dev/gatehouse/internal/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/lint"
	"github.com/gatehouse-dev/gatehouse/internal/server"
)

var update = flag.Bool("update", false, "write docs/lint.md and the pages of docs/lint anew")

// advices are the sections of the Kubernetes page "Admission Webhook Good Practices" that
// advise something, in its order. instead says what helps where no configuration shows
// whether the advice was followed.
var advices = []struct{ anchor, title, instead string }{
	{"choose-admission-mechanism", "Choose an admission control mechanism", "Whether an expression could say what a webhook's code does, only its author knows. See [admission policies](policies.md)."},
	{"no-crd-validation-defaulting", "Use built-in validation and defaulting for custom resources", ""},
	{"design-admission-webhooks-low-latency", "Design admission webhooks for low latency", ""},
	{"prevent-loops-competing-controllers", "Prevent loops caused by competing controllers", "[`gatehouse trace`](predict.md#traces) shows a patch that is made again and again, `gatehouse blame` by whom."},
	{"small-timeout", "Set a small timeout value", ""},
	{"load-balancer-webhook", "Use a load balancer to ensure webhook availability", ""},
	{"ha-deployment", "Use a high-availability deployment model", ""},
	{"webhook-limit-scope", "Limit the scope of each webhook", ""},
	{"filter-match-conditions", "Filter for specific requests by using match conditions", ""},
	{"match-all-versions", "Match all versions of an API", ""},
	{"patch-required-fields", "Patch only required fields", "[`gatehouse trace`](predict.md#traces) shows the patches."},
	{"dont-overwrite-arrays", "Don't overwrite array values", "[`gatehouse trace`](predict.md#traces) shows the patches."},
	{"avoid-side-effects", "Avoid side effects", ""},
	{"avoid-self-mutation", "Avoid self-mutations", ""},
	{"avoid-dependency-loops", "Avoid dependency loops", ""},
	{"fail-open-validate-final-state", "Fail open and validate the final state", ""},
	{"plan-future-field-updates", "Plan for future updates to fields", "[Test](testing.md) the webhook with a server of the new release."},
	{"prevent-webhook-self-trigger", "Prevent your webhook from triggering itself", ""},
	{"dont-change-immutable-objects", "Don't change immutable objects", ""},
	{"dont-rely-webhook-order", "Don't rely on mutating webhook invocation order", ""},
	{"ensure-mutating-webhook-idempotent", "Ensure that the mutating webhooks in your cluster are idempotent", "[`gatehouse trace`](predict.md#traces) shows what a second call changed."},
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

// docs/lint.md has every rule, and output as it is printed. Each rule has a page below
// docs/lint.
func TestTheLintPagesAreCurrent(t *testing.T) {
	docs, err := filepath.Abs(filepath.Join("..", "..", "..", "docs"))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{"lint.md": lintPage(t)}
	for _, r := range lint.Rules() {
		pages["lint/"+r.ID+".md"] = rulePage(r)
	}
	files, err := filepath.Glob(filepath.Join(docs, "lint", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if pages["lint/"+filepath.Base(file)] != "" {
			continue
		}
		if !*update {
			t.Errorf("%s is about no rule; run go test ./internal/cli/before -update", file)
		} else if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	for name, page := range pages {
		file := filepath.Join(docs, name)
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		current, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(current), page); diff != "" {
			t.Errorf("docs/%s is not up to date; run go test ./internal/cli/before -update (-page +rules):\n%s", name, diff)
		}
	}
}

// rulePage is the page of a rule: what somebody looks for who searches the web, and who follows the
// link of a finding. What it looks at and the examples are in lint --explain.
func rulePage(r *lint.Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s (%s)\n\n<!-- Code generated by go test ./internal/cli/before -update; DO NOT EDIT. -->\n", r.ID, r.Level)
	fmt.Fprintf(&b, "\n%s.\n\n%s\n\n%s\n", r.Title, r.Why, r.Fix)
	fmt.Fprintf(&b, "\n    gatehouse lint --explain %s\n\nprints this with an example that fails and one that passes.", r.ID)
	if r.Advice != "" {
		fmt.Fprintf(&b, "\nThe [advice of Kubernetes](%s#%s).", practicesURI, r.Advice)
	}
	return b.String() + "\nAll rules: [Finding what is dangerous](../lint.md#the-rules).\n"
}

// gatehouse lint --explain RULE says what there is to say of the rule.
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

// Every rule that stands for an advice stands for one that there is, and every advice has a
// rule or a reason.
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
			list = append(list, fmt.Sprintf("[`%s`](lint/%[1]s.md)", r.ID))
		}
	}
	return list
}

// printed runs the command in a directory with the example, and returns what it prints.
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

func lintPage(t *testing.T) string {
	var b strings.Builder
	b.WriteString(`# Finding what is dangerous

<!-- Code generated by go test ./internal/cli/before -update; DO NOT EDIT. -->

` + "`gatehouse lint`" + ` reads webhook configurations, admission policies and initializers, and says what is
dangerous in them before it happens: deadlocks, webhooks that stop nodes or the control plane,
certificates and services that do not fit, rules and conditions that do nothing. It works on files
and on any Kubernetes cluster, and needs no Gatehouse server.

## On files

` + "```yaml\n" + lintExample + "```\n\n    gatehouse lint hooks.yaml\n\n```text\n" + printed(t, "hooks.yaml") + "```\n" + `
A path is a file, a directory, or ` + "`-`" + ` for standard input, such as the output of
` + "`helm template`" + ` or ` + "`kubectl kustomize`" + `. The command also looks at services, workloads, namespaces,
custom resource definitions, roles and params among the files. Files may not be all there is: the
absence of an object in them is never an error, and the output lists what no file has. ` + "`-v 1`" + ` lists
the rules that were checked.

## On a cluster

    gatehouse lint --kubeconfig ~/.kube/config

The command lists what you may list, and writes nothing. What you may not list is under *Not
seen*, with the rules that it concerns. With ` + "`--connect`" + `, the command connects to each webhook from
where it runs, and compares the certificate that it presents with the caBundle. It sends no request.
It dials the cluster IP of a service only in a pod of that cluster. Elsewhere, name the address with
` + "`--service-address NAMESPACE/NAME=HOST:PORT`" + `. The option also says that the webhook runs outside of the
cluster, as the one of ` + "`gatehouse serve`" + ` does: rules about its service and its pods do not apply then.

With paths and ` + "`--kubeconfig` or `--context`" + `, the command judges the files as if they were applied to
that cluster, and reports what is wrong with the files.

## Types of expressions

The command compares every expression with the schemas of the kinds that its rules name: match
conditions of webhooks, too, and what mutations set. The schemas are those of the built-in kinds, and
of the definitions of custom resources in the files or the cluster. An expression that fails for each
object is an error, one that fails for some is a warning.

## Before an upgrade

    gatehouse lint --upgrade-to 1.38
    gatehouse lint deploy/ --upgrade-to 1.38

With ` + "`--upgrade-to`" + `, the rules whose names begin with upgrade- run, too: which rules will match nothing
because the release does not serve their versions, which Exact rules miss a version that it newly
serves, which registrations and params it does not serve, which functions its expressions do not
have, and, in files, which flags and plugins its kube-apiserver does not have: those of pods and workloads
that run kube-apiserver, of kubeadm's ClusterConfiguration, and of an AdmissionConfiguration. Each
finding says what to write instead. The target may be any release. What each release serves is
upstream's own data, as of Kubernetes ` + server.KubernetesVersion + `: what later releases introduce is not known, and the
command says so. With files alone, the present release is not known, and an Exact rule is compared with
all versions that the target serves.

## In CI

The exit code is 0 without findings of level error, 1 with some or with a file that cannot be read
or parsed, and 2 for a wrong command line.
` + "`-o sarif`" + ` prints SARIF 2.1.0, which code hosts show at the lines of a change. A workflow of GitHub:

` + "```yaml" + `
permissions:
  contents: read
  security-events: write
steps:
- uses: actions/checkout@v5
- run: gatehouse lint deploy/ -o sarif > lint.sarif
- uses: github/codeql-action/upload-sarif@v4
  if: always()
  with: {sarif_file: lint.sarif, category: gatehouse}
` + "```" + `

` + "`--level warning`" + ` leaves out notes, ` + "`--level error`" + ` all but errors. ` + "`-o json`" + ` has the fields
` + "`findings` (`rule`, `level`, `message`, `object`, `field`, `file`, `line`, `column`), `checked` and `unseen`" + `. ` + "`-o github`" + `
prints workflow commands, which GitHub shows at the lines of a pull request, and ` + "`-o gitlab`" + ` a code
quality report. ` + "`-o html`" + ` writes a page that needs nothing from elsewhere, to attach to a run, and
` + "`-o markdown`" + ` the same for a job summary or a pull request.

## Accept findings

Of a directory, the command leaves out directories for tests, whose names have one of the words test, tests,
testdata, fixtures and e2e, files with the word e2e, and what a kustomization changes, since that is not
applied as it is written: give the command what ` + "`kubectl kustomize`" + ` makes. "Not seen" names them.

` + "`--disable RULE`" + ` leaves out a rule, ` + "`--skip KIND/NAME`" + ` the findings about an object, ` + "`--exclude PATTERN`" + ` and
` + "`.gatehouseignore`" + ` leave out files. A comment accepts one finding, and says why: at one of the first lines
of an object for the whole object, elsewhere for its own line or the next one.

` + "```yaml" + `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration # gatehouse: accept ca-bundle-missing: cert-manager injects it
metadata: {name: policies}
` + "```" + `

` + "[`.gatehouse.yaml`](reference/configuration.md)" + ` has all of this for a repository. Accepted findings are
counted and do not change the exit code; JSON and SARIF have them with their reasons.

## What a server says

A Gatehouse server checks some of the rules when a registration is written, and returns findings of
level error as ` + "`Warning`" + ` headers. kubectl prints them. These rules need nothing but the registrations
and the namespaces, and no request that is judged waits for them:
` + onWrite() + `.

## What it means

| level | meaning |
|---|---|
| error | it stops the cluster, or fails each time |
| warning | it does harm when something else goes wrong, or does not do what it seems to do |
| note | advice |

No finding does not mean that nothing is wrong. The output names the rules that were checked and what
could not be seen. A finding that depends on what cannot be seen is never an error, and says so.

Whether a webhook applies to a request is decided by the code that decides it in a server. The requests
are those of the cluster itself, with the users that make them: a node that renews its lease, a
controller that creates a pod of a webhook's own workload, an API server that starts.

## Speed

Checking 5,000 webhooks and 5,000 policies, each with an expression of its own, takes about 2.8 s of
processor time on two cores at once. Most of it is compiling the expressions.

    go test ./internal/lint -run '^$' -bench BenchmarkCheck

## The rules

The page of each rule says why and what to do. ` + "`gatehouse lint --explain RULE`" + ` prints the same, with an
example that fails and one that passes.

` + "| rule | level | |\n|---|---|---|\n")
	for _, r := range lint.Rules() {
		fmt.Fprintf(&b, "| [`%s`](lint/%[1]s.md) | %s | %s |\n", r.ID, r.Level, r.Title)
	}
	b.WriteString(`
## The advice of Kubernetes

The Kubernetes page [Admission Webhook Good Practices](` + practicesURI + `)
advises what follows. Some of it is about the code of a webhook, which no configuration shows.

| advice | rules |
|---|---|
`)
	for _, a := range advices {
		answer := strings.Join(rulesFor(a.anchor), ", ")
		if a.instead != "" {
			answer = strings.TrimSpace(answer + " " + a.instead)
		}
		fmt.Fprintf(&b, "| [%s](%s#%s) | %s |\n", a.title, practicesURI, a.anchor, answer)
	}
	return b.String()
}

// onWrite lists the rules that a server checks.
func onWrite() string {
	var list []string
	for _, r := range lint.Rules() {
		if r.OnWrite {
			list = append(list, fmt.Sprintf("[`%s`](lint/%[1]s.md)", r.ID))
		}
	}
	return strings.Join(list, ",\n")
}
