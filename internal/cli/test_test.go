package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
			if code != exitUsage || out != "" || !strings.Contains(problems, "tests.yaml:") || !strings.Contains(problems, tc.says) {
				t.Errorf("exit %d, %q, want %q", code, problems, tc.says)
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
		if code != exitUsage || !strings.Contains(problems, tc.says) {
			t.Errorf("%q: exit %d, %q, want %q", tc.args, code, problems, tc.says)
		}
	}
	out, problems, code := execution(t.Context(), "", "test", "--list", dir)
	if code != exitOK || out != good+":4: a\n" {
		t.Errorf("--list: exit %d, %q, %q", code, out, problems)
	}
}
