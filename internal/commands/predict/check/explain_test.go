package check_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/check"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// written returns the set of one file.
func written(t *testing.T, name, text string) *manifests.Set {
	t.Helper()
	if text == "" {
		return nil
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := manifests.Read([]string{file}, nil)
	if err != nil || len(set.Problems) > 0 {
		t.Fatal(err, set.Problems)
	}
	return set
}

// rejections checks files and returns the errors.
func rejections(t *testing.T, o check.Options) (list []string) {
	t.Helper()
	o.Namespace = "default"
	found, err := check.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	list = errorsOf(found)
	for _, o := range found.Objects {
		if rejected := o.Verdict == check.Rejected; rejected && len(list) == 0 || rejected && o.Code == 0 {
			t.Errorf("%s: rejected with %d without a finding: %q", o.Title(), o.Code, list)
		}
	}
	return list
}

// errorsOf returns the errors of a report, each as LINE RULE: MESSAGE.
func errorsOf(found *check.Report) (list []string) {
	for i := range found.Findings {
		if f := &found.Findings[i]; f.Level == report.Error {
			list = append(list, fmt.Sprintf("%d %s: %s", f.Line, f.Rule, f.Text()))
		}
	}
	return list
}

// compare reports differences between the errors of a check and the expected ones: each is contained in its error.
func compare(t *testing.T, got, want []string) {
	t.Helper()
	wrong := len(got) != len(want)
	for i := range want {
		wrong = wrong || !strings.Contains(got[i], want[i])
	}
	if wrong {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// hook is a webhook that is never called. The text of a match condition follows.
const hook = `apiVersion: admissionregistration.k8s.io/v1
kind: KINDWebhookConfiguration
metadata: {name: w}
webhooks:
- name: w.example.com
  clientConfig: {url: "https://127.0.0.1:9/x"}
  rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}]
  failurePolicy: POLICY
  sideEffects: None
  admissionReviewVersions: [v1]
  matchConditions: [{name: c, expression: "EXPRESSION"}]
---
`

// A rejection that needs no call of a webhook is an error, as with kube-apiserver: a match condition that cannot be
// evaluated, under Fail. It sees the object as later plugins see it.
func TestRejectionsWithoutACall(t *testing.T) {
	const (
		labels = "object.metadata.labels['x'] == 'a'"
		secret = "{apiVersion: v1, kind: Secret, metadata: {name: s}}\n"
		denied = `denied/webhook/w/w.example.com: secrets "s" is forbidden: `
	)
	with := func(kind, policy, expression string) string {
		return strings.NewReplacer("KIND", kind, "POLICY", policy, "EXPRESSION", expression).Replace(hook)
	}
	const labeler = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: labels}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]}
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'x': 'b'}}}"}}]
---
{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: labels}, spec: {policyName: labels}}
---
`
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: d, labels: {x: a}}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec: {containers: [{name: c, image: i}]}
`
	cases := map[string]struct {
		old, files string
		want       []string
	}{
		"a missing label":          {files: with("Validating", "Fail", labels) + secret, want: []string{"13 " + denied + "expression 'object.metadata.labels['x'] == 'a'' resulted in error: no such key: labels"}},
		"of a mutating webhook":    {files: with("Mutating", "Fail", labels) + secret, want: []string{"13 " + denied}},
		"with Ignore":              {files: with("Validating", "Ignore", labels) + secret},
		"a label that is there":    {files: with("Validating", "Fail", labels) + "{apiVersion: v1, kind: Secret, metadata: {name: s, labels: {x: b}}}\n"},
		"depends on the user":      {files: with("Validating", "Fail", "request.userInfo.extra['x'].size() > 0") + secret},
		"a label that is added":    {files: labeler + with("Validating", "Fail", "object.kind != 'Secret' || "+labels) + secret},
		"a namespace before it":    {files: with("Validating", "Fail", "object.metadata.annotations['x'] == 'a'") + "{apiVersion: v1, kind: Namespace, metadata: {name: space}}\n"},
		"pods of a workload":       {files: with("Validating", "Fail", "object.kind != 'Pod' || "+labels) + deployment, want: []string{"18 rejected-pods/webhook/w/w.example.com: spec.template: the Pod that the controller of ReplicaSet"}},
		"an update":                {old: "{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: b}}", files: with("Validating", "Fail", "object.kind != 'Secret' || oldObject.metadata.labels['x'] == 'a'") + "{apiVersion: v1, kind: Secret, metadata: {name: s, labels: {x: a}}}\n", want: []string{"13 " + denied}},
		"a deletion":               {old: secret, files: with("Validating", "Fail", "oldObject == null || oldObject.kind != 'Secret' || oldObject.metadata.labels['x'] == 'a'"), want: []string{"1 denied/webhook/w/w.example.com: the deletion would be rejected: "}},
		"a field that has default": {files: with("Validating", "Fail", "object.kind != 'Secret' || object.type == 'Opaque'") + secret},
	}
	for _, name := range speed.Some(t, 2, slices.Sorted(maps.Keys(cases))) {
		tc := cases[name]
		t.Run(name, func(t *testing.T) {
			compare(t, rejections(t, check.Options{Set: written(t, "new.yaml", tc.files), Old: written(t, "old.yaml", tc.old), Expand: true}), tc.want)
		})
	}
}

