package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// podRule is a rule of a policy.
const podRule = `{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}`

func core(operations, resources string) string {
	return fmt.Sprintf(`{apiGroups: [""], apiVersions: [v1], operations: [%s], resources: [%s]}`, operations, resources)
}

func apps(operations, resources string) string {
	return fmt.Sprintf(`{apiGroups: [apps], apiVersions: [v1], operations: [%s], resources: [%s]}`, operations, resources)
}

// policy is a policy with its binding. more has further lines of the spec.
func policy(kind, name, rule, more string) string {
	actions := ", validationActions: [Deny]"
	if kind == "Mutating" {
		actions, more = "", "  reinvocationPolicy: Never\n"+more
	}
	return fmt.Sprintf(`---
apiVersion: admissionregistration.k8s.io/v1
kind: %[1]sAdmissionPolicy
metadata: {name: %[2]s}
spec:
  matchConstraints: {resourceRules: [%[3]s]}
%[4]s---
apiVersion: admissionregistration.k8s.io/v1
kind: %[1]sAdmissionPolicyBinding
metadata: {name: %[2]s}
spec: {policyName: %[2]s%[5]s}
`, kind, name, rule, more, actions)
}

func indented(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n" }

// validates is a policy with a validation, guarded one with a match condition, too.
func validates(rule, expression string) string {
	return policy("Validating", "a", rule, "  validations:\n  - expression: >-\n  "+indented(expression))
}

func guarded(rule, condition, expression string) string {
	return policy("Validating", "a", rule, "  matchConditions:\n  - name: here\n    expression: >-\n  "+indented(condition)+
		"  validations:\n  - expression: >-\n  "+indented(expression))
}

func applies(rule, expression string) string {
	return policy("Mutating", "a", rule, "  mutations:\n  - patchType: ApplyConfiguration\n    applyConfiguration:\n      expression: >-\n    "+indented(expression))
}

func patches(rule, expression string) string {
	return policy("Mutating", "a", rule, "  mutations:\n  - patchType: JSONPatch\n    jsonPatch:\n      expression: >-\n    "+indented(expression))
}

// another gives the objects of a file other names.
func another(file string) string {
	return strings.ReplaceAll(strings.ReplaceAll(file, "name: a}", "name: b}"), "policyName: a", "policyName: b")
}

// selecting adds an objectSelector to a policy.
func selecting(selector, file string) string {
	return strings.Replace(file, "matchConstraints: {", "matchConstraints: {objectSelector: {"+selector+"}, ", 1)
}

// withParam gives a binding a param.
func withParam(file string) string {
	return strings.Replace(file, "validationActions: [Deny]", "validationActions: [Deny], paramRef: {name: x, namespace: default, parameterNotFoundAction: Deny}", 1)
}

const widgetCRD = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}, status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [provider]
            properties:
              provider: {type: string}
              replicas: {type: integer, default: 1}
              aws: {type: object, properties: {region: {type: string}}}
              sizes: {type: array, items: {type: string}}
              parts: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [id], items: {type: object, required: [id], properties: {id: {type: string}, size: {type: integer}}}}
              size: {type: integer}
          status: {type: object, properties: {phase: {type: string}}}
