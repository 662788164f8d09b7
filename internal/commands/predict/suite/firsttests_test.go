package suite

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// S24.35: the first tests of a policy are requests that a server evaluated as they expect. A validation without a
// request has a comment.
func TestFirstTests(t *testing.T) {
	policy := func(name, rest string) string {
		return `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: ` + name + `}
spec:
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [` + rest + `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: ` + name + `}
spec: {policyName: ` + name + `, validationActions: [Deny]}
`
	}
	limit := policy("limit", `deployments]}]}
  paramKind: {apiVersion: v1, kind: ConfigMap}
  validations: [{expression: object.spec.replicas <= int(params.data.most)}]
`)
	for _, tc := range speed.Some(t, 2, []struct {
		name, policies string
		passed         int
		says           []string
	}{
		{"labels, images and numbers", policy("web", `deployments]}]}
  variables:
  - {name: pod, expression: object.spec.template.spec}
  validations:
  - {expression: "has(object.metadata.labels) && 'team' in object.metadata.labels", message: a team is needed}
  - {expression: "variables.pod.containers.all(c, c.image.startsWith('registry.example.com/'))", message: another registry}
  - {expression: object.spec.replicas <= 5, message: too many}
  - {expression: "!has(variables.pod.hostNetwork) || variables.pod.hostNetwork == false", message: the network of the host}
`), 5, nil},
		{"what nobody can reject", policy("never", `configmaps]}]}
  validations:
  - {expression: "true || object.data.size() > 1", message: never}
`), 1, []string{"# Missing: never: no request was found that spec.validations[0] rejects"}},
		{"a condition on the kind", policy("kinds", `pods]}]}
  validations: [{expression: "object.kind != 'Pod' || !has(object.spec.hostNetwork) || !object.spec.hostNetwork"}]
`), 2, nil},
		{"namespaces that the binding selects", strings.Replace(policy("few", `deployments]}]}
  validations: [{expression: object.spec.replicas <= 5}]
`), "[Deny]", "[Deny], matchResources: {namespaceSelector: {matchLabels: {env: prod}}, objectSelector: {matchExpressions: [{key: app, operator: In, values: [web]}]}}", 1), 2,
			[]string{"env: prod", "app: web"}},
		{"a name that the rule selects", strings.Replace(policy("named", `configmaps]}]}
  validations: [{expression: "!has(object.data)"}]
`), "resources: [configmaps]", "resources: [configmaps], resourceNames: [settings]", 1), 2, []string{"name: settings"}},
		{"elements of lists", policy("lists", `pods]}]}
  validations:
  - {expression: "!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))"}
  - {expression: "!has(object.spec.initContainers) || object.spec.initContainers.all(c, has(c.securityContext) && has(c.securityContext.runAsNonRoot) && c.securityContext.runAsNonRoot)"}
  - {expression: "object.spec.containers.all(c, !has(c.ports) || c.ports.all(p, !has(p.hostPort)))"}
  - {expression: "!has(object.spec.initContainers) || object.spec.initContainers.all(c, !has(c.livenessProbe) || !has(c.livenessProbe.httpGet) || !has(c.livenessProbe.httpGet.host))"}
  - {expression: "object.spec.containers.all(c, !has(c.resources.limits) || quantity(c.resources.limits.memory).isLessThan(quantity('1Gi')))"}
`), 6, nil},
		{"params that nobody has written", strings.Replace(limit, "[Deny]", "[Deny], paramRef: {name: limits, parameterNotFoundAction: Deny}", 1), 2, []string{"kind: ConfigMap", "- policies-tests.yaml"}},
		{"params that a selector selects", strings.Replace(limit, "[Deny]", "[Deny], paramRef: {selector: {matchLabels: {tier: web}}, parameterNotFoundAction: Deny}", 1) +
			"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {tier: db}}, data: {most: '1'}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: b, labels: {tier: web}}, data: {most: '7'}}\n", 2, []string{"replicas: 8"}},
		{"params that a selector would select", strings.Replace(limit, "[Deny]", "[Deny], paramRef: {selector: {matchExpressions: [{key: tier, operator: In, values: [web]}]}, parameterNotFoundAction: Deny}", 1), 2, []string{"kind: ConfigMap", "tier: web"}},
		{"the old object, the user and the authorizer", policy("users", `configmaps]}]}
  validations:
  - {expression: "oldObject == null || !has(oldObject.data) || oldObject.data == object.data"}
  - {expression: "authorizer.group('').resource('secrets').check('list').allowed()"}
  - {expression: "request.userInfo.username != 'jane'"}
`), 4, []string{"oldObject:", "user:"}},
		{"a kind of objects for each validation", policy("all", `"pods", "services", "cronjobs"]}]}
  validations:
  - {expression: "object.kind != 'Service' || object.spec.type != 'NodePort'"}
  - {expression: "object.kind != 'CronJob' || object.spec.jobTemplate.spec.template.spec.containers.all(c, has(c.securityContext))"}
`), 3, []string{"kind: Service", "kind: CronJob"}},
		{"what only warns", strings.Replace(policy("warns", `configmaps]}]}
  validations: [{expression: "!has(object.data)", message: no data}]
`), "[Deny]", "[Warn]", 1), 2, []string{"warnings:"}},
		{"mutations", strings.ReplaceAll(strings.Replace(policy("mutates", `configmaps]}]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - {patchType: ApplyConfiguration, applyConfiguration: {expression: "has(object.metadata.labels) && 'team' in object.metadata.labels ? Object{} : Object{metadata: Object.metadata{labels: {'team': 'none'}}}"}}
`), ", validationActions: [Deny]", "", 1), "Validating", "Mutating"), 2, []string{"mutates changes by spec.mutations[0]", "mutates leaves a request as it is"}},
		{"JSON patches of lists that have elements, by two policies", strings.ReplaceAll(strings.ReplaceAll(policy("mounts", `jobs]}]}
  matchConditions:
  - {name: new, expression: "!has(object.spec.template.spec.volumes) || !object.spec.template.spec.volumes.exists(v, v.name == 'cache')"}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: |
        [JSONPatch{op: "add", path: "/spec/template/spec/containers/0/volumeMounts/-", value: Object.spec.template.spec.containers.volumeMounts{name: "cache", mountPath: "/cache"}},
         JSONPatch{op: "add", path: "/spec/template/spec/volumes/-", value: Object.spec.template.spec.volumes{name: "cache"}},
         JSONPatch{op: "add", path: "/spec/template/metadata/annotations/example.com~1" + "cache", value: "yes"}]
`)+"---"+policy("waits", `jobs]}]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: |
        has(object.spec.template.spec.initContainers) ? [] : [JSONPatch{op: "add", path: "/spec/template/spec/initContainers", value: [Object.spec.template.spec.initContainers{
          name: "wait", image: "example.com/wait:1.0", volumeMounts: [Object.spec.template.spec.initContainers.volumeMounts{name: "certs", mountPath: "/certs"}]}]}]
`), ", validationActions: [Deny]", ""), "Validating", "Mutating"), 4, []string{"mounts changes by spec.mutations[0]", "mounts excludes a request", "waits leaves a request"}},
		{"extra fields of users", policy("nodes", `configmaps]}]}
  validations: [{expression: "has(request.userInfo.extra) && 'example.com/node' in request.userInfo.extra"}]
`), 2, []string{"extra:"}},
		{"other objects in a namespace that no file has", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: tools}}\n---" + policy("free", `configmaps]}]}
  validations: [{expression: "!has(object.data)"}]
`), 2, []string{"kind: Namespace\nmetadata:\n  name: tools\n"}},
		{"an object that needs one of several fields", `
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: runs.example.com}, spec: {group: example.com, scope: Namespaced, names: {kind: Run, plural: runs},
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, required: [spec], properties: {spec: {type: object, minProperties: 1, properties: {agent: {type: string}, steps: {type: integer}}}}}}}]}}
---` + policy("runs", `runs]}]}
  validations: [{expression: "!has(object.spec.steps)"}]