// A change of a service is checked as a change if its cluster IP is outside of the range of this server.
func TestChangesOfServicesOfAnyRange(t *testing.T) {
	service := func(spec string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {a: b}, ports: [{port: 80}], " + spec + "}\n"
	}
	const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: kept}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [services]}]}
  validations: [{expression: "object.spec.ports[0].port == oldObject.spec.ports[0].port", message: "the port stays"}]
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: kept}, spec: {policyName: kept, validationActions: [Deny]}}
---
`
	cases := map[string]struct {
		old, files string
		want       []string
	}{
		"another address":        {service("clusterIP: 10.0.0.22"), service("clusterIP: 10.0.0.99"), []string{`4 invalid: spec.clusterIPs[0]: Invalid value: ["10.0.0.99"]: may not change once set`}},
		"into the default range": {service("clusterIP: 10.0.0.22"), service("clusterIP: 10.96.0.100"), []string{`spec.clusterIPs[0]: Invalid value: ["10.96.0.100"]: may not change once set`}},
		"the other family":       {service("clusterIP: 'fd00::1'"), service("clusterIP: 'fd00::2'"), []string{`spec.clusterIPs[0]: Invalid value: ["fd00::2"]: may not change once set`}},
		"the second address":     {service("clusterIPs: [10.0.0.22, 'fd00::1'], clusterIP: 10.0.0.22, ipFamilyPolicy: RequireDualStack"), service("clusterIPs: [10.0.0.22, 'fd00::2'], clusterIP: 10.0.0.22, ipFamilyPolicy: RequireDualStack"), []string{`spec.clusterIPs[1]: Invalid value: ["10.0.0.22","fd00::2"]: may not change once set`}},
		"no address any more":    {service("clusterIP: 10.0.0.22"), service("clusterIP: None"), []string{`spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set`}},
		"a policy of updates":    {service("clusterIP: 10.0.0.22"), policy + strings.Replace(service("clusterIP: 10.0.0.22"), "port: 80", "port: 81", 1), []string{"denied/policy/kept"}},
		"another selector":       {service("clusterIP: 10.0.0.22"), strings.Replace(service("clusterIP: 10.0.0.22"), "a: b", "a: c", 1), nil},
		"two services":           {"", service("clusterIP: 10.0.0.22") + "---\n" + strings.Replace(service("clusterIP: 10.0.0.22"), "web", "other", 1), []string{`10.0.0.22: provided IP is already allocated`}},
	}
	for _, name := range speed.Some(t, 1, slices.Sorted(maps.Keys(cases))) {
		tc := cases[name]
		t.Run(name, func(t *testing.T) {
			compare(t, rejections(t, check.Options{Set: written(t, "new.yaml", tc.files), Old: written(t, "old.yaml", tc.old)}), tc.want)
		})
	}
}

// Findings about values that cannot be decoded, and about misspelled kinds, are at their fields.
func TestFindingsAreAtTheirField(t *testing.T) {
	const files = `apiVersion: v1
kind: Pod
metadata:
  name: p
spec:
  containers:
  - name: a
    image: i
  - name: b
    image: i
    ports:
    - containerPort: "80"
---
apiVersion: v1
kind: Pod
metadata:
  name: q
spec:
  containers:
  - name: a
    image: i
    resources:
      limits:
        memory: 1 GB
---
apiVersion: v1
kind: secret
metadata:
  name: s
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: c
  labels:
    a: b
    app.kubernetes.io/version: 1.2
`
	want := []string{
		`12 invalid: spec.containers[1].ports[0].containerPort: `, `24 invalid: spec.containers[0].resources.limits.memory: `,
		`27 unknown-kind: no matches for kind "secret" in version "v1" (did you mean Secret?)`, `37 invalid: metadata.labels[app.kubernetes.io/version]: `,
	}
	set := written(t, "new.yaml", files)
	found, err := check.Run(t.Context(), check.Options{Set: set, Namespace: "default", MissingDefinitions: check.MissingIsSkipped})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range found.Findings {
		got = append(got, fmt.Sprintf("%d %s: %s", found.Findings[i].Line, found.Findings[i].Rule, found.Findings[i].Text()))
	}
	compare(t, got, want)
}

// A policy that uses the namespace of an object never sees one without a namespace. A note names the namespace.
func TestTheNamespaceOfObjectsWithoutOne(t *testing.T) {
	const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: c38}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "has(object.metadata.namespace)"}]
---
`
	const note = "1 object without a namespace, the first ConfigMap a at "
	for text, want := range map[string]bool{
		policy + "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}": true, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}": false,
		policy + "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}": false,
	} {
		found, err := check.Run(t.Context(), check.Options{Set: written(t, "new.yaml", text), Namespace: "default"})
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(found.Notes, "\n"); strings.Contains(notes, note) != want || want && !strings.HasSuffix(notes, ": policies see the namespace default") {
			t.Errorf("%s: notes %q", text, notes)
		}
	}
}
