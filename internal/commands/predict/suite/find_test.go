package suite

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// wrong checks that the files of the working directory have one error that contains texts, and no tests.
func wrong(t *testing.T, says ...string) {
	t.Helper()
	set, err := Find([]string{"."}, Reading{})
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Suites) > 0 || !slices.ContainsFunc(set.Errors, func(e *FileError) bool {
		return !slices.ContainsFunc(says, func(text string) bool { return !strings.Contains(e.Error(), text) })
	}) {
		t.Errorf("%d suites, %v, want %q", len(set.Suites), set.Errors, says)
	}
}

// write writes files into a new directory, which becomes the working directory.
func write(t *testing.T, texts map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for file, text := range texts {
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A faulty file with tests is an error with its line, and none of its tests is read (S24.9).
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
		"a tab":                       {begin + "- name: a\n  request:\n\tobject: {}\n", "tests.yaml:6: "},
		"a field validation":          {begin + "- name: a\n  request: {fieldValidation: Strct, object: {apiVersion: v1, kind: A}}\n  expect: {allowed: true}\n", `5: fieldValidation "Strct" is not one of Strict, Warn, Ignore`},
		"a field twice":               {begin + "- name: a\n" + request + "  expect:\n    allowed: true\n    allowed: false\n", `8: expect has the field "allowed" twice`},
		"a bad time":                  {begin + "- name: a\n  request: {of: Pod a, operation: DELETE, timeout: soon}\n  expect: {allowed: true}\n", `5: timeout "soon" is not a time`},
		"an answer for nobody":        {begin + "- name: a\n  request: {of: Pod a, operation: DELETE, webhooks: [{allowed: true}]}\n  expect: {allowed: true}\n", "5: an answer names no webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, map[string]string{"tests.yaml": tc.text})
			wrong(t, "tests.yaml:", tc.says)
		})
	}
}

// A faulty suite of another tool is an error with its line, and never a test that passes (S24.9).
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
			write(t, map[string]string{
				"suite.yaml":    tc.text,
				"object.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
				"template.yaml": "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nspec: {crd: {spec: {names: {kind: K}}}, targets: [{code: [{engine: K8sNativeValidation, source: {validations: [{expression: 'true'}]}}]}]}\n",
				"policy.yaml":   "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\n",
			})
			wrong(t, "suite.yaml:"+tc.says)
		})
	}
}