`

// Lint finds policies of the kinds that broke clusters, and is silent about sound policies of the same shape (S16.25).
func TestPoliciesOfIncidents(t *testing.T) {
	const limits = "object.spec.containers.all(c, quantity(c.resources.limits.memory).isLessThan(quantity('512Mi')))"
	const images = "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))"
	const bot = "request.userInfo.username == 'release-bot'"
	widget := `{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [widgets]}`
	everything := `{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}`
	protected := `{apiGroups: [admissionregistration.k8s.io], apiVersions: ["*"], operations: [UPDATE, DELETE], resources: [validatingadmissionpolicies]}`
	hook := func(client, rules, more string) string {
		return "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: h}\nwebhooks:\n- name: h.example.com\n  clientConfig: " + client +
			"\n  admissionReviewVersions: [v1]\n  sideEffects: None\n  rules: [" + rules + "]\n" + more
	}
	mutating := func(name, timeout, failurePolicy, rules string) string {
		text := strings.Replace(hook("{service: {namespace: w, name: w}}", rules, "  timeoutSeconds: "+timeout+"\n  failurePolicy: "+failurePolicy+"\n"), "Validating", "Mutating", 1)
		return strings.Replace(text, "{name: h}", "{name: "+name+"}", 1)
	}
	service := func(namespace, name string) string {
		return "---\napiVersion: v1\nkind: Service\nmetadata: {namespace: " + namespace + ", name: " + name + "}\nspec: {selector: {app: " + name + "}, ports: [{port: 443}]}\n"
	}
	limit := policy("Validating", "a", core("CREATE", "pods"), "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: 'object.spec.containers.size() < 3'}]\n")
	for _, tc := range []struct {
		name, files string
		// want is a rule and a part of its message; empty if no rule below may find anything.
		want, text string
	}{
		// Fields that subresources change.
		{"scale", validates(apps("CREATE, UPDATE", "deployments"), "object.spec.replicas <= 3"), "subresource-forgotten", "deployments/scale"},
		{"scale of a stateful set, by a variable", policy("Validating", "a", apps("UPDATE", "statefulsets"), "  variables: [{name: count, expression: object.spec.replicas}]\n  validations: [{expression: variables.count <= 3}]\n"), "subresource-forgotten", "statefulsets/scale"},
		{"scale of a custom resource", widgetCRD + validates(widget, "object.spec.replicas <= 3"), "subresource-forgotten", "widgets/scale"},
		{"scale is covered", validates(apps("CREATE, UPDATE", "deployments, deployments/scale"), "object.spec.replicas <= 3"), "", ""},
		{"scale is covered by all subresources", validates(apps("CREATE, UPDATE", "deployments, deployments/*"), "object.spec.?replicas.orValue(1) <= 3"), "", ""},
		{"scale is covered by another policy", validates(apps("CREATE, UPDATE", "deployments"), "object.spec.replicas <= 3") + another(validates(apps("UPDATE", "deployments/scale"), "object.spec.replicas <= 3")), "", ""},
		{"scale at the creation", validates(apps("CREATE", "deployments"), "object.spec.replicas <= 3"), "", ""},
		{"scale of a daemon set", validates(apps("UPDATE", "daemonsets"), "object.spec.revisionHistoryLimit < 30"), "", ""},
		{"scale, and not under UPDATE", guarded(apps("CREATE, UPDATE", "deployments"), "request.operation == 'CREATE'", "object.spec.replicas <= 3"), "", ""},
		{"resize", validates(podRule, limits), "subresource-forgotten", "pods/resize"},
		{"resize, by all containers", policy("Validating", "a", podRule, "  variables: [{name: all, expression: 'object.spec.containers + object.spec.?initContainers.orValue([])'}]\n  validations: [{expression: 'variables.all.all(c, quantity(c.resources.limits.memory).isLessThan(quantity(\"1Gi\")))'}]\n"), "subresource-forgotten", "pods/resize"},
		{"resize removes no limit", validates(podRule, "object.spec.containers.all(c, has(c.resources) && has(c.resources.limits) && 'memory' in c.resources.limits)"), "", ""},
		{"resize adds a limit", validates(podRule, "object.spec.containers.all(c, !has(c.resources) || !has(c.resources.limits))"), "subresource-forgotten", "pods/resize"},
		{"resize is covered", validates(podRule, limits) + another(validates(core("UPDATE", "pods/resize"), limits)), "", ""},
		{"debug containers", validates(podRule, "object.spec.?ephemeralContainers.orValue([]).all(c, c.image != '')"), "subresource-forgotten", "kubectl debug changes it through pods/ephemeralcontainers"},
		{"images", validates(podRule, images), "subresource-forgotten", "note"},
		{"images are covered", validates(podRule, images) + another(validates(core("UPDATE", "pods/ephemeralcontainers"), "object.spec.?ephemeralContainers.orValue([]).all(c, c.image.startsWith('registry.example.com/'))")), "init-containers-forgotten", "containers of pods"},
		{"images are not covered by a policy about other fields", validates(podRule, images) + another(validates(core("UPDATE", "pods/ephemeralcontainers"), "object.spec.?ephemeralContainers.orValue([]).all(c, c.?securityContext.?privileged.orValue(false) == false)")), "subresource-forgotten", "pods/ephemeralcontainers"},
		{"privileged containers", validates(core("CREATE, UPDATE", "pods"), "object.spec.containers.all(c, c.?securityContext.?privileged.orValue(false) == false)"), "subresource-forgotten", "pods/ephemeralcontainers"},
		{"status", widgetCRD + validates(widget, "has(object.status) ? object.status.phase != 'Failed' : true"), "subresource-forgotten", "widgets/status"},
		{"status decides about the spec", widgetCRD + validates(widget, "!has(object.status) || !has(object.status.phase) || object.status.phase != 'Ready' || object.spec.provider == 'a'"), "", ""},

		// Selectors on subresources.
		{"a label that nobody may change", validates(core("UPDATE", "pods"), "object.metadata.?labels['team'] == oldObject.metadata.?labels['team']"), "subresource-forgotten", "pods/status"},
		{"a label that nobody may change, nor with the status", validates(core("UPDATE", "pods, pods/status"), "object.metadata.?labels['team'] == oldObject.metadata.?labels['team']"), "", ""},
		{"a label of a kind whose status keeps labels", validates(apps("UPDATE", "deployments"), "object.metadata.?labels['team'] == oldObject.metadata.?labels['team']"), "", ""},
		{"a constant that a wrong value makes", validates(core("CREATE", "services"), "object.spec.type == 'Loadbalancer'"), "expression-types", "Loadbalancer"},
		{"users and every resource", validates(everything, "request.userInfo.username != 'x'"), "subresource-forgotten", "*/*"},
		{"users and every subresource", validates(strings.Replace(everything, `["*"]}`, `["*/*"]}`, 1), "request.userInfo.username != 'x'"), "", ""},
		{"labels of every resource", validates(everything, "request.userInfo.username != 'x' || object == null || !has(object.metadata.labels)"), "", ""},
		{"eviction", selecting("matchLabels: {app: web}", validates(core("CREATE", "pods/eviction"), "false")), "selector-on-subresource", "warning"},
		{"eviction is covered", selecting("matchLabels: {app: web}", validates(core("CREATE", "pods/eviction"), "false")) + another(validates(core("CREATE", "pods/eviction"), "false")), "", ""},
		{"exec", selecting("matchLabels: {app: web}", validates(core("CONNECT", "pods/exec"), "false")), "selector-on-subresource", "error"},
		{"port-forward, by an expression", selecting("matchExpressions: [{key: app, operator: Exists}]", validates(core("CONNECT", "pods/portforward"), "false")), "selector-on-subresource", "PodPortForwardOptions"},
		{"exec without a label", selecting("matchExpressions: [{key: app, operator: DoesNotExist}]", validates(core("CONNECT", "pods/exec"), "false")), "", ""},
		{"exec without a value", selecting("matchExpressions: [{key: app, operator: NotIn, values: [x]}]", validates(core("CONNECT", "pods/exec"), "false")), "", ""},
		{"a selector on pods", selecting("matchLabels: {app: web}", validates(core("CREATE", "pods"), "object.spec.?hostNetwork.orValue(false) == false")), "", ""},
		{"status has the labels of the object", selecting("matchLabels: {app: web}", validates(core("UPDATE", "pods/status"), "object.status.phase != 'Failed'")), "", ""},
		{"exec, by a webhook", hook(`{url: "https://hooks.example.com/"}`, core("CONNECT", "pods/exec"), "  objectSelector: {matchLabels: {app: web}}\n"), "selector-on-subresource", "PodExecOptions"},

		// Nulls and missing keys.
		{"labels", validates(podRule, "object.metadata.labels['app'] != ''"), "missing-key", "without metadata.labels: no such key: labels"},
		{"a key of labels", validates(podRule, "has(object.metadata.labels) && object.metadata.labels['app'] != ''"), "missing-key", "without metadata.labels.app"},
		{"labels with a guard", validates(podRule, "has(object.metadata.labels) && 'app' in object.metadata.labels && object.metadata.labels['app'] != ''"), "", ""},
		{"labels with a value", validates(podRule, "object.metadata.?labels['app'].orValue('') != ''"), "", ""},
		{"labels, guarded by a variable", policy("Validating", "a", podRule, "  variables: [{name: app, expression: \"has(object.metadata.labels) && 'app' in object.metadata.labels ? object.metadata.labels['app'] : ''\"}]\n  validations: [{expression: \"variables.app != ''\"}]\n"), "", ""},
		{"labels in a variable", policy("Validating", "a", podRule, "  variables: [{name: app, expression: \"object.metadata.labels['app']\"}]\n  validations: [{expression: \"variables.app != ''\"}]\n"), "missing-key", "labels"},
		{"labels, guarded by a condition", guarded(podRule, "has(object.metadata.labels) && 'app' in object.metadata.labels", "object.metadata.labels['app'] != ''"), "", ""},
		{"labels, with another condition", guarded(podRule, "request.namespace == 'x'", "object.metadata.labels['app'] != ''"), "missing-key", "labels"},
		{"labels of params", policy("Validating", "a", podRule, "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: 'params.data.all(l, l in object.metadata.labels)'}]\n"), "missing-key", "size(params.data) > 0"},
		{"labels of a node", validates(core("UPDATE", "nodes"), "object.metadata.labels['kubernetes.io/hostname'] != 'x'"), "", ""},
		{"a label of a node", validates(core("UPDATE", "nodes"), "object.metadata.labels['pool'] != 'x'"), "missing-key", "metadata.labels.pool"},
		{"labels that a namespace has", validates(core("CREATE", "namespaces"), "object.metadata.labels['kubernetes.io/metadata.name'] != 'x'"), "", ""},
		{"a list that pods need not have", validates(podRule, "object.spec.initContainers.all(c, c.name != 'a')"), "missing-key", "spec.initContainers"},
		{"a list that pods have", validates(core("CREATE", "pods"), "object.spec.containers.exists(c, c.name != 'a')"), "", ""},
		{"images of containers alone", validates(apps("CREATE, UPDATE", "deployments"), "object.spec.template.spec.containers.all(c, c.image.startsWith('a/'))"), "init-containers-forgotten", "checks the image of containers of deployments"},
		{"the rights of containers alone", validates(apps("CREATE, UPDATE", "deployments"), "object.spec.template.spec.containers.all(c, c.?securityContext.?privileged.orValue(false) == false)"), "init-containers-forgotten", "checks the securityContext"},
		{"images of all containers", validates(apps("CREATE, UPDATE", "deployments"), "(object.spec.template.spec.containers + object.spec.template.spec.?initContainers.orValue([])).all(c, c.image.startsWith('a/'))"), "", ""},
		{"names of containers", validates(apps("CREATE, UPDATE", "deployments"), "object.spec.template.spec.containers.all(c, c.name != 'a')"), "", ""},
		{"an image that is needed", validates(apps("CREATE, UPDATE", "deployments"), "object.spec.template.spec.containers.exists(c, c.image == 'a')"), "", ""},
		{"images, and a warning", strings.Replace(validates(apps("CREATE, UPDATE", "deployments"), "object.spec.template.spec.containers.all(c, c.image.startsWith('a/'))"), "[Deny]", "[Warn]", 1), "", ""},
		{"images, and a policy for init containers", validates(apps("CREATE, UPDATE", "deployments"), "object.spec.template.spec.containers.all(c, c.image.startsWith('a/'))") +
			another(validates(apps("CREATE, UPDATE", "deployments"), "!has(object.spec.template.spec.initContainers) || object.spec.template.spec.initContainers.all(c, c.image.startsWith('a/'))")), "", ""},
		{"images, and a webhook", validates(apps("CREATE, UPDATE", "deployments"), "object.spec.template.spec.containers.all(c, c.image.startsWith('a/'))") + hook("{service: {namespace: w, name: w}}", apps("CREATE", "deployments"), "  failurePolicy: Ignore\n"), "", ""},
		{"a field of elements", validates(core("CREATE", "pods"), "object.spec.containers.all(c, c.livenessProbe.periodSeconds > 1)"), "", ""},
		{"a field above the tested field of elements", validates(core("CREATE", "pods"), "object.spec.containers.all(c, !has(c.securityContext.privileged) || c.securityContext.privileged == false)"), "missing-key", "with an element of spec.containers without securityContext"},
		{"a field below the tested field of elements", validates(core("CREATE", "pods"), "object.spec.containers.all(c, !has(c.securityContext) || c.securityContext.privileged == false)"), "missing-key", "without securityContext.privileged"},
		{"a field of elements, tested step by step", validates(core("CREATE", "pods"), "object.spec.containers.all(c, !has(c.lifecycle) || !has(c.lifecycle.preStop) || has(c.lifecycle.preStop.sleep))"), "", ""},
		{"a field of elements with a default", validates(core("CREATE", "pods"), "object.spec.containers.all(c, !has(c.livenessProbe) || c.livenessProbe.periodSeconds > 1)"), "", ""},
		{"a field of elements that the policy requires", validates(core("CREATE", "pods"), "object.spec.containers.all(c, has(c.lifecycle.preStop) && has(c.lifecycle.preStop.sleep))"), "", ""},
		{"a field of elements that another validation requires", policy("Validating", "a", core("CREATE", "pods"), "  validations:\n  - expression: object.spec.containers.all(c, has(c.lifecycle))\n  - expression: object.spec.containers.all(c, !has(c.lifecycle.preStop))\n"), "", ""},
		{"a field of the elements of two lists", policy("Validating", "a", core("CREATE", "pods"), "  variables: [{name: all, expression: 'object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : [])'}]\n  validations: [{expression: 'variables.all.all(c, !has(c.securityContext.privileged))'}]\n"), "missing-key", "spec.containers without securityContext"},
		{"what a plugin mounts", validates(core("CREATE", "pods"), "object.spec.containers.all(c, c.volumeMounts != null)"), "", ""},
		{"a default", validates(apps("CREATE", "deployments"), "object.spec.replicas < 3 && object.spec.strategy.type == 'RollingUpdate' && object.spec.template.spec.securityContext != null"), "", ""},
		{"labels of a template", validates(apps("CREATE", "deployments"), "object.spec.template.metadata.labels.size() > 0"), "", ""},
		{"a field of the security context", validates(podRule, "object.spec.securityContext.runAsNonRoot != false"), "missing-key", "runAsNonRoot"},
		{"a field of the security context of a template", validates(apps("CREATE", "deployments"), "object.spec.template.spec.securityContext.runAsNonRoot != false"), "missing-key", "spec.template.spec.securityContext.runAsNonRoot"},
		{"what the type of a service needs", validates(core("CREATE", "services"), "object.spec.type != 'ExternalName' || object.spec.externalName.endsWith('example.com')"), "", ""},
		{"what an allocator sets", validates(core("UPDATE", "services"), "object.spec.clusterIP != 'None'"), "", ""},
		{"what plugins set", validates(core("CREATE", "pods"), "object.spec.serviceAccountName != 'default' && object.spec.tolerations.size() < 9"), "", ""},
		{"data of a config map", validates(core("CREATE", "configmaps"), "object.data['a'] != ''"), "missing-key", "data"},
		{"the deletion time", validates(core("UPDATE", "configmaps"), "object.metadata.deletionTimestamp == null"), "missing-key", "deletionTimestamp"},
		{"a custom resource", widgetCRD + validates(widget, "object.spec.size < 3"), "missing-key", "spec.size"},
		{"a custom resource, with what it needs", widgetCRD + validates(strings.Replace(widget, "CREATE, UPDATE", "CREATE", 1), "object.spec.provider != '' && object.spec.replicas > 0"), "", ""},
		{"one of several kinds of a custom resource", widgetCRD + validates(widget, "object.spec.provider != 'aws' || object.spec.aws.region != ''"), "", ""},
		{"an old custom resource without annotations, of one type", validates(strings.Replace(widget, "CREATE, UPDATE", "UPDATE", 1), "object.spec.type != 'a' || oldObject.metadata.annotations['owner'] != 'x'"), "missing-key", "if !(object.spec.type != \"a\")"},
		{"a secret of one type", validates(core("CREATE", "secrets"), "object.type != 'kubernetes.io/service-account-token' || object.metadata.annotations['kubernetes.io/service-account.name'] != 'x'"), "", ""},
		{"an old object without annotations", validates(core("UPDATE", "configmaps"), "oldObject.metadata.annotations['owner'] != 'x'"), "missing-key", "whose stored object has no metadata.annotations"},
		{"the old object, the wrong way round", guarded(core("CREATE, UPDATE", "configmaps"), "request.namespace == 'x' && has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.startsWith('downscaler/') && (oldObject != null || !(k in oldObject.metadata.annotations)))", "true"), "variable-null", "CREATE if"},
		{"the old object, the right way round", guarded(core("CREATE, UPDATE", "configmaps"), "request.namespace == 'x' && (oldObject == null || !has(oldObject.data))", "object.metadata.name != ''"), "", ""},
		{"the object of a deletion", validates(core("UPDATE, DELETE", "configmaps"), "request.namespace != 'x' || object.metadata.name != 'a'"), "variable-null", "DELETE"},
		{"the object, but for a deletion", validates(core("UPDATE, DELETE", "configmaps"), "request.operation == 'DELETE' || object.metadata.name != 'a'"), "", ""},

		{"a field that the kind does not have", validates(apps("CREATE", "deployments"), "object.replicas < 5"), "expression-types", "replicas"},
		{"a field that an earlier mutation adds", policy("Mutating", "a", core("CREATE", "configmaps"), "  mutations:\n  - {patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {\"a\": \"b\"}}}'}}\n  - {patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{data: {\"a\": object.metadata.labels.a}}'}}\n"), "", ""},
		// Quantities.
		{"int of a quantity", validates(core("CREATE", "pods"), "object.spec.containers.all(c, int(c.resources.requests.cpu) <= 2)"), "quantity-as-number", "containers.*.resources.requests.cpu"},
		{"double of a claim", validates(core("CREATE", "persistentvolumeclaims"), "double(object.spec.resources.requests.storage) <= 2.0"), "quantity-as-number", "storage"},
		{"int of a number", validates(apps("CREATE", "deployments"), "int(object.spec.replicas) <= 2"), "", ""},
		{"a quantity", validates(core("CREATE", "pods"), "object.spec.containers.all(c, quantity(c.resources.requests.cpu).compareTo(quantity('2')) < 0)"), "", ""},

		// Messages.
		{"an expression as message", policy("Validating", "a", core("CREATE", "pods"), "  validations: [{expression: 'object.spec.containers.size() < 3', message: \"'pod ' + object.metadata.name + ' has too many'\"}]\n"), "message-is-expression", "messageExpression"},
		{"a message with params", policy("Validating", "a", core("CREATE", "pods"), "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: 'object.spec.containers.size() < 3', message: \"'at most ' + string(params.data.max)\"}]\n"), "message-is-expression", "params"},
		{"a sentence", policy("Validating", "a", core("CREATE", "pods"), "  validations: [{expression: 'object.spec.containers.size() < 3', message: object.spec.containers must be short}, {expression: 'object.spec.containers.size() < 3', message: \"'at most two'\"}]\n"), "", ""},

		// Mutations.
		{"an atomic list", applies(core("CREATE", "pods"), `Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: "p", image: "p:1", args: ["a"]}]}}`), "mutation-atomic-list", "spec.initContainers.args"},
		{"an atomic list of a custom resource", widgetCRD + applies(widget, `Object{spec: Object.spec{sizes: ["a"]}}`), "mutation-atomic-list", "spec.sizes"},
		{"a list by key", applies(core("CREATE", "pods"), `Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: "p", image: "p:1"}]}}`), "", ""},
		{"an atomic list in a patch", patches(core("CREATE", "pods"), `[JSONPatch{op: "add", path: "/spec/containers/0/args", value: ["a"]}]`), "", ""},
		{"an element without its key", applies(core("CREATE", "pods"), `Object{spec: Object.spec{containers: [Object.spec.containers{image: "x"}]}}`), "list-element-incomplete", "spec.containers without name"},
		{"an element of a custom resource", widgetCRD + applies(widget, `Object{spec: Object.spec{parts: [Object.spec.parts{size: 1}]}}`), "list-element-incomplete", "without id"},
		{"a volume without a name in a patch", patches(core("CREATE", "pods"), `[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{image: "x"}}]`), "list-element-incomplete", "without name"},
		{"an element with the key of another one", applies(core("CREATE", "pods"), `Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`), "", ""},
		{"an annotation without annotations", patches(core("CREATE", "configmaps"), `[JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("example.com/pool"), value: "a"}]`), "patch-parent-missing", "/metadata/annotations"},
		{"a label without labels", patches(core("CREATE", "pods"), `[JSONPatch{op: "add", path: "/metadata/labels/pool", value: "a"}]`), "patch-parent-missing", "/metadata/labels"},
		{"a label of any kind", patches(everything, `[JSONPatch{op: "add", path: "/metadata/labels/pool", value: "a"}]`), "patch-parent-missing", "an object need not have"},
		{"a label of any kind, with a guard", patches(everything, `has(object.metadata.labels) ? [JSONPatch{op: "add", path: "/metadata/labels/pool", value: "a"}] : []`), "", ""},
		{"a node selector", patches(apps("CREATE", "deployments"), `[JSONPatch{op: "add", path: "/spec/template/spec/nodeSelector/pool", value: "a"}]`), "patch-parent-missing", "nodeSelector"},
		{"an annotation with a guard", patches(core("CREATE", "configmaps"), `has(object.metadata.annotations) ? [JSONPatch{op: "add", path: "/metadata/annotations/pool", value: "a"}] : []`), "", ""},
		{"annotations are added first", patches(core("CREATE", "configmaps"), `[JSONPatch{op: "add", path: "/metadata/annotations", value: {}}, JSONPatch{op: "add", path: "/metadata/annotations/pool", value: "a"}]`), "", ""},
		{"a volume of a Job", patches(`{apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}`, `[JSONPatch{op: "add", path: "/spec/template/spec/volumes/-", value: Object.spec.template.spec.volumes{name: "a"}}]`), "patch-parent-missing", "/spec/template/spec/volumes"},
		{"a volume of a Job, with a guard", patches(`{apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}`, `has(object.spec.template.spec.volumes) ? [JSONPatch{op: "add", path: "/spec/template/spec/volumes/-", value: Object.spec.template.spec.volumes{name: "a"}}] : []`), "", ""},
		{"a volume of a pod", patches(core("CREATE", "pods"), `[JSONPatch{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{name: "a"}}]`), "patch-parent-missing", "/spec/volumes"},
		{"a volume of pods without volumes", strings.Replace(patches(core("CREATE", "pods"), `[JSONPatch{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{name: "a"}}]`), "  mutations:",
			"  matchConditions: [{name: c, expression: '!has(object.spec.volumes) || !object.spec.volumes.exists(v, v.name == \"a\")'}]\n  mutations:", 1), "patch-parent-missing", "/spec/volumes"},
		{"a volume of pods with volumes", strings.Replace(patches(core("CREATE", "pods"), `[JSONPatch{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{name: "a"}}]`), "  mutations:",
			"  matchConditions: [{name: c, expression: 'has(object.spec.volumes) && !object.spec.volumes.exists(v, v.name == \"a\")'}]\n  mutations:", 1), "", ""},
		{"a toleration of a pod", patches(core("CREATE", "pods"), `[JSONPatch{op: "add", path: "/spec/tolerations/-", value: {"operator": "Exists"}}]`), "", ""},
		{"a variable of a container", patches(apps("CREATE", "deployments"), `[JSONPatch{op: "add", path: "/spec/template/spec/containers/0/env/-", value: {"name": "A", "value": "b"}}]`), "patch-parent-missing", "/spec/template/spec/containers/0/env"},
		{"a variable of each container, with a guard", patches(apps("CREATE", "deployments"), `object.spec.template.spec.containers.all(c, has(c.env)) ? [JSONPatch{op: "add", path: "/spec/template/spec/containers/0/env/-", value: {"name": "A", "value": "b"}}] : []`), "", ""},
		{"a second container", patches(apps("CREATE", "deployments"), `[JSONPatch{op: "add", path: "/spec/template/spec/containers/1/image", value: "a"}]`), "patch-parent-missing", "/spec/template/spec/containers/1"},
		{"one more container", patches(apps("CREATE", "deployments"), `[JSONPatch{op: "add", path: "/spec/template/spec/containers/-", value: {"name": "a", "image": "a"}}]`), "", ""},
		{"resources of a container", patches(apps("CREATE", "deployments"), `[JSONPatch{op: "add", path: "/spec/template/spec/containers/0/resources/limits", value: {}}]`), "", ""},
		{"a parent with a default", patches(apps("CREATE", "deployments"), `[JSONPatch{op: "add", path: "/spec/template/spec/securityContext/runAsNonRoot", value: true}]`), "", ""},
		{"a pod that exists", applies(podRule, `Object{spec: Object.spec{securityContext: Object.spec.securityContext{runAsNonRoot: true}}}`), "mutation-immutable-field", "spec.securityContext.runAsNonRoot"},
		{"a pod that exists and meets a condition", strings.Replace(applies(podRule, `Object{spec: Object.spec{securityContext: Object.spec.securityContext{runAsNonRoot: true}}}`), "  mutations:",
			"  matchConditions: [{name: c, expression: \"object.metadata.name == 'a'\"}]\n  mutations:", 1), "mutation-immutable-field", "created without it and meets the match conditions is rejected"},
		{"a pod that exists, by a patch", patches(podRule, `[JSONPatch{op: "replace", path: "/spec/dnsPolicy", value: "Default"}]`), "mutation-immutable-field", "spec.dnsPolicy"},
		{"a new pod", applies(core("CREATE", "pods"), `Object{spec: Object.spec{securityContext: Object.spec.securityContext{runAsNonRoot: true}}}`), "", ""},
		{"a new pod, by the operation", applies(podRule, `request.operation == 'CREATE' ? Object{spec: Object.spec{enableServiceLinks: false}} : Object{}`), "", ""},
		{"the template of a Job that exists", applies(`{apiGroups: [batch], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [jobs]}`, `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{dnsPolicy: "Default"}}}}`), "mutation-immutable-field", "of jobs under UPDATE"},
		{"the template of a Job that is suspended", applies(`{apiGroups: [batch], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [jobs]}`, `object.?spec.suspend.orValue(false) ? Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{dnsPolicy: "Default"}}}} : Object{}`), "", ""},
		{"the lifetime of a Job that exists", applies(`{apiGroups: [batch], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [jobs]}`, `Object{spec: Object.spec{ttlSecondsAfterFinished: 60}}`), "", ""},
		{"labels of a pod that exists", applies(podRule, `Object{metadata: Object.metadata{labels: {"a": "b"}}}`), "", ""},
		{"images of a pod that exists", applies(podRule, `Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, image: "mirror/" + c.image})}}`), "", ""},
		{"a deployment that exists", applies(apps("CREATE, UPDATE", "deployments"), `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{dnsPolicy: "Default"}}}}`), "", ""},

		// Policies that stop a cluster.
		{"an upgrade", validates(core("CREATE, UPDATE, DELETE", "pods, nodes"), bot), "policy-stops-cluster", "nodes cannot join or stay"},
		{"an upgrade of network pods", validates(apps("CREATE, UPDATE", "replicasets"), bot), "policy-stops-cluster", "deployment-controller"},
		{"the start of the API server", validates(`{apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [servicecidrs]}`, "false"), "policy-stops-cluster", "API server"},
		{"leases", validates(`{apiGroups: [coordination.k8s.io], apiVersions: [v1], operations: ["*"], resources: [leases]}`, "!request.userInfo.username.startsWith('system:')"), "policy-stops-cluster", "leases"},
		{"everything, by a variable", policy("Validating", "a", everything, "  variables: [{name: may, expression: \"request.userInfo.groups.exists(g, g == 'admins')\"}]\n  validations: [{expression: variables.may}]\n"), "policy-stops-cluster", "nodes"},
		{"the end of a namespace", validates(`{apiGroups: [rbac.authorization.k8s.io], apiVersions: [v1], operations: [DELETE], resources: [rolebindings]}`, "request.userInfo.username.startsWith('system:controller:') || request.userInfo.username == 'system:kube-controller-manager'"), "policy-stops-cluster", "namespace-controller"},
		{"the end of a namespace, exempt", validates(`{apiGroups: [rbac.authorization.k8s.io], apiVersions: [v1], operations: [DELETE], resources: [rolebindings]}`, "request.userInfo.username.startsWith('system:')"), "", ""},
		{"finalizers", validates(core("UPDATE", "configmaps"), "request.userInfo.username in ['a', 'b']"), "policy-stops-cluster", "garbage-collector"},
		{"users alone", guarded(core("CREATE, UPDATE, DELETE", "pods, nodes"), "!request.userInfo.username.startsWith('system:')", bot), "", ""},
		{"users, by their groups", guarded(core("CREATE, UPDATE, DELETE", "pods, nodes"), "!('system:serviceaccounts:kube-system' in request.userInfo.groups) && !('system:nodes' in request.userInfo.groups) && !request.userInfo.username.startsWith('system:')", bot), "", ""},
		{"the object decides", validates(core("CREATE, DELETE", "nodes"), "has(request.dryRun) && (object == null || object.metadata.name != 'x')"), "", ""},
		{"names of nodes", validates(core("CREATE, UPDATE", "nodes"), "object.metadata.name.startsWith('demo-')"), "", ""},
		{"nodes about themselves", validates(core("UPDATE", "nodes"), "request.userInfo.username == 'system:node:' + object.metadata.name || request.userInfo.username.startsWith('system:serviceaccount:kube-system:')"), "", ""},
		{"names of the API server", validates(`{apiGroups: [scheduling.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [priorityclasses]}`, "object.metadata.name.startsWith('demo-')"), "policy-stops-cluster", "priorityclasses"},
		{"warnings", strings.Replace(validates(core("CREATE", "nodes"), bot), "[Deny]", "[Warn]", 1), "", ""},
		{"another namespace", strings.Replace(validates(core("CREATE", "pods"), bot), "matchConstraints: {", "matchConstraints: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team}}, ", 1), "", ""},
		{"a label of namespaces", strings.Replace(validates(core("CREATE", "pods"), bot), "matchConstraints: {", "matchConstraints: {namespaceSelector: {matchLabels: {strict: yes-please}}, ", 1), "", ""},
		{"the definition of its params", policy("Validating", "a", `{apiGroups: [apiextensions.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [customresourcedefinitions]}`, "  paramKind: {apiVersion: example.org/v1, kind: Limit}\n  validations: [{expression: 'object.spec.group in params.groups'}]\n"), "policy-stops-cluster", "Limit of example.org/v1"},
		{"params of another namespace", withParam(limit) + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: other}\n", "params-missing", "in namespace \"default\" for the binding a: the files have it in namespace other, and each request"},
		{"other params of another namespace", withParam(limit) + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: z, namespace: other}\n", "", ""},
		{"params that are gone", policy("Validating", "a", core("CREATE", "pods"), "  paramKind: {apiVersion: example.org/v1, kind: Limit}\n  validations: [{expression: 'object.metadata.name in params.names'}]\n"), "params-missing", "kube-system"},
		{"params that are gone, without kube-system", withParam(strings.Replace(policy("Validating", "a", core("CREATE", "pods"), "  paramKind: {apiVersion: example.org/v1, kind: Limit}\n  validations: [{expression: 'object.metadata.name in params.names'}]\n"), "matchConstraints: {", "matchConstraints: {namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}, ", 1)), "", ""},

		// Webhooks and converters.
		{"a webhook on the DELETE of its own kind", widgetCRD + hook("{service: {namespace: w, name: w}}", strings.Replace(widget, "CREATE, UPDATE", "DELETE", 1), "") + "---\napiVersion: example.com/v1\nkind: Widget\nmetadata: {name: one, namespace: w}\n", "delete-own-kind", "widgets in namespace w"},
		{"its own kind without objects beside it", widgetCRD + hook("{service: {namespace: w, name: w}}", strings.Replace(widget, "CREATE, UPDATE", "DELETE", 1), ""), "", ""},
		{"its own kind in other namespaces", widgetCRD + hook("{service: {namespace: w, name: w}}", strings.Replace(widget, "CREATE, UPDATE", "DELETE", 1), "  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [w]}]}\n"), "", ""},
		{"its own kind, failing open", widgetCRD + hook("{service: {namespace: w, name: w}}", strings.Replace(widget, "CREATE, UPDATE", "DELETE", 1), "  failurePolicy: Ignore\n"), "", ""},
		{"everything", hook("{service: {namespace: w, name: w}}", everything, "  failurePolicy: Ignore\n"), "wildcard-everything", "every resource"},
		{"everything that may pass soon", hook("{service: {namespace: w, name: w}}", everything, "  failurePolicy: Ignore\n  timeoutSeconds: 1\n"), "", ""},
		{"everything that may not pass", hook("{service: {namespace: w, name: w}}", everything, "  timeoutSeconds: 1\n"), "wildcard-everything", "every resource"},
		{"everything with a label", hook("{service: {namespace: w, name: w}}", everything, "  failurePolicy: Ignore\n  objectSelector: {matchLabels: {example.com/check: wanted}}\n"), "", ""},
		{"the same webhook twice", mutating("a", "5", "Ignore", core("CREATE", "configmaps")) + mutating("b", "5", "Ignore", core("CREATE", "configmaps")), "duplicate", "says the same"},
		{"webhooks without rules", mutating("a", "5", "Ignore", "") + mutating("b", "5", "Ignore", ""), "", ""},
		{"webhooks that are waited for", mutating("a", "20", "Ignore", core("CREATE", "configmaps")) + mutating("b", "20", "Fail", core("CREATE", "configmaps")), "timeouts-exceed-request", "take 40s together when they do not answer"},
		{"a url in the cluster", hook(`{url: "https://w.w.svc.cluster.local:8443/"}`, core("CREATE", "configmaps"), "  failurePolicy: Ignore\n"), "url-in-cluster", "w.w.svc.cluster.local"},
		{"a url outside", hook(`{url: "https://w.example.com/"}`, core("CREATE", "configmaps"), "  failurePolicy: Ignore\n"), "", ""},
		{"a service in another namespace", hook("{service: {namespace: system, name: w}}", core("CREATE", "configmaps"), "  failurePolicy: Ignore\n") + service("w-system", "w"), "service-missing", "in namespace w-system"},
		{"a converter in another namespace", strings.Replace(widgetCRD, "  versions:\n", "  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: system, name: w}}}}\n  versions:\n  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}\n", 1) + service("w-system", "w"), "service-missing", "in namespace w-system"},
		{"names that match nothing", validates(`{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [configmaps], resourceNames: ["kube-*"]}`, "object.metadata.name != oldObject.metadata.name"), "rule-never-matches", "kube-*"},
		{"a resource of another group", validates(apps("CREATE", "deployments, namespaces"), "has(object.metadata.labels)"), "rule-never-matches", "no request matches namespaces"},
		{"a subresource that does not exist", validates(core("UPDATE", "configmaps, configmaps/scale"), "has(object.metadata.labels)"), "rule-never-matches", "no request matches configmaps/scale"},
		{"resources of two groups", validates(`{apiGroups: ["", apps], apiVersions: [v1], operations: [CREATE], resources: [deployments, namespaces, deployments/*]}`, "has(object.metadata.labels)"), "", ""},
		{"a kind that the files do not have", widgetCRD + validates(`{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets, gadgets]}`, "has(object.metadata.labels)"), "", ""},
		{"a namespace that is always there", validates(core("CREATE", "configmaps"), "has(object.metadata.namespace)"), "validation-constant", "true for every request"},
		{"a default that is always there", validates(apps("CREATE", "deployments"), "has(object.spec.replicas)"), "validation-constant", "true for every request"},
		{"a name that new objects need not have", applies(core("CREATE", "configmaps"), "object.metadata.name.startsWith('a-') ? Object{data: {'a': 'b'}} : Object{}"), "missing-key", "generateName"},
		{"a name that new objects need not have, of a webhook", strings.Replace(hook("{service: {namespace: w, name: w}}", core("CREATE", "configmaps"), "  matchConditions: [{name: a, expression: \"object.metadata.name != 'a'\"}]\n"), "Validating", "Mutating", 1), "missing-key", "generateName"},
		{"a name after the mutating pass", validates(core("CREATE", "configmaps"), "object.metadata.name != 'a'"), "", ""},
		{"a name that updates have", applies(core("UPDATE", "configmaps"), "object.metadata.name.startsWith('a-') ? Object{data: {'a': 'b'}} : Object{}"), "", ""},
		{"a name that the request has", applies(core("CREATE", "configmaps"), "request.name != '' && object.metadata.name.startsWith('a-') ? Object{data: {'a': 'b'}} : Object{}"), "", ""},
		{"a name with a guard", applies(core("CREATE", "configmaps"), "object.metadata.?name.orValue('').startsWith('a-') ? Object{data: {'a': 'b'}} : Object{}"), "", ""},
		{"a name that mutations need not see", applies(core("CREATE", "configmaps"), "has(object.metadata.name) ? Object{data: {'a': 'b'}} : Object{}"), "", ""},
		{"a manifest file that protects policies, with the object of a deletion", policy("Validating", "a.static.k8s.io", protected, "  validations: [{expression: '!has(object.metadata.labels)'}]\n"), "validation-constant", "DELETE"},
		{"a manifest file that protects policies", policy("Validating", "a.static.k8s.io", protected, "  validations: [{expression: '!has(oldObject.metadata.labels)'}]\n"), "", ""},
		{"a policy of the API that protects policies", policy("Validating", "a", protected, "  validations: [{expression: '!has(oldObject.metadata.labels)'}]\n"), "rule-never-matches", "never matches"},
		{"labels may be there", validates(core("CREATE", "configmaps"), "has(object.metadata.labels)"), "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report, _ := lintFile(t, tc.files, nil)
			found := false
			for i := range report.Findings {
				f := &report.Findings[i]
				text := string(f.Level) + " " + f.Rule.ID + ": " + f.Message
				switch {
				case f.Rule.ID == "update-forgotten", strings.Contains(f.Message, "well-known pods"):
					// See TestFindingsOfPolicies.
				case tc.want == "" && f.Rule.ID != "ca-bundle-missing" && f.Rule.ID != "webhook-on-custom-resource" && f.Rule.ID != "unscoped" && f.Rule.ID != "object-selector-opt-out" && f.Rule.ID != "single-replica":
					t.Errorf("found: %s", text)
				case f.Rule.ID == tc.want && strings.Contains(text, tc.text):
					found = true
				}
			}
			if tc.want == "" || found {
				return
			}
			for i := range report.Findings {
				t.Logf("found: %s %s", report.Findings[i].Rule.ID, report.Findings[i].Message)
			}
			t.Errorf("%s with %q is not found", tc.want, tc.text)
		})
	}
}

// Each file has exactly the findings of these rules (S16.25).
func TestFindingsOfPolicies(t *testing.T) {
	const jobs = `{apiGroups: [batch], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [jobs]}`
	const label = `object.metadata.labels["created-by"] == "backups"`
	const named = `has(object.metadata.name) && object.metadata.name.startsWith("backup-")`
	const owner = "object.metadata.labels['owner'] != ''"
	const hostNetwork = "!has(object.spec.hostNetwork) || object.spec.hostNetwork != true"
	const priority = `[JSONPatch{op: "add", path: "/spec/template/spec/priorityClassName", value: "low"}]`
	const mount = `[JSONPatch{op: "add", path: "/spec/template/spec/containers/0/volumeMounts/-", value: Object.spec.template.spec.containers.volumeMounts{name: "a", mountPath: "/a"}}]`
	const secrets = `[JSONPatch{op: "add", path: "/spec/template/spec/imagePullSecrets", value: [Object.spec.template.spec.imagePullSecrets{name: "a"}]}]`
	const lists = `[JSONPatch{op: "add", path: "/spec/template/spec/initContainers", value: []}, JSONPatch{op: "add", path: "/spec/template/spec/initContainers/-", value: Object.spec.template.spec.initContainers{name: "a", image: "a"}}]`
	widget := `{apiGroups: [example.com], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [widgets]}`
	meets := func(file string, conditions ...string) string {
		text := "  matchConditions:\n"
		for i, c := range conditions {
			text += fmt.Sprintf("  - {name: c%d, expression: %q}\n", i, c)
		}
		return strings.Replace(file, "  matchConstraints:", text+"  matchConstraints:", 1)
	}
	variables := policy("Validating", "a", apps("CREATE, UPDATE", "deployments"), "  variables: [{name: labels, expression: object.metadata.labels}]\n"+
		"  validations: [{expression: \"'a' in variables.labels\"}, {expression: \"'b' in variables.labels\"}, {expression: \"!has(variables.labels) || !('c' in variables.labels)\"}]\n")
	versions := strings.Replace(widgetCRD, "  versions:\n", "  versions:\n  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}\n", 1)
	within := func(selector, file string) string {
		return strings.Replace(file, "matchConstraints: {", "matchConstraints: {"+selector+", ", 1)
	}
	for _, tc := range []struct {
		name, files string
		// want has the level and rule of each finding. text is a part of the messages with their fields, and not is no part of them.
		want      []string
		text, not string
	}{
		{"labels of one program", meets(patches(jobs, priority), named, label), nil, "", ""},
		{"names of new objects with a field", meets(patches(jobs, priority), `object.metadata.name.startsWith("backup-")`, "has(object.spec.template.spec.hostNetwork) && object.spec.template.spec.hostNetwork"), nil, "", ""},
		{"labels of objects with a field", meets(validates(core("CREATE, UPDATE", "configmaps"), owner), "!has(object.metadata.finalizers)"), []string{"warning missing-key"}, `each of these requests that meets the match condition "c0" is rejected`, ""},
		{"labels of objects with an optional field", meets(validates(core("CREATE, UPDATE", "configmaps"), owner), "has(object.metadata.finalizers)"), []string{"note missing-key"}, `meets the match condition "c0"`, ""},
		{"names of new objects without a volume", meets(patches(jobs, priority), `object.metadata.name.startsWith("backup-")`, `!has(object.spec.template.spec.volumes) || !object.spec.template.spec.volumes.exists(v, v.name == "a")`), []string{"warning missing-key"}, `whose metadata.name is set after the mutating pass: no such key: name; each of these requests that meets the match condition "c1" is rejected`, ""},
		{"names of new objects without a label", meets(patches(jobs, priority), `object.metadata.name.startsWith("backup-")`, label), []string{"warning missing-key"}, `each of these requests that meets, or fails in, the match condition "c1" is rejected`, ""},
		{"names of new objects with a label", meets(patches(jobs, priority), `object.metadata.name.startsWith("backup-")`, `has(object.metadata.labels) && "a" in object.metadata.labels`), nil, "", ""},
		{"a label that objects must have", validates(apps("CREATE", "deployments"), "'owner' in object.metadata.labels && object.metadata.labels.owner.startsWith('a')"), []string{"note update-forgotten"}, "", ""},
		{"a label that objects must not have", validates(apps("CREATE, UPDATE", "deployments"), "!('owner' in object.metadata.labels)"), []string{"warning missing-key"}, "no such key: labels", ""},
		{"labels that another validation demands", strings.Replace(validates(apps("CREATE, UPDATE", "deployments"), owner), "  validations:\n", "  validations:\n  - expression: \"has(object.metadata.labels) && 'owner' in object.metadata.labels\"\n", 1), nil, "", ""},
		{"a field that objects must have", validates(core("CREATE, UPDATE", "pods"), "object.spec.securityContext.runAsNonRoot == true"), []string{"warning policy-stops-cluster"}, "", ""},
		{"labels of the objects of one user", validates(apps("CREATE, UPDATE", "deployments"), "request.userInfo.username != 'system:serviceaccount:a:b' || "+owner), nil, "", ""},
		{"labels, except of one user", validates(apps("CREATE, UPDATE", "deployments"), "request.userInfo.username == 'system:serviceaccount:a:b' || "+owner), []string{"warning missing-key"}, "labels", ""},
		{"volumes of one program", meets(patches(jobs, priority), named, `!object.spec.template.spec.volumes.exists(v, v.name == "a")`), nil, "", ""},
		{"labels, and no such request", meets(patches(jobs, priority), label, `request.kind.kind == "CronJob"`), nil, "", ""},
		{"labels, and no such operation", meets(validates(apps("CREATE, UPDATE", "deployments"), owner), "request.operation == 'UPDATE'"), []string{"warning missing-key"}, "the UPDATE of deployments", "meets"},
		{"labels, except in a namespace", meets(validates(apps("CREATE, UPDATE", "deployments"), owner), "request.namespace != 'kube-system'"), []string{"warning missing-key"}, `that meets the match condition "c0"`, ""},
		{"labels, in a namespace", meets(validates(apps("CREATE, UPDATE", "deployments"), owner), "request.namespace == 'team'"), []string{"warning missing-key"}, `that meets the match condition "c0"`, ""},
		{"labels, except of two groups", meets(validates(apps("CREATE, UPDATE", "deployments"), owner), "request.namespace != 'kube-system'", "!('system:nodes' in request.userInfo.groups)"), []string{"warning missing-key"}, `the match conditions "c0" and "c1"`, ""},
		{"labels, with an opt-in", meets(validates(apps("CREATE, UPDATE", "deployments"), owner), "has(object.metadata.annotations) && 'check' in object.metadata.annotations"), nil, "", ""},
		{"labels, and a warning", strings.Replace(validates(apps("CREATE, UPDATE", "deployments"), owner), "[Deny]", "[Warn, Audit]", 1), []string{"warning missing-key"}, "each of these requests gets this error as a warning or in its audit event", "no effect"},
		{"labels, and no binding", strings.Replace(validates(apps("CREATE, UPDATE", "deployments"), owner), "policyName: a", "policyName: b", 1), []string{"warning missing-key"}, "a binding with the action Deny rejects each of these requests", "no effect"},
		{"labels, and failures that are ignored", strings.Replace(validates(apps("CREATE, UPDATE", "deployments"), owner), "spec:\n", "spec:\n  failurePolicy: Ignore\n", 1), []string{"warning missing-key"}, "the expression has no effect on each of these requests", ""},
		{"one variable", variables, []string{"warning missing-key"}, `spec.variables[0].expression: the variable "labels" of a fails`, ""},
		{"the old object, of one program", meets(validates(core("CREATE, UPDATE", "configmaps"), "request.namespace == 'x' || oldObject.metadata.name == 'a'"), "object.metadata.name.startsWith('backup-')"), []string{"note variable-null"}, `each such request that meets the match condition "c0" is rejected`, ""},
		{"a mount of one program", meets(patches(jobs, mount), named), []string{"note patch-parent-missing"}, `each request that meets the match condition "c0" is rejected`, ""},
		{"a mount of other objects", meets(patches(jobs, mount), "request.kind.kind == 'CronJob'"), nil, "", ""},
		{"a label without labels, and no such operation", meets(patches(core("CREATE, UPDATE", "configmaps"), `[JSONPatch{op: "add", path: "/metadata/labels/a", value: "b"}]`), "request.operation == 'DELETE'"), nil, "", ""},
		{"a mount", patches(jobs, mount), []string{"warning patch-parent-missing"}, "each request is rejected", ""},

		{"objects that cannot be created", widgetCRD + validates(widget, "object.metadata.namespace == 'public'"), nil, "", ""},
		{"objects that some can create", widgetCRD + validates(widget, "request.userInfo.username == 'a'"), []string{"warning policy-stops-cluster"}, "garbage-collector", ""},
		{"two versions", versions + validates(widget, "request.userInfo.username == 'a'"), []string{"warning policy-stops-cluster"}, "garbage-collector", "and UPDATE"},
		{"pods on the network of their node", validates(core("CREATE", "pods"), hostNetwork), []string{"warning policy-stops-cluster"}, "the mirror pod of a static kube-apiserver, kube-proxy and a network plugin", "CoreDNS"},
		{"privileged pods, with a field that need not be there", validates(core("CREATE", "pods"), "object.spec.containers.all(c, !has(c.securityContext.privileged) || !c.securityContext.privileged)"), []string{"warning policy-stops-cluster", "warning missing-key"}, "no such key: securityContext for the mirror pod", ""},
		{"service CIDRs", validates(`{apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [UPDATE], resources: [servicecidrs]}`, "request.userInfo.username == 'a'"), []string{"warning policy-stops-cluster", "warning policy-stops-cluster"}, "service-cidrs-controller", ""},
		{"privileged pods", validates(core("CREATE", "pods"), "object.spec.containers.all(c, !c.?securityContext.?privileged.orValue(false))"), []string{"warning policy-stops-cluster"}, ": kube-proxy and a network plugin", ""},
		{"volumes of the node", validates(core("CREATE", "pods"), "!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))"), []string{"warning policy-stops-cluster"}, "kube-apiserver, kube-proxy and a network plugin", ""},
		{"limits", validates(core("CREATE", "pods"), "object.spec.containers.all(c, has(c.resources) && has(c.resources.limits))"), []string{"warning policy-stops-cluster"}, "kube-apiserver; ", "kube-proxy"},
		{"a label of pods", validates(podRule, "has(object.metadata.labels) && 'owner' in object.metadata.labels"), []string{"warning policy-stops-cluster"}, "CoreDNS", ""},
		{"images of pods", validates(podRule, "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))"), nil, "", ""},
		{"ports of pods", validates(podRule, "object.spec.containers.all(c, !has(c.ports) || c.ports.all(p, !has(p.hostPort)))"), nil, "", ""},
		{"pods of other namespaces", within("namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}", validates(podRule, hostNetwork)), nil, "", ""},
		{"pods that a label selects", within("objectSelector: {matchExpressions: [{key: skip, operator: DoesNotExist}]}", validates(podRule, hostNetwork)), nil, "", ""},
		{"pods, by a condition", meets(validates(podRule, hostNetwork), "request.namespace != 'kube-system'"), nil, "", ""},
		{"pods of users", meets(validates(podRule, hostNetwork), "!request.userInfo.username.startsWith('system:')"), nil, "", ""},
		{"pods, with an exception", validates(podRule, "request.namespace == 'kube-system' || "+hostNetwork), nil, "", ""},
		{"warnings about pods", strings.Replace(validates(podRule, hostNetwork), "[Deny]", "[Warn]", 1), nil, "", ""},
		{"a failure that is ignored", strings.Replace(meets(validates(podRule, "object.spec.hostIPC == false"), "has(object.spec.hostNetwork)"), "spec:\n", "spec:\n  failurePolicy: Ignore\n", 1), nil, "", ""},
		{"pods that a mutation changes", validates(podRule, hostNetwork) + another(applies(core("CREATE", "pods"), `Object{metadata: Object.metadata{labels: {"a": "b"}}}`)), nil, "", ""},

		{"init containers", patches(jobs, lists), []string{"warning patch-replaces-list"}, "has(object.spec.template.spec.initContainers), and add to /spec/template/spec/initContainers/-", ""},
		{"pull secrets of two kinds", patches(apps("CREATE", "deployments, statefulsets"), secrets), []string{"warning patch-replaces-list"}, "the same holds for a StatefulSet", ""},
		{"variables of a container", patches(apps("CREATE", "deployments"), `[JSONPatch{op: "add", path: "/spec/template/spec/containers/0/env", value: [{"name": "A", "value": "b"}]}]`), []string{"warning patch-replaces-list"}, "has(object.spec.template.spec.containers[0].env)", ""},
		{"init containers of one program", meets(patches(jobs, lists), named), nil, "", ""},
		{"pull secrets with a guard", patches(apps("CREATE", "deployments"), "has(object.spec.template.spec.imagePullSecrets) ? [] : "+secrets), nil, "", ""},
		{"pull secrets with a condition", meets(patches(apps("CREATE", "deployments"), secrets), "!has(object.spec.template.spec.imagePullSecrets)"), nil, "", ""},
		{"pull secrets that are replaced", patches(apps("CREATE", "deployments"), strings.Replace(secrets, `"add"`, `"replace"`, 1)), nil, "", ""},
		{"pull secrets, with the old ones", patches(apps("CREATE", "deployments"), strings.Replace(secrets, "value: [", "value: object.spec.template.spec.?imagePullSecrets.orValue([]) + [", 1)), nil, "", ""},
		{"arguments", patches(apps("CREATE", "deployments"), `[JSONPatch{op: "add", path: "/spec/template/spec/containers/0/args", value: ["a"]}]`), nil, "", ""},
		{"no finalizers", patches(core("CREATE", "configmaps"), `[JSONPatch{op: "add", path: "/metadata/finalizers", value: []}]`), nil, "", ""},
		{"a map", patches(core("CREATE", "configmaps"), `[JSONPatch{op: "add", path: "/metadata/labels", value: {"a": "b"}}]`), nil, "", ""},

		{"labels of new objects", validates(apps("CREATE", "deployments"), "object.metadata.?labels['owner'].orValue('') != ''"), []string{"note update-forgotten"}, "metadata.labels of deployments", ""},
		{"images of new pods", validates(core("CREATE", "pods"), "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))"), []string{"note update-forgotten"}, "spec.containers.*.image of pods", ""},
		{"labels of all objects", validates(apps("CREATE, UPDATE", "deployments"), "object.metadata.?labels['owner'].orValue('') != ''"), nil, "", ""},
		{"labels of new objects, and another policy", validates(apps("CREATE", "deployments"), "object.metadata.?labels['owner'].orValue('') != ''") + another(validates(apps("UPDATE", "deployments"), "object.metadata.?labels['owner'].orValue('') != ''")), nil, "", ""},
		{"labels that decide about other fields", validates(apps("CREATE", "deployments"), "object.metadata.?labels['owner'].orValue('') != '' || object.spec.replicas < 3"), nil, "", ""},
		{"names of new objects", validates(apps("CREATE", "deployments"), "object.metadata.name != 'a'"), nil, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report, _ := lintFile(t, tc.files, nil)
			var found []string
			texts := ""
			for i := range report.Findings {
				f := &report.Findings[i]
				if !slices.Contains([]string{"missing-key", "variable-null", "patch-parent-missing", "patch-replaces-list", "policy-stops-cluster", "update-forgotten"}, f.Rule.ID) {
					continue
				}
				found = append(found, string(f.Level)+" "+f.Rule.ID)
				texts += f.Field() + ": " + f.Message + "\n"
			}
			if !slices.Equal(found, tc.want) {
				t.Errorf("found %q, want %q\n%s", found, tc.want, texts)
			}
			if !strings.Contains(texts, tc.text) || tc.not != "" && strings.Contains(texts, tc.not) {
				t.Errorf("want %q and not %q in\n%s", tc.text, tc.not, texts)
			}
		})
	}
}

// The registrations of each directory tree are evaluated together with all objects that exist once.
func TestVariantsOfFiles(t *testing.T) {
	hook := func(resources, more string) string {
		return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: h}\nwebhooks:\n- name: h.example.com\n" +
			"  clientConfig: {service: {namespace: hooks, name: hooks}}\n  admissionReviewVersions: [v1]\n  sideEffects: None\n" +
			"  rules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [" + resources + "]}]\n" + more
	}
	const namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: hooks}\n"
	service := func(port string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {namespace: hooks, name: hooks}\nspec: {ports: [{port: " + port + "}]}\n"
	}
	many := map[string]string{}
	for i := range 12 {
		many[fmt.Sprintf("env%02d/w.yaml", i)] = hook("configmaps", fmt.Sprintf("  timeoutSeconds: %d\n", i+1))
	}
	for _, tc := range []struct {
		name     string
		files    map[string]string
		variants int
		// want and not are rules, each with the end of the file of its finding; unseen is a part of a sentence.
		want, not []string
		unseen    string
	}{
		{"nodes in production", map[string]string{"dev/w.yaml": hook("secrets", ""), "prod/w.yaml": hook("nodes", "")}, 2, []string{"fail-on-nodes prod/w.yaml"}, nil, ""},
		{"nodes in development", map[string]string{"dev/w.yaml": hook("nodes", ""), "prod/w.yaml": hook("secrets", "")}, 2, []string{"fail-on-nodes dev/w.yaml"}, []string{"fail-on-nodes prod/w.yaml"}, ""},
		{"one finding of both", map[string]string{"dev/w.yaml": hook("nodes", ""), "prod/w.yaml": hook("nodes", "  timeoutSeconds: 5\n")}, 2, []string{"fail-on-nodes dev/w.yaml"}, []string{"fail-on-nodes prod/w.yaml"}, ""},
		{"equal objects", map[string]string{"dev/w.yaml": hook("nodes", ""), "prod/w.yaml": hook("nodes", "")}, 1, []string{"fail-on-nodes"}, nil, ""},
		{"each with its service", map[string]string{"n.yaml": namespace, "dev/w.yaml": hook("secrets", ""), "dev/s.yaml": service("443"), "prod/w.yaml": hook("configmaps", ""), "prod/s.yaml": service("8443")}, 2, []string{"service-port-missing prod/w.yaml"}, []string{"service-port-missing dev/w.yaml"}, ""},
		{"two in one tree", map[string]string{"a/b/w.yaml": hook("secrets", ""), "a/c/w.yaml": hook("nodes", ""), "d/w.yaml": hook("configmaps", "")}, 3, []string{"fail-on-nodes c/w.yaml"}, nil, ""},
		{"too many", many, 8, nil, nil, "env11"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tc.files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				writeFile(t, filepath.Join(dir, name), text)
			}
			w, skipped, _, err := offline.Survey([]string{dir}, nil, &manifests.Ignore{})
			if err != nil {
				t.Fatal(err)
			}
			variants := w.Variants()
			if len(variants) != tc.variants {
				t.Errorf("%d variants, want %d", len(variants), tc.variants)
			}
			if tc.unseen != "" && !strings.Contains(strings.Join(skipped, "\n"), tc.unseen) {
				t.Errorf("%q does not name %q", skipped, tc.unseen)
			}
			var reports []*lint.Result
			for _, v := range variants {
				world, err := v.Lint(t.Context(), exampleTime, nil)
				if err != nil {
					t.Fatal(err)
				}
				reports = append(reports, lint.Check(t.Context(), world, lint.Options{}))
			}
			var found []string
			for _, f := range lint.Merge(reports).Findings {
				at, _ := variants[f.Variant].Locate(f.Object, f.Path)
				found = append(found, f.Rule.ID+" "+at.File)
			}
			has := func(what string) bool {
				rule, file, _ := strings.Cut(what, " ")
				return slices.ContainsFunc(found, func(f string) bool {
					return strings.HasPrefix(f, rule+" ") && strings.HasSuffix(f, filepath.FromSlash(file))
				})
			}
			expect(t, found, has, tc.want, tc.not)
		})
	}
}

// expect fails the test for each finding that is missing or unwanted.
func expect(t *testing.T, found []string, has func(string) bool, want, not []string) {
	t.Helper()
	for _, w := range want {
		if !has(w) {
			t.Errorf("%q is not in %q", w, found)
		}
	}
	for _, n := range not {
		if has(n) {
			t.Errorf("%q is in %q", n, found)
		}
	}
}
