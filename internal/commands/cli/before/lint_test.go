package before

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
)

func TestLintParsesItsCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"a", "b"}, ""},
		{[]string{}, ""},
		{[]string{"--explain", "self-deadlock"}, ""},
		{[]string{"--explain", "self-deadlok"}, "did you mean self-deadlock?"},
		{[]string{"--explain", "nope"}, "there is no rule \"nope\"; the rules are\nself-deadlock, deadlock-cycle"},
		{[]string{"--explain", "self-deadlock", "a"}, "leave out paths"},
		{[]string{"-o", "yaml"}, "--output"},
		{[]string{"--level", "fatal"}, "--level"},
	} {
		cmd := newLintCommand(func(context.Context, *lintOptions) error { return nil })
		cmd.SetArgs(tc.args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%q: %v", tc.args, err)
		case tc.want != "" && (command.ExitCode(err) != command.ExitUsage || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%q: error %v, want a usage error with %q", tc.args, err, tc.want)
		}
	}
}

// lintExecution runs the command. It returns standard output, standard error and the exit code.
func lintExecution(t *testing.T, args ...string) (out, problems string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = command.Execute(t.Context(), NewLint, args, command.Streams{In: strings.NewReader(""), Out: &o, Err: &e})
	return o.String(), e.String(), code
}

// lintRun runs the command on a file. It returns standard output and the exit code.
func lintRun(t *testing.T, content string, args ...string) (string, int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hooks.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := NewLint(command.Streams{In: strings.NewReader(content), Out: &out, Err: &out})
	cmd.SetArgs(append(args, file))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), command.ExitCode(err)
}

