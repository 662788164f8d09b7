package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/cli/command"
)

// Each case is files, a command line and what it prints.
func TestTestScenarios(t *testing.T) { scenarios(t, "testdata/test") }

// A file with tests that is wrong is an error with its line, and no test of it runs (S24.9).
func TestBrokenTestFilesAreErrors(t *testing.T) {
	const begin = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests:\n"
	const request = "  request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}\n"
	for name, tc := range map[string]struct{ text, says string }{
		"wrong field":                 {begin + "- name: a\n" + request + "  expect: {alowed: true}\n", `6: expect has no field "alowed" (did you mean allowed?)`},
		"unknown field of a test":     {begin + "- name: a\n  weight: 3\n" + request + "  expect: {allowed: true}\n", `5: a test has no field "weight"`},
		"wrong type":                  {begin + "- name: a\n" + request + "  expect: {allowed: sure}\n", "6: allowed is a text, and must be true or false"},
		"a number for a text":         {begin + "- name: 3\n" + request + "  expect: {allowed: true}\n", "4: name is a number, and must be a text"},
		"unknown kind of a match":     {begin + "- name: a\n" + request + "  expect: {allowed: false, message: {like: a}}\n", `6: message has no field "like": it may have contains, is, matches`},
		"two tests of one name":       {begin + "- name: a\n" + request + "  expect: {allowed: true}\n- name: a\n" + request + "  expect: {allowed: true}\n", `7: there is another test "a", in line 4`},
		"two rows of one name":        {begin + "- name: a\n" + request + "  expect: {allowed: true}\n  rows:\n  - {name: b}\n  - {name: b}\n", `9: there is another test "a/b", in line 8`},
		"nothing is expected":         {begin + "- name: a\n" + request, `4: the test "a" expects nothing`},
		"an empty expectation":        {begin + "- name: a\n" + request + "  expect: {}\n", "6: expect is empty"},
		"no request":                  {begin + "- name: a\n  expect: {allowed: true}\n", `4: the test "a" has no request`},
		"no tests":                    {begin[:len(begin)-7], "1: there are no tests"},
		"an empty list":               {begin[:len(begin)-7] + "tests: []\n", "3: there are no tests"},
		"a table without rows":        {begin + "- name: a\n" + request + "  expect: {allowed: true}\n  rows: []\n", `7: the table "a" has no rows`},
		"no YAML":                     {begin + "- name: [\n", "did not find expected node content"},
		"another version":             {strings.Replace(begin, "v1alpha1", "v3", 1) + "- name: a\n" + request + "  expect: {allowed: true}\n", `1: apiVersion "gatehouse.dev/v3"`},
		"an unknown operation":        {begin + "- name: a\n  request: {operation: READ, of: Pod a}\n  expect: {allowed: true}\n", `5: operation "READ" is not one of`},
		"no object":                   {begin + "- name: a\n  request: {user: ada}\n  expect: {allowed: true}\n", "5: a request that creates or updates needs an object"},
		"a wrong expression":          {begin + "- name: a\n" + request + "  expect: {allowed: false, message: {matches: '('}}\n", "6: message.matches: error parsing regexp"},
		"a reason of what passes":     {begin + "- name: a\n" + request + "  expect: {allowed: true, reason: Invalid}\n", "6: a request that is allowed has no reason"},
		"a path that leads nowhere":   {begin + "- name: a\n" + request + "  expect: {allowed: true}\n  rows:\n  - {name: b, set: {\"object.spec.containers[0].image\": a}}\n", "8: the path \"object.spec.containers[0].image\": there is no list before [0]"},
		"an object that is not there": {begin + "- name: a\n  request: {object: none.yaml}\n  expect: {allowed: true}\n", "5: object: "},
		"a field twice":               {begin + "- name: a\n" + request + "  expect:\n    allowed: true\n    allowed: false\n", `8: expect has the field "allowed" twice`},
		"a bad time":                  {begin + "- name: a\n  request: {of: Pod a, operation: DELETE, timeout: soon}\n  expect: {allowed: true}\n", `5: timeout "soon" is not a time`},
		"an answer for nobody":        {begin + "- name: a\n  request: {of: Pod a, operation: DELETE, webhooks: [{allowed: true}]}\n  expect: {allowed: true}\n", "5: an answer names no webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile("tests.yaml", []byte(tc.text), 0o644); err != nil {
				t.Fatal(err)
			}
			out, problems, code := execution(t.Context(), "", "test")
			if code != command.ExitUsage || out != "" || !strings.Contains(problems, "tests.yaml:") || !strings.Contains(problems, tc.says) {
				t.Errorf("exit %d, %q, want %q", code, problems, tc.says)
			}
		})
	}
}