// A file that looks as if it had tests is an error with its line and the nearest name, and the other files without
// tests are counted (S24.21).
func TestFilesThatLookLikeTestsAreErrors(t *testing.T) {
	const test = "tests: [{name: a, request: {of: Pod a, operation: DELETE}, expect: {allowed: false}}]\n"
	const own = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\n" + test
	const kyverno = "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: a}\npolicies: [policy.yaml]\nresources: [policy.yaml]\n"
	utf16 := func(text string) string {
		var b strings.Builder
		b.WriteString("\xff\xfe")
		for i := range len(text) {
			b.WriteString(text[i:i+1] + "\x00")
		}
		return b.String()
	}
	for name, tc := range map[string]struct {
		file, text string
		// says is empty for a file that neither has tests nor looks like it.
		says string
	}{
		"another kind of ours":           {"tests.yaml", "# tests\napiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTest\n" + test, `tests.yaml:3: gatehouse.dev has no kind "AdmissionTest" (did you mean AdmissionTests?)`},
		"a kind that is near none":       {"tests.yaml", "{apiVersion: gatehouse.dev/v1alpha1, kind: Suite}", `tests.yaml:1: gatehouse.dev has no kind "Suite": the kind AdmissionTests has tests`},
		"another kind of gator's":        {"suite.json", `{"apiVersion": "test.gatekeeper.sh/v1alpha1", "kind": "Suites", "tests": []}`, `suite.json:1: test.gatekeeper.sh has no kind "Suites" (did you mean Suite?)`},
		"another kind of Kyverno's":      {"kyverno-test.yaml", strings.Replace(kyverno, "kind: Test", "kind: Tests", 1), `kyverno-test.yaml:2: cli.kyverno.io has no kind "Tests" (did you mean Test?)`},
		"a Test without results":         {"kyverno-test.yaml", kyverno + "result:\n- {policy: p, resources: [a], result: pass}\n", `kyverno-test.yaml:6: the Test has no field "result" (did you mean results?)`},
		"a Test with no results at all":  {"kyverno-test.yaml", kyverno, "kyverno-test.yaml:1: the Test has no results"},
		"a Suite without tests":          {"suite.yaml", "apiVersion: test.gatekeeper.sh/v1alpha1\nkind: Suite\ntest:\n- {name: a}\n", `suite.yaml:3: the Suite has no field "test" (did you mean tests?)`},
		"UTF-16":                         {"tests.yaml", utf16(own), "tests.yaml:1: the file has NUL bytes, as UTF-16 has: save it as UTF-8"},
		"a NUL":                          {"tests.yaml", own + "# \x00\n", "tests.yaml:4: the file has NUL bytes"},
		"an extension in capitals":       {"tests.YAML", own, "tests.YAML: the file has tests, and is not read, because its name does not end in .yaml"},
		"a section of an archive":        {"a.txtar", "-- tests.yaml --\napiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTets\n" + test, `a.txtar:3: gatehouse.dev has no kind "AdmissionTets" (did you mean AdmissionTests?)`},
		"another kind of ours, that is":  {"a.yaml", "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTrace\n", ""},
		"values of Kyverno":              {"values.yaml", "apiVersion: cli.kyverno.io/v1alpha1\nkind: Values\n", ""},
		"a text that speaks of tests":    {"a.yaml", "apiVersion: v1\nkind: ConfigMap\ndata: {a: 'apiVersion: gatehouse.dev/v1alpha1'}\n", ""},
		"an archive without tests":       {"a.txtar", "-- a.yaml --\nkind: A\n", ""},
		"UTF-16 of something else":       {"a.yaml", utf16("kind: A\n"), ""},
		"a file that is not looked into": {"README.md", own, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, map[string]string{tc.file: tc.text})
			if tc.says != "" && tc.says != "none" {
				wrong(t, tc.says)
				return
			}
			var want []string
			if tc.says == "" {
				want = []string{tc.file}
			}
			set, err := Find([]string{"."}, Reading{})
			if err != nil || len(set.Errors)+len(set.Suites) > 0 {
				t.Fatal(err, set.Errors)
			}
			if diff := cmp.Diff(want, set.Without); diff != "" {
				t.Errorf("files without tests (-want +got):\n%s", diff)
			}
		})
	}
}

// A missing path of a test environment is an error of its file (S24.9).
func TestAWorldThatIsNotThereIsAnError(t *testing.T) {
	write(t, map[string]string{"tests.yaml": "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\nworld:\n- missing.yaml\ntests: [{name: a, request: {of: Pod a, operation: DELETE}, expect: {allowed: false}}]\n"})
	wrong(t, "tests.yaml:4: world: missing.yaml: no such file or directory")
}

// The suites of files next to a faulty one are read (S24.9).
func TestAWrongFileLeavesTheOthers(t *testing.T) {
	const good = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\nworld: []\ntests: [{name: a, request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}, expect: {allowed: true}}]\n"
	write(t, map[string]string{"a.yaml": strings.Replace(good, "tests:", "test:", 1), "b.yaml": good})
	set, err := Find([]string{"."}, Reading{})
	if err != nil || len(set.Errors) == 0 || len(set.Suites) != 1 {
		t.Fatal(err, set)
	}
	report, err := Run(t.Context(), Options{Set: set})
	if err != nil || report.Summary.Passed != 1 || len(report.Wrong) == 0 || report.Wrong[0].File != "a.yaml" {
		t.Errorf("%v, %+v", err, report)
	}
}