// An accepted finding does not fail the command. It is counted, and the outputs for programs include it.
func TestLintSuppresses(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("ignored.yaml", "kind: [")
	write(".gatehouseignore", "ignored.yaml\n")
	commented := strings.Replace(lintExample, "- name:", "# gatehouse: accept self-deadlock: the pods are static\n- name:", 1)
	commented = strings.Replace(commented, "kind: ValidatingWebhookConfiguration", "kind: ValidatingWebhookConfiguration # gatehouse: accept timeout-long: it is slow", 1)
	commented = strings.Replace(commented, "- name:", "- timeoutSeconds: 30\n  name:", 1)
	write("hooks.yaml", "# gatehouse: accept webhook-on-events: never\n"+commented+"---\n# gatehouse: accept single-replica\nreplicas: 1\n")
	write(".gatehouse.yaml", "apiVersion: gatehouse.dev/v1alpha1\nkind: Configuration\nlint:\n  disable: [condition-fails]\n  accept:\n  - {rule: control-plane-not-exempt, file: 'h*.yaml', reason: a test cluster}\n")
	out, problems, code := lintExecution(t, ".")
	for _, want := range []string{
		" [service-port-missing]\n", "1 error, 0 warnings and 0 notes in ", "3 findings suppressed.",
		"hooks.yaml:1: nothing of the rule webhook-on-events is found here", "the acceptance of single-replica has no reason", "ignored.yaml: ignored",
	} {
		if code != command.ExitError || !strings.Contains(out, want) {
			t.Errorf("exit %d, %q is not in\n%s%s", code, want, out, problems)
		}
	}
	out, _, _ = lintExecution(t, "hooks.yaml", "-o", "json")
	for _, want := range []string{`"reason": "the pods are static",`, `"by": "hooks.yaml:`, `"by": ".gatehouse.yaml"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if out, _, code := lintExecution(t, "hooks.yaml", "--skip", "validatingwebhookconfiguration/policies", "--disable=webhook-on-events"); code != command.ExitOK || !strings.Contains(out, "5 findings suppressed.") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	out, _, _ = lintExecution(t, "hooks.yaml", "-o", "github")
	if want := "::error file=hooks.yaml,line="; strings.Count(out, "::error") != 1 || !strings.HasPrefix(out, want) || !strings.Contains(out, ",title=service-port-missing::ValidatingWebhookConfiguration/policies: ") {
		t.Errorf("%s", out)
	}
	out, _, _ = lintExecution(t, "hooks.yaml", "-o", "gitlab")
	if strings.Count(out, `"fingerprint"`) != 1 || !strings.Contains(out, `"check_name": "service-port-missing"`) || !strings.Contains(out, `"path": "hooks.yaml"`) {
		t.Errorf("%s", out)
	}
	if _, problems, code := lintExecution(t, "--explain", "nope"); code != command.ExitUsage || !strings.Contains(problems, "there is no rule \"nope\"; the rules are\n  self-deadlock, ") {
		t.Errorf("exit %d, %s", code, problems)
	}
}

func TestLintSaysWhatItFound(t *testing.T) {
	out, code := lintRun(t, lintExample)
	if code != command.ExitError || !strings.Contains(out, "hooks.yaml:6:3: error: ValidatingWebhookConfiguration/policies: webhooks[0]: ") {
		t.Errorf("code %d:\n%s", code, out)
	}
	// The output lists the rules and the unread objects even without a finding.
	out, code = lintRun(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\nreplicas: 2\n", "-v", "1")
	for _, want := range []string{"0 errors, 0 warnings and 0 notes in 0 webhooks, 0 policies and 0 initializers, by ", "deadlock-cycle", "Not seen:", "hooks.yaml:5: not a Kubernetes object"} {
		if code != command.ExitOK || !strings.Contains(out, want) {
			t.Errorf("code %d, without %q:\n%s", code, want, out)
		}
	}
	if strings.Contains(strings.ToLower(out), "safe") {
		t.Errorf("nothing is ever safe:\n%s", out)
	}
	if out, code = lintRun(t, lintExample, "--level", "error"); code != command.ExitError || strings.Contains(out, "note: ") {
		t.Errorf("code %d, with --level error:\n%s", code, out)
	}
}

// Sentences about many files with the same reason are one line, and -v 1 has all.
func TestLintShortensWhatItHasNotSeen(t *testing.T) {
	text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n" + strings.Repeat("---\nreplicas: 2\n", 5)
	for more, lines := range map[string]int{"0": 1, "1": 5} {
		out, _ := lintRun(t, text, "-v", more)
		if n := strings.Count(out, "not a Kubernetes object"); n != lines || strings.Contains(out, "; and 4 more, which -v 1 lists") != (lines == 1) {
			t.Errorf("-v %s has %d lines:\n%s", more, n, out)
		}
	}
	list := []string{"a.yaml: one two three four", "objects: not seen", "b.yaml: one two three four", "c.yaml: one two three four", "d.yaml: five"}
	if got := shortened(list); len(got) != len(list) {
		t.Errorf("three are %q", got)
	}
}

func TestLintPrintsSARIF(t *testing.T) {
	out, code := lintRun(t, lintExample, "-o", "sarif")
	if code != command.ExitError {
		t.Errorf("code %d", code)
	}
	data, err := os.ReadFile("../../../readers/report/testdata/sarif-schema-2.1.0.json")
	if err != nil {
		t.Fatal(err)
	}
	document := func(data []byte) any {
		d, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%v:\n%s", err, data)
		}
		return d
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("sarif.json", document(data)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("sarif.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(document([]byte(out))); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(out, `"ruleId": "self-deadlock"`) || !strings.Contains(out, `"startLine": 6`) {
		t.Errorf("no result has the rule and the line:\n%s", out)
	}
}

// With --connect, the certificate that a webhook presents is compared with its caBundle.
func TestLintConnects(t *testing.T) {
	requests := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer server.Close()
	own := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	hook := func(url, bundle string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: policies}\nwebhooks:\n" +
			"- name: a.policies.example.com\n  clientConfig: {url: \"" + url + "\", caBundle: " + bundle + "}\n  sideEffects: None\n  admissionReviewVersions: [v1]\n  failurePolicy: Ignore\n" +
			"  rules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]\n"
	}
	if out, code := lintRun(t, hook(server.URL, own), "--connect"); code != command.ExitOK || strings.Contains(out, "[ca-bundle-mismatch]") {
		t.Errorf("its own certificate: code %d\n%s", code, out)
	}
	stranger := strings.TrimSpace(strings.SplitN(strings.SplitN(lint.Find("ca-bundle-invalid").Passes, "caBundle: ", 2)[1], "\n", 2)[0])
	if out, code := lintRun(t, hook(server.URL, stranger), "--connect"); code != command.ExitError || !strings.Contains(out, "[ca-bundle-mismatch]") {
		t.Errorf("the certificate of somebody else: code %d\n%s", code, out)
	}
	if out, code := lintRun(t, hook(server.URL, stranger)); code != command.ExitOK || !strings.Contains(out, "no webhook was connected to") {
		t.Errorf("without --connect: code %d\n%s", code, out)
	}
	server.Close()
	if out, code := lintRun(t, hook(server.URL, own), "--connect"); code != command.ExitOK || !strings.Contains(out, "presented no certificate") {
		t.Errorf("nobody there: code %d\n%s", code, out)
	}
	if requests > 0 {
		t.Errorf("%d requests were sent", requests)
	}
}

// lint connects to a service at its --service-address, or inside the service's cluster. Elsewhere, another
// machine may have the cluster IP.
func TestLintDialsServicesInTheirClusterOnly(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer server.Close()
	port := strings.TrimPrefix(server.URL, "https://127.0.0.1:")
	hook := "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: policies}\nwebhooks:\n" +
		"- name: a.policies.example.com\n  clientConfig: {service: {namespace: one, name: hooks, port: " + port + "}, caBundle: " +
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})) + "}\n  sideEffects: None\n  admissionReviewVersions: [v1]\n  failurePolicy: Ignore\n" +
		"  rules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]\n" +
		"---\napiVersion: v1\nkind: Service\nmetadata: {namespace: one, name: hooks}\nspec: {clusterIP: 127.0.0.1, ports: [{port: " + port + "}]}\n"
	if out, code := lintRun(t, hook, "--connect"); code != command.ExitOK || !strings.Contains(out, "presented no certificate: service one/hooks is reachable") {
		t.Errorf("without an address: code %d\n%s", code, out)
	}
	if out, code := lintRun(t, hook, "--connect", "--service-address", "one/hooks="+strings.TrimPrefix(server.URL, "https://")); code != command.ExitError || !strings.Contains(out, "[ca-bundle-mismatch]") {
		t.Errorf("with an address: code %d\n%s", code, out)
	}
	if out, code := lintRun(t, hook, "--service-address", "one/hooks"); code != command.ExitUsage {
		t.Errorf("an address that is none: code %d\n%s", code, out)
	}
}

// A policy must not hide in a file that cannot be parsed.
func TestLintFailsOnWhatItCannotRead(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		code  int
		said  string
	}{
		{"no object", map[string]string{"values.yaml": "replicas: 1\n"}, command.ExitOK, "values.yaml:1: not a Kubernetes object"},
		{"a template of a chart", map[string]string{"app/Chart.yaml": "name: app\n", "app/templates/sub/hook.yaml": "{{ if .Values.on }}\nkind: {{ .Values.kind }}\n{{ end }}\n"}, command.ExitOK, "templates of a Helm chart are not objects"},
		{"no YAML", map[string]string{"policy.yaml": "kind: ValidatingAdmissionPolicy\n\tspec: {}\n"}, command.ExitError, "policy.yaml:2: "},
		{"templates without a chart", map[string]string{"templates/policy.yaml": "a: b: c\n"}, command.ExitError, "policy.yaml:1: "},
		{"a bad list", map[string]string{"policy.yaml": "apiVersion: v1\nkind: List\nitems: [1]\n"}, command.ExitError, "items[0] is not an object"},
		{"a bad document after a good one", map[string]string{"policy.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\na: b: c\n"}, command.ExitError, "policy.yaml:5: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range tt.files {
				file := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			out, problems, code := lintExecution(t, dir)
			// Long lines are wrapped.
			if code != tt.code || !strings.Contains(strings.Join(strings.Fields(out), " "), tt.said) {
				t.Errorf("exit code %d, want %d with %q\n%s%s", code, tt.code, tt.said, out, problems)
			}
		})
	}
}

// A page and a Markdown text have the findings, their places and the counts.
func TestLintPages(t *testing.T) {
	for format, want := range map[string][]string{
		"html":     {"<!doctype html>", "errors", "hooks.yaml:", "/docs/lint.md#"},
		"markdown": {"# Dangers in 1 webhook", "| level | where | what | rule |", "| error | `"},
	} {
		out, code := lintRun(t, lintExample, "-o", format)
		if code != command.ExitError {
			t.Errorf("%s: exit code %d", format, code)
		}
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%s: the output has no %q:\n%s", format, text, out)
			}
		}
	}
}

