package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// run runs the tests of a file as by a release; empty for the release of this program.
func run(t *testing.T, text, release string) *Report {
	t.Helper()
	return runWith(t, text, Options{Fields: emulation.FieldsOf(release)})
}

// runWith runs the tests of a file, which is written to a directory of its own.
func runWith(t *testing.T, text string, o Options) *Report {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if o.Set, err = Find([]string{file}, Reading{Call: o.Call, Update: true}); err != nil || len(o.Set.Errors) > 0 {
		t.Fatal(err, o.Set.Errors)
	}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// S24.6: a user bound to an aggregated role has the rights of the roles that it selects, as in a cluster, where a
// controller writes them into the role.
func TestAggregatedRolesGiveRights(t *testing.T) {
	report := run(t, `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionTests
authorize: true
tests:
- name: an editor writes
  request: {user: ada, object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}}
  expect: {allowed: true}
- name: and gives nobody rights
  request: {user: ada, object: {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a, namespace: default}, rules: []}}
  expect: {allowed: false, by: {plugin: authorization}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editors, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}]
`, "")
	for _, r := range report.Tests {
		if r.Status != Passed {
			t.Errorf("%s: %s %s %+v", r.Name, r.Status, r.Message, r.Failures)
		}
	}
	if len(report.Tests) != 2 {
		t.Errorf("%d tests", len(report.Tests))
	}
}

// S26.12: a field newer than the release is unknown in tests, both in a request and in the test environment.
func TestLaterFieldsAreUnknown(t *testing.T) {
	const begin = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests:\n"
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default}, spec: {evictionResponders: [{name: example.com/a}], containers: [{name: c, image: i}]}}"
	for _, tc := range []struct {
		name, release, text string
		status              Status
		message             string
	}{
		{"this release has the field", "", begin + "- {name: a, request: {object: " + pod + "}, expect: {allowed: true}}\n", Passed, ""},
		{"an older one does not", "v1.34.0", begin + "- {name: a, request: {object: " + pod + "}, expect: {allowed: false, code: 400, by: {plugin: api}, message: {contains: 'unknown field \"spec.evictionResponders\"'}}}\n", Passed, ""},
		{"who may not, learns that first", "v1.34.0", begin + "- {name: a, request: {user: ada, authorize: true, object: " + pod + "}, expect: {allowed: false, by: {plugin: authorization}}}\n", Passed, ""},
		{"nor may the world have it", "v1.34.0", begin + "- {name: a, request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}}, expect: {allowed: true}}\n---\n" + pod + "\n", Broken, "spec.evictionResponders: unknown field"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := run(t, tc.text, tc.release).Tests[0]
			if r.Status != tc.status || !strings.Contains(r.Message, tc.message) {
				t.Errorf("%s %q %+v", r.Status, r.Message, r.Failures)
			}
		})
	}
}

// S24.20: a run in which all tests are skipped is an error with the reason. FailOnSkip turns skipped tests into errors.
func TestRunsThatJudgeNothing(t *testing.T) {
	const begin = "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests:\n"
	skipped := func(name, reason string) string {
		return fmt.Sprintf("- {name: %s, skip: %s, request: {of: Pod a, operation: DELETE}, expect: {allowed: true}}\n", name, reason)
	}
	const judged = "- {name: judged, request: {of: Pod a, operation: DELETE}, expect: {allowed: false}}\n"
	for _, tc := range []struct {
		name, text string
		fail       *regexp.Regexp
		nothing    string
		want       Summary
	}{
		{"all are skipped", skipped("a", "rare") + skipped("b", "often") + skipped("c", "often"), nil, "most of them for this reason: often (", Summary{Tests: 3, Skipped: 3}},
		{"one is judged", skipped("a", "rare") + judged, nil, "", Summary{Tests: 2, Skipped: 1, Passed: 1}},
		{"no skip is allowed", skipped("a", "rare") + judged, regexp.MustCompile("."), "", Summary{Tests: 2, Errors: 1, Passed: 1}},
		{"no skip for one reason is allowed", skipped("a", "rare") + skipped("b", "often"), regexp.MustCompile("^rare$"), "", Summary{Tests: 2, Errors: 1, Skipped: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report := runWith(t, begin+tc.text, Options{FailOnSkip: tc.fail})
			got, nothing := report.Summary, report.Nothing()
			got.Files, got.Seconds, got.StartSeconds, got.WorldSeconds, got.TestSeconds = 0, 0, 0, 0, 0
			if got != tc.want || (nothing != nil) != (tc.nothing != "") || nothing != nil && !strings.Contains(nothing.Error(), tc.nothing) {
				t.Errorf("%+v, %v", got, nothing)
			}
		})
	}
}

