package lint_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// With these registrations, an API server rejects every request that they match, although it accepts the registrations
// silently (S15.2, S16.6, S16.24, S18.13, S18.20). Faults that only some requests meet are warnings, and correct
// expressions have no findings.
func TestExpressionsAreRightAboutTypes(t *testing.T) {
	const head = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: "
	hook := func(expression, rule string) string {
		return head + "ValidatingWebhookConfiguration\nmetadata: {name: hooks}\nwebhooks:\n- name: h.example.com\n  clientConfig: {url: 'https://hooks.example.com'}\n  admissionReviewVersions: [v1]\n  sideEffects: None\n" +
			"  rules: [{" + rule + "}]\n  matchConditions: [{name: one, expression: \"" + expression + "\"}]\n"
	}
	policy := func(kind, rule, rest, binding string) string {
		if kind == "Validating" {
			binding = "validationActions: [Deny], " + binding
		}
		return head + kind + "AdmissionPolicy\nmetadata: {name: one}\nspec:\n  matchConstraints: {resourceRules: [{" + rule + "}]}\n" + rest +
			head + kind + "AdmissionPolicyBinding\nmetadata: {name: bound}\nspec: {" + binding + "policyName: one}\n"
	}
	validates := func(expression, rule string) string {
		return policy("Validating", rule, "  validations: [{expression: \""+expression+"\"}]\n", "")
	}
	applies := func(expression, rule string) string {
		return policy("Mutating", rule, "  reinvocationPolicy: Never\n  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: \""+expression+"\"}}]\n", "")
	}
	patches := func(expression, rule string) string {
		return policy("Mutating", rule, "  reinvocationPolicy: Never\n  mutations: [{patchType: JSONPatch, jsonPatch: {expression: \""+expression+"\"}}]\n", "")
	}
	limited := func(expression, binding string) string {
		return policy("Validating", `apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]`,
			"  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: \""+expression+"\"}]\n", binding)
	}
	const (
		pods        = `apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]`
		deployments = `apiGroups: [apps], apiVersions: ["*"], operations: [CREATE], resources: [deployments]`
		both        = `apiGroups: ["", apps], apiVersions: [v1], operations: [CREATE], resources: [pods, deployments]`
		namespaces  = `apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [namespaces, configmaps]`
		things      = `apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [things]`
		everything  = `apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: ["*"]`
		definition  = "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\nspec:\n  group: example.com\n  scope: Namespaced\n  names: {kind: Thing, plural: things}\n" +
			"  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}, any: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}}]\n"
		types, null, constant = "expression-types", "variable-null", "validation-constant"
		unfit                 = "the expression does not fit the types: "
	)
	for _, tc := range []struct {
		name, rule, content string
		want                []string
	}{
		{"a match condition of a webhook", types, hook("object.metadata.nme != 'x'", pods), []string{"error " + unfit + "Pod of v1: undefined field 'nme' at 1:16 of the expression; each request about a Pod is rejected"}},
		{"a webhook that fails open", types, strings.Replace(hook("object.metadata.nme != 'x'", pods), "  sideEffects", "  failurePolicy: Ignore\n  sideEffects", 1),
			[]string{"warning " + unfit + "Pod of v1: undefined field 'nme' at 1:16 of the expression"}},
		{"a subresource has a kind of its own", types, hook("object.metadata.name != 'x' && object.spec.replicas > 1", `apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments/scale]`), nil},
		{"a webhook of any version of its kind", types, hook("object.spec.replica == 1", deployments), []string{"error " + unfit + "Deployment of apps/v1: undefined field 'replica' at 1:12 of the expression; each request about a Deployment is rejected"}},
		{"a field that some requests meet", types, validates("object.metadata.name == 'x' || object.spec.nodename == ''", pods), []string{"warning " + unfit + "Pod of v1: undefined field 'nodename' at 1:43 of the expression"}},
		{"a webhook that is about anything", types, hook("has(object.spec.template) && object.spec.replicas > 1", both+"}, {"+everything), nil},
		{"one field of two kinds", types, validates("object.spec.nodename == '' || object.spec.nodname == ''", both), []string{"warning " + unfit + "Pod of v1 and Deployment of apps/v1: undefined field 'nodename' at 1:12 of the expression; undefined field 'nodname' at 1:42 of the expression"}},
		{"a kind that is asked for", types, validates("!has(object.spec.template) || object.spec.template.spec.hostNetwork != true", both), nil},
		{"a policy without a binding", types, strings.Replace(validates("object.spec.nodename == ''", pods), "policyName: one", "policyName: two", 1), []string{"warning " + unfit + "Pod of v1: undefined field 'nodename' at 1:12 of the expression"}},
		{"a variable", types, policy("Validating", pods, "  variables: [{name: node, expression: object.spec.nodename}]\n  validations: [{expression: variables.node != 'x'}]\n", ""), []string{"warning " + unfit + "Pod of v1: undefined field 'nodename' at 1:12 of the expression"}},
		{"a variable about another kind", types, policy("Validating", both, "  variables: [{name: pod, expression: request.kind.kind == 'Pod'}, {name: node, expression: \"variables.pod && object.spec.nodeName == 'x'\"}]\n  validations: [{expression: '!variables.node'}]\n", ""), nil},
		{"a variable about any kind", types, policy("Validating", both, "  variables: [{name: pod, expression: request.namespace == 'a'}, {name: node, expression: \"variables.pod && object.spec.nodeName == 'x'\"}]\n  validations: [{expression: '!variables.node'}]\n", ""),
			[]string{"warning " + unfit + "Deployment of apps/v1: undefined field 'nodeName' at 1:29 of the expression"}},
		{"params", types, limited("params.dat.most != string(object.spec.replicas)", "paramRef: {name: p, namespace: d, parameterNotFoundAction: Allow}, "), []string{"error " + unfit + "Deployment of apps/v1: undefined field 'dat' at 1:7 of the expression; each request about a Deployment is rejected"}},
		{"a custom resource", types, definition + validates("object.spec.siz > 1 && object.spec.any.thing == 1 && object.metadata.labels.size() > 0", things), []string{"warning " + unfit + "Thing of example.com/v1: undefined field 'siz' at 1:12 of the expression"}},
		{"a custom resource without a definition", types, validates("object.spec.siz > 1", things), nil},

		{"an operation without admission", types, validates("!(request.operation in ['GET', 'UPDATE']) || object.metadata.name != 'x'", pods), []string{"warning an expression of one compares request.operation with \"GET\" at 1:10, and its values are CREATE, UPDATE, DELETE and CONNECT"}},
		{"an operation without admission, for any kind", types, validates("request.operation != 'Create'", everything), []string{"warning an expression of one compares request.operation with \"Create\" at 1:8, and its values are CREATE, UPDATE, DELETE and CONNECT"}},
		{"an operation in a variable", types, policy("Validating", pods, "  variables: [{name: reads, expression: \"'LIST' == request.operation\"}]\n  validations: [{expression: '!variables.reads'}]\n", ""), []string{"warning an expression of one compares request.operation with \"LIST\" at 1:18, and its values are CREATE, UPDATE, DELETE and CONNECT"}},
		{"an operation that the rules do not name", types, validates("request.operation == 'DELETE' || object.metadata.name != 'x'", pods), nil},
		{"a value that a field of elements never has", types, validates("object.spec.containers.all(c, c.imagePullPolicy == 'always')", pods), []string{"warning an expression of one compares object.spec.containers.*.imagePullPolicy with \"always\" at 1:32, and its values are Always, IfNotPresent and Never"}},
		{"a value in place of an absent one", types, validates("object.?spec.?restartPolicy.orValue('none') != 'none'", pods), nil},
		{"an empty value", types, validates("object.spec.restartPolicy != ''", pods), nil},
		{"a field of two kinds that one has", types, validates("!has(object.spec.restartPolicy) || object.spec.restartPolicy == 'x'", both), nil},
		{"a value of a custom resource", types, strings.Replace(definition, "type: integer", "type: string, enum: [small, large]", 1) + validates("object.spec.size != 'huge' && object.spec.size != 'small'", things), []string{"warning an expression of one compares object.spec.size with \"huge\" at 1:12, and its values are small and large"}},

		{"a mutation sets a field", types, applies("Object{spec: Object.spec{replica: 2}}", deployments), []string{"error " + unfit + "Deployment of apps/v1: the mutation sets the undefined field 'replica' of Object.spec at 1:25 of the expression; each request about a Deployment is rejected"}},
		{"a mutation sets a field of some objects", types, applies("has(object.spec.replicas) ? Object{} : Object{spec: Object.spec{replica: 2}}", deployments), []string{"warning " + unfit + "Deployment of apps/v1: the mutation sets the undefined field 'replica' of Object.spec at 1:64 of the expression"}},
		{"a mutation sets fields that are there", types, applies("Object{metadata: Object.metadata{labels: {'a': 'b'}}, spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{name: c.name, resources: Object.spec.template.spec.containers.resources{limits: {'cpu': '1'}}})}}}}", deployments), nil},
		{"a mutation of an element of a list", types, applies("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{nam: 'c'}]}}}}", deployments), []string{"error " + unfit + "Deployment of apps/v1: the mutation sets the undefined field 'nam' of Object.spec.template.spec.containers at 1:138 of the expression; each request about a Deployment is rejected"}},
		{"a patch", types, patches("[JSONPatch{op: 'add', path: '/spec/replica', value: 2}]", deployments), []string{"error " + unfit + "Deployment of apps/v1: undefined field 'replica' in the path /spec/replica at 1:11 of the expression; each request about a Deployment is rejected"}},
		{"patches of what is there", types, patches("[JSONPatch{op: 'add', path: '/metadata/labels/a~1b', value: 'c'}, JSONPatch{op: 'add', path: '/spec/template/spec/containers/0/image', value: 'c'}, JSONPatch{op: 'add', path: '/spec/template/spec/tolerations/-', value: Object.spec.template.spec.tolerations{key: 'a'}}]", deployments), nil},
		{"a patch of a custom resource is dropped", types, definition + patches("[JSONPatch{op: 'add', path: '/spec/siz', value: 2}]", things), []string{"warning " + unfit + "Thing of example.com/v1: undefined field 'siz' in the path /spec/siz at 1:11 of the expression"}},

		{"a binding without params", null, limited("string(object.spec.replicas) <= params.data.most", ""), []string{"error the binding bound has no paramRef, so that params is null, and the policy one reads params: each request that it is about is rejected"}},
		{"a binding without params that some requests meet", null, limited("object.spec.replicas < 2 || params.data.most == '3'", ""), []string{"warning the binding bound has no paramRef, so that params is null, and the policy one reads params: an expression that does fails"}},
		{"a binding without params that only warns", null, strings.Replace(limited("params.data.most == '3'", ""), "[Deny]", "[Warn]", 1), []string{"warning the binding bound has no paramRef, so that params is null, and the policy one reads params: an expression that does fails"}},
		{"a policy that can do without params", null, limited("params == null || params.data.most == '3'", ""), nil},
		{"a policy that has params and does not read them", null, limited("object.spec.replicas < 2", ""), nil},
		{"a binding with params", null, limited("params.data.most == '3'", "paramRef: {name: p, namespace: d, parameterNotFoundAction: Allow}, "), nil},

		{"the namespace of a namespace", null, validates("namespaceObject.metadata.name != 'x'", namespaces), []string{"error an expression of one reads namespaceObject, which is null for namespaces: each such request is rejected"}},
		{"the namespace after the object", null, validates("object.metadata.name in namespaceObject.metadata.labels", namespaces), []string{"error an expression of one reads namespaceObject, which is null for namespaces: each such request is rejected"}},
		{"the namespace of anything", null, validates("namespaceObject.metadata.name != 'x'", everything), []string{"error an expression of one reads namespaceObject, which is null for namespaces: each such request is rejected"}},
		{"the namespace of what is in one", null, validates("namespaceObject.metadata.name != 'x'", both), nil},
		{"the namespace of what is in one, by the scope of the rule", null, validates("namespaceObject.metadata.name != 'x'", namespaces+", scope: Namespaced"), nil},
		{"a namespace that may be missing", null, validates("namespaceObject == null || namespaceObject.metadata.name != 'x'", namespaces), nil},
		{"the namespace of other kinds", null, validates("request.kind.kind == 'Namespace' || namespaceObject.metadata.name != 'x'", namespaces), nil},

		{"a mutation that fails for each request", constant, applies("Object{spec: Object.spec{replicas: oldObject.spec.replicas}}", deployments), []string{`error the expression "Object{spec: Object.spec{replicas: oldObject.spec.replicas}}" of one fails for every CREATE, so that each one is rejected: no such key: spec`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report, _ := lintFile(t, tc.content, nil)
			var got []string
			for _, f := range of(report, tc.rule) {
				got = append(got, string(f.Level)+" "+f.Message)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if bad := append(of(report, "invalid"), of(report, "expression-invalid")...); len(bad) > 0 {
				t.Errorf("the case is wrong: %s", bad[0].Message)
			}
		})
	}
}