// --admission-control-config-file adds the manifest files of an API server, whose policies apply to policies.
func TestLintReadsManifestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("policies/protect.yaml", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: protect.static.k8s.io}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [admissionregistration.k8s.io], apiVersions: ["*"], operations: [DELETE], resources: [validatingadmissionpolicies]}]
  validations: [{expression: "!has(object.metadata.labels)"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: protect.static.k8s.io}
spec: {policyName: protect.static.k8s.io, validationActions: [Deny]}
`)
	configuration := func(plugins string) string {
		return write("configuration.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+plugins)
	}
	plugin := "- name: ValidatingAdmissionPolicy\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: ValidatingAdmissionPolicyConfiguration\n    staticManifestsDir: "
	out, problems, code := lintExecution(t, "--admission-control-config-file", configuration(plugin+filepath.Join(dir, "policies")+"\n"))
	if code != command.ExitError || !strings.Contains(out, "fails for every DELETE") || strings.Contains(out, "rule-never-matches") {
		t.Errorf("exit %d:\n%s%s", code, out, problems)
	}
	for file, want := range map[string]string{
		configuration("- {name: NamespaceLifecycle}\n"): "names no directory of manifest files",
		filepath.Join(dir, "nothing.yaml"):              "nothing.yaml",
	} {
		if _, problems, code := lintExecution(t, "--admission-control-config-file", file); code != command.ExitUsage || !strings.Contains(problems, want) {
			t.Errorf("%s: exit %d: %s, want %q", file, code, problems, want)
		}
	}
}