// A suite of another tool that is wrong is an error with its line, and never a test that passes (S24.9).
func TestBrokenSuitesOfOtherToolsAreErrors(t *testing.T) {
	const gator = "apiVersion: test.gatekeeper.sh/v1alpha1\nkind: Suite\ntests:\n- name: a\n  template: template.yaml\n  constraint: object.yaml\n  cases:\n"
	const kyverno = "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\npolicies: [policy.yaml]\nresources: [object.yaml]\nresults:\n"
	const kaptest = "policies: [policy.yaml]\nresources: [object.yaml]\n"
	for name, tc := range map[string]struct{ text, says string }{
		"a case without assertions":    {gator + "  - {name: b, object: object.yaml}\n", `8: the case "a/b" has no assertions`},
		"violations of another type":   {gator + "  - name: b\n    object: object.yaml\n    assertions:\n    - {violations: maybe}\n", `11: violations is "maybe", and must be a number from 0, yes or no`},
		"fewer violations than none":   {gator + "  - {name: b, object: object.yaml, assertions: [{violations: -1}]}\n", `8: violations is -1, and must be a number from 0, yes or no`},
		"a message that is no pattern": {gator + "  - {name: b, object: object.yaml, assertions: [{message: '('}]}\n", "8: message: error parsing regexp"},
		"an object that is not there":  {gator + "  - {name: b, object: none.yaml, assertions: [{violations: no}]}\n", "8: none.yaml: no such file or directory"},
		"a test without a constraint":  {"apiVersion: test.gatekeeper.sh/v1alpha1\nkind: Suite\ntests:\n- {name: a, template: template.yaml}\n", `4: the test "a" needs a template and a constraint`},
		"an unknown result":            {kyverno + "- {policy: p, kind: ConfigMap, resources: [a], result: passed}\n", `6: the result of p is "passed", and must be one of pass, fail, skip, error, warn`},
		"an unknown operation":         {kyverno + "- {policy: p, kind: ConfigMap, resources: [a], result: pass, operation: READ}\n", `6: the operation of p is "READ"`},
		"a wrong type":                 {kyverno + "- {policy: p, resources: a, result: pass}\n", "1: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string into Go struct field kyvernoResult.Results.Resources"},
		"no patched resource":          {kyverno + "- {policy: p, kind: ConfigMap, resources: [a], result: pass, patchedResources: policy.yaml}\n", "6: the patched resource of ConfigMap a is not in policy.yaml"},
		"an unknown expectation":       {kaptest + "vapTestSuites: [{policy: p, tests: [{object: {kind: ConfigMap, name: a}, expect: allow}]}]\n", `3: test 1 of p expects "allow", which is not one of admit, deny, skip, error`},
		"an unknown policy":            {kaptest + "mapTestSuites:\n- policy: p\n  tests:\n  - {object: {kind: ConfigMap, name: a}, expect: skip}\n", `6: there is no MutatingAdmissionPolicy "p" in the files`},
		"a policy that is not there":   {"policies: [none.yaml]\nvapTestSuites: [{policy: p, tests: [{object: {kind: ConfigMap, name: a}, expect: skip}]}]\n", "1: none.yaml: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for file, text := range map[string]string{
				"suite.yaml":    tc.text,
				"object.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
				"template.yaml": "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nspec: {crd: {spec: {names: {kind: K}}}, targets: [{code: [{engine: K8sNativeValidation, source: {validations: [{expression: 'true'}]}}]}]}\n",
				"policy.yaml":   "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\n",
			} {
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			out, problems, code := execution(t.Context(), "", "test")
			if code != command.ExitUsage || out != "" || !strings.Contains(problems, "suite.yaml:"+tc.says) {
				t.Errorf("exit %d, %q, %q, want %q", code, out, problems, tc.says)
			}
		})
	}
}

// A command line that means nothing exits with 2 and says what to write.
func TestTestRefusesWhatMeansNothing(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte("apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests:\n- name: a\n  request: {of: Pod a, operation: DELETE}\n  expect: {allowed: false}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"test", empty}, "there are no tests in " + empty},
		{[]string{"test", filepath.Join(dir, "missing")}, "missing: no such file or directory"},
		{[]string{"test", dir, "-o", "xml"}, `--output "xml" is not one of`},
		{[]string{"test", dir, "--run", "("}, "--run: error parsing regexp"},
		{[]string{"test", dir, "--run", "nothing"}, `--run "nothing" selects none of the tests`},
		{[]string{"test", dir, "--service-address", "a/b=c:1"}, "--service-address needs --call"},
	} {
		_, problems, code := execution(t.Context(), "", tc.args...)
		if code != command.ExitUsage || !strings.Contains(problems, tc.says) {
			t.Errorf("%q: exit %d, %q, want %q", tc.args, code, problems, tc.says)
		}
	}
	out, problems, code := execution(t.Context(), "", "test", "--list", dir)
	if code != command.ExitOK || out != good+":4: a\n" {
		t.Errorf("--list: exit %d, %q, %q", code, out, problems)
	}
}