`), 2, nil},
		{"an old version", strings.ReplaceAll(policy("old", `configmaps]}]}
  validations: [{expression: "!has(object.data)"}]
`), "k8s.io/v1", "k8s.io/v1beta1"), 0, []string{"does not serve admissionregistration.k8s.io/v1beta1 ValidatingAdmissionPolicy (did you mean ValidatingAdmissionPolicy of admissionregistration.k8s.io/v1?)"}},
		{"no binding", strings.Split(policy("free", `configmaps]}]}
  validations: [{expression: "false"}]
`), "---")[0], 0, []string{"policies.yaml: no test could be made:\nno binding of free is in ., and a policy without one evaluates no request"}},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			write(t, map[string]string{"policies.yaml": tc.policies})
			text, err := First(t.Context(), "policies.yaml", FirstOptions{})
			if tc.passed == 0 {
				if err == nil || !strings.Contains(err.Error(), tc.says[0]) {
					t.Errorf("got %v, want %q", err, tc.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, says := range tc.says {
				if !strings.Contains(string(text), says) {
					t.Errorf("%s\nwant %q in it", text, says)
				}
			}
			if err := os.WriteFile("policies-tests.yaml", text, 0o600); err != nil {
				t.Fatal(err)
			}
			set, err := Find([]string{"."}, Reading{})
			if err != nil || len(set.Errors) > 0 {
				t.Fatalf("%v %v\n%s", err, set.Errors, text)
			}
			report, err := Run(t.Context(), Options{Set: set})
			if err != nil {
				t.Fatal(err)
			}
			if report.Summary.Passed != tc.passed || report.Summary.Tests != tc.passed {
				t.Errorf("%+v\n%s", report.Summary, text)
			}
		})
	}
}

// S24.35: the file for a policy in a folder names the files that it needs, and the files of all policies pass together.
func TestFirstTestsOfAFolder(t *testing.T) {
	policy := func(expression string) string {
		return `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "` + expression + `"}]
`
	}
	const binding = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: p, validationActions: [Deny]}
`
	// The policies have one name, and contradict each other.
	write(t, map[string]string{
		"a/policy.yaml": policy("!has(object.data)"), "a/bound/binding.yaml": binding,
		"b/policy.yaml": policy("has(object.data)"), "b/bound/binding.yaml": binding,
	})
	list, err := PolicyFiles(".")
	if err != nil || !slices.Equal(list, []string{"a/policy.yaml", "b/policy.yaml"}) {
		t.Fatal(list, err)
	}
	for _, file := range list {
		text, err := First(t.Context(), file, FirstOptions{Root: "."})
		if err != nil {
			t.Fatal(err)
		}
		if want := "world:\n- bound/binding.yaml\n- policy.yaml\n"; !strings.Contains(string(text), want) {
			t.Errorf("%s\nwant %q in it", text, want)
		}
		if err := os.WriteFile(FirstFile(file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := Find([]string{"."}, Reading{})
	if err != nil || len(set.Errors) > 0 {
		t.Fatal(err, set.Errors)
	}
	report, err := Run(t.Context(), Options{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	if report.Summary.Passed != 4 || report.Summary.Tests != 4 {
		t.Errorf("%+v", report.Summary)
	}
}