// S24.23: the usage of a quota in the test environment is the usage in its status, or else the usage of the
// environment's objects.
func TestQuotasHaveUsedWhatTheirStatusSays(t *testing.T) {
	const begin = `apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionTests
tests:
- name: another pod
  request: {object: {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: i}]}}}
`
	const quota = "---\n{apiVersion: v1, kind: ResourceQuota, metadata: {name: pods, namespace: default}, spec: {hard: {pods: 2}}%s}\n"
	const pod = "---\n{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default}, spec: {containers: [{name: c, image: i}]}}\n"
	const allowed = "  expect: {allowed: true}\n"
	rejected := func(used int) string {
		return fmt.Sprintf("  expect: {allowed: false, by: {plugin: ResourceQuota}, message: {contains: 'requested: pods=1, used: pods=%d, limited: pods=2'}}\n", used)
	}
	used := func(n int) string {
		return fmt.Sprintf(quota, fmt.Sprintf(", status: {hard: {pods: 2}, used: {pods: %d}}", n))
	}
	for _, tc := range speed.Some(t, 1, []struct{ name, text string }{
		{"all that there may be", rejected(2) + used(2)},
		{"more than there may be", rejected(3) + used(3)},
		{"one", allowed + used(1)},
		{"one, which is in the world", allowed + used(1) + fmt.Sprintf(pod, "a")},
		{"all, of which one is in the world", rejected(2) + used(2) + fmt.Sprintf(pod, "a")},
		{"one, and two are in the world", allowed + used(1) + fmt.Sprintf(pod, "a") + fmt.Sprintf(pod, "c")},
		{"no status", allowed + fmt.Sprintf(quota, "")},
		{"no status, and two are in the world", rejected(2) + fmt.Sprintf(quota, "") + fmt.Sprintf(pod, "a") + fmt.Sprintf(pod, "c")},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			if r := runWith(t, begin+tc.text, Options{}).Tests[0]; r.Status != Passed {
				t.Errorf("%s %q %+v", r.Status, r.Message, r.Failures)
			}
		})
	}
}

// S24.24: a test that refers to a name which nothing in the test environment has is an error.
func TestNamesThatNothingHas(t *testing.T) {
	const world = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hooks}
webhooks: [{name: judge.example.com, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: "https://127.0.0.1:1"}, rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]}]
`
	const object = "object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
	for _, tc := range []struct{ request, expect, message string }{
		{object, "allowed: true, notCalled: [hooks]", ""},
		{object, "allowed: true, notCalled: [judge.example.com, hooks/judge.example.com]", ""},
		{object, "allowed: true, notCalled: [jugde.example.com]", `notCalled: the test environment has no webhook "jugde.example.com" (did you mean judge.example.com?)`},
		{object, "allowed: false, called: [hook]", `called: the test environment has no webhook "hook" (did you mean hooks?)`},
		{object, "allowed: false, by: {webhook: other}", `by: the test environment has no webhook "other"`},
		{object, "allowed: false, by: {policy: limits}", `by: the test environment has no policy "limits"`},
		{object, "allowed: false, by: {binding: limits}", `by: the test environment has no binding "limits"`},
		{object + ", webhooks: [{webhook: judge.example.org, allowed: true}]", "allowed: true", `webhooks: the test environment has no webhook "judge.example.org" (did you mean judge.example.com?)`},
	} {
		r := runWith(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests: [{name: a, request: {"+tc.request+"}, expect: {"+tc.expect+"}}]\n"+world, Options{}).Tests[0]
		if want := map[bool]Status{true: Passed, false: Broken}[tc.message == ""]; r.Status != want || !strings.Contains(r.Message, tc.message) {
			t.Errorf("%s: %s %q %+v", tc.expect, r.Status, r.Message, r.Failures)
		}
	}
}

// All faults of a test environment are reported once: its other tests refer to the test that reports them (S24.4).
func TestFaultsOfAWorldAreSaidOnce(t *testing.T) {
	const test = "- {name: %s, request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}, expect: {allowed: true}}\n"
	report := runWith(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\ntests:\n"+fmt.Sprintf(test, "a")+fmt.Sprintf(test, "b")+
		"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: A_}}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: B_}}\n", Options{})
	first, second := report.Tests[0].Message, report.Tests[1].Message
	if !strings.HasPrefix(first, noWorld) || !strings.Contains(first, "ConfigMap A_") || !strings.Contains(first, "\n") || !strings.Contains(first, "Secret B_") {
		t.Errorf("the first says %s", first)
	}
	if !strings.HasPrefix(second, noWorld+", for the reason that a has (") || strings.Contains(second, "A_") {
		t.Errorf("the second says %s", second)
	}
}

// S24.25: a test chooses the validation of unknown fields, as a client does.
func TestFieldValidation(t *testing.T) {
	const object = "object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, dta: {}}"
	for _, tc := range []struct{ request, expect string }{
		{object, "{allowed: false, code: 400, by: {plugin: api}}"},
		{object + ", fieldValidation: Strict", "{allowed: false, code: 400, by: {plugin: api}}"},
		{object + ", fieldValidation: Warn", "{allowed: true, warnings: ['unknown field \"dta\"']}"},
		{object + ", fieldValidation: Ignore", "{allowed: true, warnings: []}"},
	} {
		r := run(t, "apiVersion: gatehouse.dev/v1alpha1\nkind: AdmissionTests\nworld: []\ntests: [{name: a, request: {"+tc.request+"}, expect: "+tc.expect+"}]\n", "").Tests[0]
		if r.Status != Passed {
			t.Errorf("%s: %s %q %+v", tc.request, r.Status, r.Message, r.Failures)
		}
	}
}
