package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// Lint is silent about configurations that are sound or deliberate, and finds the fault next to each.
func TestNarrowRules(t *testing.T) {
	const core = `{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}`
	const workloads = `{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}`
	const things = `{apiGroups: [example.com], apiVersions: [v1], operations: [DELETE], resources: [things]}`
	const everything = `{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}`
	const status = `{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [nodes/status]}`
	const aside = "  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, w]}]}\n"
	const optIn = "  namespaceSelector: {matchLabels: {check: wanted}}\n"
	const optOut = "  objectSelector: {matchExpressions: [{key: skip, operator: DoesNotExist}]}\n"
	const noRights = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: w, namespace: w}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: none, namespace: w}\n"
	webhook := func(kind, version, name, namespace, rule, more string) string {
		text := "---\napiVersion: admissionregistration.k8s.io/" + version + "\nkind: " + kind + "WebhookConfiguration\nmetadata: {name: " + name + "}\nwebhooks:\n- name: " + name +
			".example.com\n  clientConfig:\n    service: {namespace: " + namespace + ", name: w}\n  admissionReviewVersions: [v1]\n  rules: [" + rule + "]\n" + more
		if !strings.Contains(more, "sideEffects") && version == "v1" {
			text += "  sideEffects: None\n"
		}
		return text
	}
	hook := func(rule, more string) string { return webhook("Validating", "v1", "a", "w", rule, more) }
	mutating := func(rule, more string) string { return webhook("Mutating", "v1", "a", "w", rule, more) }
	mutation := func(name string) string {
		return policy("Mutating", name, core, "  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{}'}}]\n")
	}
	old := func(more string) string { return webhook("Validating", "v1beta1", "a", "w", core, more) }
	bundle := func(value, text string) string {
		return strings.Replace(text, "  clientConfig:\n", "  clientConfig:\n    caBundle: "+value+"\n", 1)
	}
	service := func(metadata string) string {
		return "---\napiVersion: v1\nkind: Service\nmetadata: {" + metadata + "}\nspec: {selector: {app: w}, ports: [{port: 443}]}\n"
	}
	deployment := func(metadata string) string {
		return "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {" + metadata + "}\nspec:\n  replicas: 1\n  selector: {matchLabels: {app: w}}\n" +
			"  template: {metadata: {labels: {app: w}}, spec: {containers: [{name: w, image: registry.example.com/w}], volumes: [{name: c, secret: {secretName: c}}]}}\n"
	}
	later := strings.Replace(mutating(core, aside)[strings.Index(mutating(core, aside), "- name"):], "a.example.com", "z.example.com", 1)
	server := service("namespace: w, name: w") + deployment("namespace: w, name: w")
	definition := strings.NewReplacer("widgets", "things", "widget", "thing", "Widget", "Thing").Replace(widgetCRD)
	thing := func(namespace string) string {
		return "---\napiVersion: example.com/v1\nkind: Thing\nmetadata: {name: one, namespace: " + namespace + "}\n"
	}
	scaled := func(kustomization string) map[string]string {
		return map[string]string{"base/a.yaml": hook(core, aside) + server, "base/kustomization.yaml": "resources: [a.yaml]\n", "over/kustomization.yaml": "resources: [../base]\n" + kustomization}
	}
	set := strings.Replace(server, "kind: Deployment", "kind: DaemonSet", 1)
	issued := func(namespace string) string {
		return "---\napiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: serving, namespace: " + namespace + "}\n"
	}
	marked := func(metadata, text string) string {
		return strings.Replace(text, "metadata: {name: a}", "metadata: {name: a, "+metadata+"}", 1)
	}
	behind := func(service, text string) string {
		return strings.Replace(text, ", name: w}", ", name: "+service+"}", 1)
	}
	csv := "---\napiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {name: w.v1}\n"
	without := func(prefix string) func(*lint.Input) {
		return func(w *lint.Input) {
			w.Resources = slices.DeleteFunc(w.Resources, func(r lint.Resource) bool {
				return r.GroupVersion() == schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"} && strings.HasPrefix(r.Resource, prefix)
			})
		}
	}
	mutator := func(version string) string {
		return strings.ReplaceAll(applies(`{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}`, "Object{data: {'a': 'b'}}"), "admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/"+version)
	}
	circle := func(kustomization string) map[string]string {
		return map[string]string{
			"app/base/hook.yaml":          webhook("Mutating", "v1", "first", "system", core, ""),
			"app/base/kustomization.yaml": "resources: [hook.yaml]\n" + kustomization,
			"app/base/selector.yaml":      "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: first}\nwebhooks:\n- name: first.example.com\n" + optIn,
			"other/hook.yaml":             webhook("Mutating", "v1", "second", "second", core, strings.Replace(aside, " w]", " second]", 1)),
		}
	}
	for _, tc := range []struct {
		name  string
		files map[string]string
		// want and not are rules, or rules with their level; unseen is a part of a sentence.
		want, not []string
		unseen    string
		change    func(*lint.Input)
	}{
		{"a service without a namespace", map[string]string{"a.yaml": hook(workloads, optIn) + service("name: w")}, nil, []string{"service-missing"}, "", nil},
		{"a service in the namespace default", map[string]string{"a.yaml": hook(workloads, optIn) + service("name: w, namespace: default")}, []string{"service-missing"}, nil, "", nil},
		{"the server of a service without a namespace", map[string]string{"a.yaml": hook(core, aside) + service("name: w") + deployment("name: w")}, []string{"single-replica"}, nil, "", nil},
		{"the wrong port of a service without a namespace", map[string]string{"a.yaml": hook(workloads, optIn) + strings.Replace(service("name: w"), "443", "8443", 1)}, []string{"service-port-missing"}, nil, "", nil},

		{"a cycle with an object that a kustomization changes", circle("patches: [{path: selector.yaml}]\n"), nil, []string{"deadlock-cycle", "order-by-name"}, "kustomization.yaml changes it", nil},
		{"a cycle", circle(""), []string{"deadlock-cycle"}, nil, "", nil},

		{"a server in kube-system", map[string]string{"a.yaml": webhook("Validating", "v1", "a", "kube-system", things, "") + definition}, nil, []string{"delete-own-kind"}, "", nil},
		{"a server in default", map[string]string{"a.yaml": webhook("Validating", "v1", "a", "default", things, "") + definition}, nil, []string{"delete-own-kind"}, "", nil},
		{"a server in kube-node-lease", map[string]string{"a.yaml": webhook("Validating", "v1", "a", "kube-node-lease", things, "") + definition + thing("kube-node-lease")}, []string{"delete-own-kind"}, nil, "", nil},
		{"objects beside the server", map[string]string{"a.yaml": webhook("Validating", "v1", "a", "w", things, "") + definition + thing("w") + strings.Replace(thing("users"), "one", "two", 1)}, []string{"delete-own-kind"}, nil, "", nil},
		{"a Role about objects beside the server", map[string]string{"a.yaml": hook(things, "") + definition + noRights + "rules: [{apiGroups: [example.com], resources: [things], verbs: [get]}]\n"}, []string{"delete-own-kind"}, nil, "", nil},
		{"a Role about other objects", map[string]string{"a.yaml": hook(things, "") + definition + noRights + "rules: [{apiGroups: [example.org], resources: [things], verbs: [get]}]\n"}, nil, []string{"delete-own-kind"}, "", nil},
		{"a base", map[string]string{"a.yaml": webhook("Validating", "v1", "a", "system", things, "") + definition + thing("system")}, nil, []string{"delete-own-kind"}, "", nil},
		{"objects in namespaces of users", map[string]string{"a.yaml": webhook("Validating", "v1", "a", "w", things, "") + definition + thing("users")}, nil, []string{"delete-own-kind"}, "", nil},

		{"v1beta1, where v1 is not served", map[string]string{"a.yaml": mutator("v1beta1")}, nil, []string{"registration-old"}, "", without("mutatingadmission")},
		{"v1beta1, where v1 is served", map[string]string{"a.yaml": mutator("v1beta1")}, []string{"registration-old"}, nil, "", nil},
		{"v1, where it is not served", map[string]string{"a.yaml": mutator("v1")}, []string{"registration-old"}, nil, "", without("mutatingadmission")},
		{"v1, where it is served", map[string]string{"a.yaml": mutator("v1")}, nil, []string{"registration-old"}, "", without("validatingadmission")},

		{"an empty caBundle", map[string]string{"a.yaml": bundle(`""`, hook(workloads, optIn)) + server + noRights}, nil, []string{"ca-bundle-missing"}, "", nil},
		{"a caBundle without a value", map[string]string{"a.yaml": bundle("", hook(workloads, optIn)) + server + noRights}, nil, []string{"ca-bundle-missing"}, "", nil},
		{"no caBundle", map[string]string{"a.yaml": hook(workloads, optIn) + server + noRights}, []string{"ca-bundle-missing"}, nil, "", nil},
		{"no caBundle, and no certificate", map[string]string{"a.yaml": hook(workloads, optIn) + strings.Replace(server, "secret: {secretName: c}", "emptyDir: {}", 1) + noRights}, nil, []string{"ca-bundle-missing"}, "what may set the caBundle", nil},
		{"no caBundle, installed by OLM", map[string]string{"a.yaml": hook(workloads, optIn) + server + noRights, "csv.yaml": csv}, nil, []string{"ca-bundle-missing"}, "", nil},
		{"a wrong caBundle beside OLM", map[string]string{"a.yaml": bundle("YQ==", hook(workloads, optIn)) + server, "csv.yaml": csv}, []string{"ca-bundle-invalid"}, nil, "", nil},
		{"a wrong caBundle", map[string]string{"a.yaml": bundle("YQ==", hook(workloads, optIn)) + server}, []string{"ca-bundle-invalid"}, nil, "", nil},

		{"one note", map[string]string{"a.yaml": mutating(workloads, "")}, []string{"unscoped"}, []string{"mutating-fails-closed"}, "", nil},
		{"workloads of every namespace that may pass", map[string]string{"a.yaml": mutating(workloads, "  failurePolicy: Ignore\n")}, nil, []string{"unscoped"}, "", nil},
		{"claims of volumes of every namespace", map[string]string{"a.yaml": hook(strings.Replace(core, "pods", "persistentvolumeclaims", 1)+", "+things, "")}, nil, []string{"unscoped"}, "", nil},
		{"claims and classes of volumes", map[string]string{"a.yaml": hook(strings.Replace(core, "pods", "persistentvolumeclaims", 1)+`, {apiGroups: [storage.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [storageclasses]}`, "")}, nil, []string{"unscoped"}, "", nil},
		{"claims of volumes that a webhook changes", map[string]string{"a.yaml": mutating(strings.Replace(core, "pods", "persistentvolumeclaims", 1), "")}, nil, []string{"unscoped", "mutating-fails-closed"}, "", nil},
		{"claims of volumes and jobs of every namespace", map[string]string{"a.yaml": hook(strings.Replace(core, "pods", "persistentvolumeclaims", 1)+", "+workloads, "")}, []string{"unscoped"}, nil, "", nil},
		{"pods of kube-system that may pass", map[string]string{"a.yaml": hook(core, "  failurePolicy: Ignore\n")}, nil, []string{"control-plane-not-exempt"}, "", nil},
		{"pods of kube-system that may pass late", map[string]string{"a.yaml": hook(core, "  failurePolicy: Ignore\n  timeoutSeconds: 25\n")}, []string{"note control-plane-not-exempt"}, nil, "", nil},
		{"the status of nodes", map[string]string{"a.yaml": mutating(status, "  failurePolicy: Ignore\n")}, nil, []string{"mutates-status"}, "", nil},
		{"the status of nodes, which fails closed", map[string]string{"a.yaml": mutating(status, "")}, []string{"mutates-status"}, nil, "", nil},
		{"all of nodes", map[string]string{"a.yaml": mutating(strings.Replace(status, "nodes/status", `"nodes/*"`, 1), "  failurePolicy: Ignore\n")}, []string{"mutates-status"}, nil, "", nil},
		{"webhooks of one program", map[string]string{"a.yaml": mutating(core, aside) + later}, nil, []string{"not-reinvoked"}, "", nil},
		{"webhooks of two programs", map[string]string{"a.yaml": mutating(core, aside) + later, "b.yaml": behind("other", webhook("Mutating", "v1", "b", "w", core, aside))}, []string{"not-reinvoked"}, nil, "", nil},
		{"webhooks of two configurations of one service", map[string]string{"a.yaml": mutating(core, aside), "b.yaml": webhook("Mutating", "v1", "b", "w", core, aside)}, nil, []string{"not-reinvoked", "order-by-name"}, "", nil},
		{"no caBundle, and a server whose Secret is in no file", map[string]string{"a.yaml": hook(workloads, optIn) + server + noRights[strings.LastIndex(noRights, "---"):]}, nil, []string{"ca-bundle-missing"}, "what may set the caBundle", nil},
		{"no caBundle, and OLM for another folder", map[string]string{"a.yaml": hook(workloads, optIn) + server + noRights, "olm/csv.yaml": csv}, []string{"ca-bundle-missing"}, nil, "", nil},
		{"no caBundle, and OLM by a kustomization", map[string]string{"a.yaml": hook(workloads, optIn) + server + noRights, "olm/csv.yaml": csv, "olm/kustomization.yaml": "resources: [csv.yaml, ../a.yaml]\n"}, nil, []string{"ca-bundle-missing"}, "", nil},
		{"a Certificate for another service", map[string]string{"a.yaml": marked("annotations: {cert-manager.io/inject-ca-from: w/serving}", hook(workloads, optIn)) + issued("w") + "spec: {dnsNames: [SERVICE_NAME.SERVICE_NAMESPACE.svc]}\n"}, []string{"error ca-injection-broken"}, nil, "", nil},
		{"a Certificate for the service", map[string]string{"a.yaml": marked("annotations: {cert-manager.io/inject-ca-from: w/serving}", hook(workloads, optIn)) + issued("w") + "spec: {dnsNames: [w.w, w.w.svc]}\n"}, nil, []string{"ca-injection-broken"}, "", nil},
		{"a Certificate for all services", map[string]string{"a.yaml": marked("annotations: {cert-manager.io/inject-ca-from: w/serving}", hook(workloads, optIn)) + issued("w") + "spec: {dnsNames: ['*.w.svc']}\n"}, nil, []string{"ca-injection-broken"}, "", nil},
		{"a Certificate without DNS names", map[string]string{"a.yaml": marked("annotations: {cert-manager.io/inject-ca-from: w/serving}", hook(workloads, optIn)) + issued("w")}, nil, []string{"ca-injection-broken"}, "", nil},
		{"a Certificate in a kustomization", map[string]string{"a.yaml": marked("annotations: {cert-manager.io/inject-ca-from: w/serving}", hook(workloads, optIn)), "c.yaml": issued("w") + "spec: {dnsNames: [SERVICE_NAME.SERVICE_NAMESPACE.svc]}\n", "kustomization.yaml": "resources: [a.yaml, c.yaml]\n"}, nil, []string{"ca-injection-broken"}, "", nil},
		{"ingresses of any group", map[string]string{"a.yaml": hook(`{apiGroups: ["*"], apiVersions: [v1], operations: [CREATE], resources: [ingresses]}`, "")}, nil, []string{"unscoped"}, "", nil},
		{"a label of the program's own group", map[string]string{"a.yaml": hook(things, strings.Replace(optOut, "skip", "hooks.example.com/skip", 1)) + definition}, nil, []string{"object-selector-opt-out"}, "", nil},
		{"a label of another group", map[string]string{"a.yaml": hook(things, optOut) + definition}, []string{"note object-selector-opt-out"}, nil, "", nil},
		{"a selector that includes mirror pods", map[string]string{"a.yaml": mutating(core, "  failurePolicy: Ignore\n  timeoutSeconds: 30\n  namespaceSelector: {matchExpressions: [{key: skip, operator: DoesNotExist}]}\n")}, []string{"mutates-mirror-pods"}, []string{"unscoped"}, "", nil},
		{"mirror pods and the default timeout", map[string]string{"a.yaml": mutating(core, "  failurePolicy: Ignore\n  namespaceSelector: {matchExpressions: [{key: skip, operator: DoesNotExist}]}\n")}, nil, []string{"mutates-mirror-pods"}, "", nil},
		{"no note beside an error", map[string]string{"a.yaml": mutating(core, "")}, []string{"self-deadlock", "control-plane-not-exempt"}, []string{"unscoped", "mutating-fails-closed"}, "", nil},
		{"the note of another webhook", map[string]string{"a.yaml": mutating(core, ""), "b.yaml": webhook("Mutating", "v1", "b", "w", workloads, "")}, []string{"self-deadlock", "unscoped"}, nil, "", nil},

		{"the defaults of v1beta1", map[string]string{"a.yaml": old("")}, []string{"registration-old"}, []string{"dry-run-rejected", "timeout-long", "unscoped", "control-plane-not-exempt"}, "", nil},
		{"a dry run that is rejected on purpose", map[string]string{"a.yaml": old("  sideEffects: Some\n")}, []string{"registration-old", "dry-run-rejected"}, []string{"timeout-long"}, "", nil},
		{"a deadlock of v1beta1", map[string]string{"a.yaml": old("  failurePolicy: Fail\n")}, []string{"registration-old", "self-deadlock"}, []string{"unscoped"}, "", nil},

		{"a long timeout of an opt-in", map[string]string{"a.yaml": hook(core, optIn+"  timeoutSeconds: 25\n")}, nil, []string{"timeout-long"}, "", nil},
		{"a long timeout of pods", map[string]string{"a.yaml": hook(core, aside+"  timeoutSeconds: 25\n")}, []string{"timeout-long"}, nil, "", nil},
		{"a long timeout for nothing", map[string]string{"a.yaml": hook(core, optIn+"  timeoutSeconds: 25\n  failurePolicy: Ignore\n")}, []string{"timeout-long"}, nil, "", nil},

		{"a placeholder", map[string]string{"a.yaml": bundle(`"<cabundle>"`, hook(core, ""))}, []string{"self-deadlock"}, []string{"invalid", "ca-bundle-missing", "ca-bundle-invalid"}, "webhooks[0].clientConfig.caBundle", nil},
		{"the name of a service", map[string]string{"a.yaml": strings.Replace(hook(core, ""), "namespace: w", `namespace: "$(namespace)"`, 1)}, []string{"control-plane-not-exempt"}, []string{"invalid", "service-missing"}, "service $(namespace)/w", nil},
		{"a template", map[string]string{"a.yaml": strings.Replace(hook(core, ""), "name: a}", `name: "{{ .Release.Name }}"}`, 1)}, nil, []string{"invalid"}, "metadata.name", nil},
		{"a placeholder beside a mistake", map[string]string{"a.yaml": bundle(`"${CA}"`, hook(core, "  failurePolicy: Fial\n"))}, []string{"invalid"}, nil, "caBundle", nil},
		{"no base64", map[string]string{"a.yaml": bundle(`"YQ=!"`, hook(core, ""))}, []string{"invalid"}, nil, "", nil},

		{"one replica of an opt-in of namespaces", map[string]string{"a.yaml": hook(workloads, optIn) + server}, nil, []string{"single-replica"}, "", nil},
		{"one replica for the pods of namespaces that opt in", map[string]string{"a.yaml": hook(core, optIn) + server}, []string{"single-replica"}, nil, "", nil},
		{"one replica for storage classes", map[string]string{"a.yaml": hook(`{apiGroups: [storage.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [storageclasses]}`, "") + server}, nil, []string{"single-replica"}, "", nil},
		{"one replica for volume attachments", map[string]string{"a.yaml": hook(`{apiGroups: [storage.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [storageclasses, volumeattachments]}`, "") + server}, []string{"single-replica"}, nil, "", nil},
		{"replicas of a patch", scaled("patches: [{patch: '{apiVersion: apps/v1, kind: Deployment, metadata: {name: w}, spec: {replicas: 3}}'}]\n"), nil, []string{"single-replica"}, "", nil},
		{"replicas of an operation", scaled("patches: [{target: {kind: Deployment}, patch: '[{op: replace, path: /spec/replicas, value: 2}]'}]\n"), nil, []string{"single-replica"}, "", nil},
		{"replicas of a patch for objects with a label", scaled("patches: [{target: {labelSelector: app=other}, patch: '[{op: replace, path: /spec/replicas, value: 2}]'}]\n"), []string{"single-replica"}, nil, "", nil},
		{"replicas of a patch for objects of a namespace", scaled("patches: [{target: {namespace: other}, patch: '[{op: replace, path: /spec/replicas, value: 2}]'}]\n"), []string{"single-replica"}, nil, "", nil},
		{"replicas of a patch for the objects of a group", scaled("patches: [{target: {group: apps, version: v1}, patch: '[{op: replace, path: /spec/replicas, value: 2}]'}]\n"), nil, []string{"single-replica"}, "", nil},
		{"replicas of a kustomization", scaled("replicas: [{name: w, count: 2}]\n"), nil, []string{"single-replica"}, "", nil},
		{"replicas of another workload", scaled("replicas: [{name: v, count: 2}]\n"), []string{"single-replica"}, nil, "", nil},
		{"another flavour with one replica", map[string]string{"a/a.yaml": hook(core, aside) + strings.Replace(server, "replicas: 1", "replicas: 3", 1), "b/b.yaml": deployment("namespace: w, name: w")}, nil, []string{"single-replica"}, "", nil},
		{"a pod on each node", map[string]string{"a.yaml": hook(core, aside) + strings.Replace(set, "  replicas: 1\n", "", 1)}, nil, []string{"single-replica"}, "", nil},
		{"one replica beside the note of another webhook", map[string]string{"a.yaml": hook(core, "  failurePolicy: Ignore\n"), "b.yaml": webhook("Validating", "v1", "b", "w", core, aside) + server}, []string{"single-replica"}, nil, "", nil},
		{"one replica beside an error", map[string]string{"a.yaml": hook(core, "") + server}, []string{"self-deadlock"}, []string{"single-replica"}, "", nil},

		{"a misspelled field", map[string]string{"a.yaml": hook(core, strings.Replace(aside, "Selector", "Selecter", 1))}, []string{"error unknown-field"}, nil, "", nil},
		{"a field of another kind", map[string]string{"a.yaml": hook(core, aside+"  reinvocationPolicy: Never\n")}, []string{"error unknown-field"}, nil, "", nil},
		{"the same field of its kind", map[string]string{"a.yaml": mutating(core, aside+"  reinvocationPolicy: Never\n")}, nil, []string{"unknown-field"}, "", nil},
		{"initializers", map[string]string{"a.yaml": marked("initializers: {pending: [{name: i.example.com}]}", hook(core, aside))}, nil, []string{"unknown-field"}, "", nil},
		{"a misspelled field of a policy", map[string]string{"a.yaml": strings.Replace(mutator("v1"), "matchConstraints", "matchResources", 1)}, []string{"unknown-field"}, nil, "", nil},

		{"a Certificate of another namespace", map[string]string{"a.yaml": marked("annotations: {cert-manager.io/inject-ca-from: v/serving}", hook(core, aside)) + issued("w")}, []string{"error ca-injection-broken"}, nil, "", nil},
		{"a Certificate", map[string]string{"a.yaml": marked("annotations: {cert-manager.io/inject-ca-from: w/serving}", hook(core, aside)) + issued("w")}, nil, []string{"ca-injection-broken"}, "", nil},
		{"a Certificate in no file", map[string]string{"a.yaml": marked("annotations: {cert-manager.io/inject-ca-from: v/serving}", hook(core, aside))}, nil, []string{"ca-injection-broken"}, "", nil},
		{"a Certificate of a base", map[string]string{"a.yaml": marked("annotations: {cert-manager.io/inject-ca-from: w/serving}", hook(core, aside)) + issued("system")}, nil, []string{"ca-injection-broken"}, "", nil},
		{"a placeholder for a Certificate", map[string]string{"a.yaml": marked(`annotations: {cert-manager.io/inject-ca-from: "$(NAMESPACE)/$(NAME)"}`, hook(core, aside))}, []string{"ca-injection-broken"}, nil, "", nil},
		{"a placeholder in a patch of metadata", map[string]string{"a.yaml": "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: a, annotations: {cert-manager.io/inject-ca-from: \"$(NAMESPACE)/$(NAME)\"}}\n"}, nil, []string{"ca-injection-broken"}, "", nil},
		{"a controller of the project sets the caBundle", map[string]string{"a.yaml": marked(`labels: {example.com/inject-cert: "true"}`, hook(workloads, optIn)) + server + noRights}, nil, []string{"ca-bundle-missing"}, "", nil},
		{"a label of OLM", map[string]string{"a.yaml": marked("labels: {app.kubernetes.io/managed-by: operator-lifecycle-manager}", hook(workloads, optIn)) + server + noRights}, nil, []string{"ca-bundle-missing"}, "", nil},
		{"a label of another manager", map[string]string{"a.yaml": marked("labels: {app.kubernetes.io/managed-by: kustomize}", hook(workloads, optIn)) + server + noRights}, []string{"ca-bundle-missing"}, nil, "", nil},
		{"the namespace of a base", map[string]string{"a.yaml": webhook("Validating", "v1", "a", "system", workloads, optIn) + strings.ReplaceAll(server, "namespace: w", "namespace: system") + noRights}, nil, []string{"ca-bundle-missing"}, "namespace of a base", nil},
		{"a command as a placeholder", map[string]string{"a.yaml": bundle(`"$(cat ca.pem | base64)"`, hook(core, ""))}, []string{"self-deadlock"}, []string{"invalid"}, "caBundle", nil},
		{"a variable as a placeholder", map[string]string{"a.yaml": bundle(`"$CABUNDLEB64"`, hook(core, ""))}, []string{"self-deadlock"}, []string{"invalid"}, "caBundle", nil},
		{"a placeholder between underscores", map[string]string{"a.yaml": bundle("__CA__", hook(core, ""))}, []string{"self-deadlock"}, []string{"invalid"}, "caBundle", nil},
		{"an annotation of a patch with a target", map[string]string{"base/a.yaml": hook(workloads, optIn) + server + noRights, "base/kustomization.yaml": "resources: [a.yaml]\n",
			"over/kustomization.yaml": "resources: [../base]\npatches: [{path: ca.yaml, target: {kind: ValidatingWebhookConfiguration}}]\n",
			"over/ca.yaml":            "- {op: add, path: /metadata/annotations, value: {cert-manager.io/inject-ca-from: w/serving}}\n"}, nil, []string{"ca-bundle-missing"}, "", nil},
		{"an annotation of another patch", map[string]string{"base/a.yaml": hook(workloads, optIn) + server + noRights, "base/kustomization.yaml": "resources: [a.yaml]\n",
			"over/kustomization.yaml": "resources: [../base]\npatches: [{target: {kind: Deployment}, patch: '[{op: add, path: /metadata/annotations/cert-manager.io~1inject-ca-from, value: w/serving}]'}]\n"}, []string{"ca-bundle-missing"}, nil, "", nil},
		{"the annotation of an old cert-manager", map[string]string{"a.yaml": marked("annotations: {certmanager.k8s.io/inject-ca-from: w/serving}", hook(core, aside))}, []string{"error ca-injection-broken"}, nil, "", nil},
		{"an old annotation beside that of a Secret", map[string]string{"a.yaml": marked("annotations: {certmanager.k8s.io/inject-ca-from: w/serving, cert-manager.io/inject-ca-from-secret: w/serving}", hook(core, aside))}, nil, []string{"ca-injection-broken"}, "", nil},
		{"both annotations", map[string]string{"a.yaml": marked("annotations: {certmanager.k8s.io/inject-ca-from: w/serving, cert-manager.io/inject-ca-from: w/serving}", hook(core, aside))}, nil, []string{"ca-injection-broken"}, "", nil},
		{"a placeholder beside others", map[string]string{"a.yaml": marked(`annotations: {cert-manager.io/inject-ca-from: "$(NAMESPACE)/$(NAME)"}`, strings.Replace(hook(core, aside), "- name: a.example.com", "- name: a.$(NAMESPACE).svc", 1))}, nil, []string{"ca-injection-broken"}, "webhooks[0].name", nil},
		{"a file that no kustomization reads", map[string]string{"kustomization.yaml": "resources: [b.yaml]\n", "a.yaml": hook(core, ""), "b.yaml": service("name: w")}, nil, []string{"self-deadlock"}, "leaves out its file", nil},
		{"a file that another kustomization reads", map[string]string{"c/kustomization.yaml": "resources: [b.yaml]\n", "c/a.yaml": hook(core, ""), "c/b.yaml": service("name: w"), "d/kustomization.yaml": "resources: [../c/a.yaml]\n"}, []string{"self-deadlock"}, nil, "", nil},
		{"a base that no kustomization reads", map[string]string{"d/kustomization.yaml": "resources: [b.yaml]\n", "d/b.yaml": service("name: b, namespace: system"), "a/a.yaml": webhook("Validating", "v1", "a", "system", workloads, optIn)}, nil, []string{"service-missing"}, "leaves out its file", nil},
		{"a file in a folder without a kustomization", map[string]string{"d/kustomization.yaml": "resources: [b.yaml]\n", "d/b.yaml": service("name: b, namespace: w"), "a/a.yaml": hook(workloads, optIn)}, []string{"service-missing"}, nil, "", nil},
		{"a file beside a kustomization of patches", map[string]string{"kustomization.yaml": "patches: []\n", "a.yaml": hook(core, "")}, []string{"self-deadlock"}, nil, "", nil},
		{"a refused binding to another name", map[string]string{"a.yaml": validates(core, "object.metadata.name != 'x'"), "b.yaml": "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: aa}\n"}, []string{"error invalid", "warning binding-without-policy"}, nil, "", nil},
		{"a refused binding", map[string]string{"a.yaml": validates(core, "object.metadata.name != 'x'"), "b.yaml": "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: a}\n"}, []string{"error invalid"}, []string{"binding-without-policy"}, "", nil},
		{"the service of a base", map[string]string{"kustomization.yaml": "namespace: w\nresources: [a.yaml]\n", "a.yaml": webhook("Validating", "v1", "a", "system", workloads, optIn) + server}, nil, []string{"service-missing"}, "namespace of a base", nil},
		{"the wrong name of a service of a base", map[string]string{"kustomization.yaml": "namespace: w\nresources: [a.yaml]\n", "a.yaml": webhook("Validating", "v1", "a", "system", workloads, optIn) + service("namespace: system, name: other")}, []string{"service-missing"}, nil, "", nil},
		{"one replica beside an error of another configuration", map[string]string{"a.yaml": hook(core, "") + strings.Replace(hook(core, aside), "name: a}", "name: b}", 1) + server}, []string{"self-deadlock"}, []string{"single-replica"}, "", nil},
		{"an object in any namespace", map[string]string{"a.yaml": hook(things, "") + definition + strings.Replace(thing("x"), ", namespace: x", "", 1)}, nil, []string{"delete-own-kind"}, "", nil},
		{"metadata of a kind in no file", map[string]string{"a.yaml": hook(strings.Replace(things, "DELETE", "CREATE", 1), "  matchConditions: [{name: marked, expression: \"'a' in object.metadata.annotations\"}]\n")}, []string{"warning missing-key"}, nil, "", nil},
		{"other fields of a kind in no file", map[string]string{"a.yaml": hook(strings.Replace(things, "DELETE", "CREATE", 1), "  matchConditions: [{name: marked, expression: \"object.spec.size > 1\"}]\n")}, nil, []string{"missing-key"}, "", nil},
		{"the DELETE of pods", map[string]string{"a.yaml": hook(strings.Replace(core, "CREATE", "DELETE", 1), aside)}, []string{"note subresource-forgotten"}, nil, "", nil},
		{"the DELETE of pods beside CREATE", map[string]string{"a.yaml": hook(strings.Replace(core, "CREATE", "CREATE, DELETE", 1), aside)}, nil, []string{"subresource-forgotten"}, "", nil},
		{"the DELETE of pods, and evictions", map[string]string{"a.yaml": hook(strings.Replace(core, "CREATE", "DELETE", 1)+`, {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods/eviction]}`, aside)}, nil, []string{"subresource-forgotten"}, "", nil},
		{"the DELETE of pods, which may pass", map[string]string{"a.yaml": hook(strings.Replace(core, "CREATE", "DELETE", 1), aside+"  failurePolicy: Ignore\n")}, nil, []string{"subresource-forgotten"}, "", nil},
		{"the name of a file", map[string]string{"a.yaml": bundle("/certs/ca.crt", hook(core, ""))}, []string{"error invalid"}, nil, "", nil},
		{"a placeholder for the namespace of a service", map[string]string{"a.yaml": bundle("${CA}", webhook("Validating", "v1", "a", `"${NAMESPACE}"`, strings.Replace(core, "pods", "podz", 1), ""))}, []string{"rule-never-matches"}, []string{"invalid"}, "service ${NAMESPACE}/w", nil},
		{"a patch in no kustomization", map[string]string{"a.yaml": "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: a}\nwebhooks:\n- name: a.example.com\n" + optIn}, nil, []string{"invalid"}, "is a patch", nil},
		{"webhooks with names alone", map[string]string{"a.yaml": "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: a}\nwebhooks:\n- name: a.example.com\n- name: b.example.com\n"}, []string{"error invalid"}, nil, "", nil},
		{"a policy whose name a kustomization changes", map[string]string{"kustomization.yaml": "namePrefix: my-\nresources: [a.yaml]\n", "a.yaml": strings.Replace(validates(core, "object.metadata.name != 'x'"), "policyName: a", "policyName: my-a", 1)}, nil, []string{"binding-without-policy"}, "my-a", nil},
		{"evictions that may pass", map[string]string{"a.yaml": hook(strings.Replace(core, "pods", "pods/eviction", 1), "  failurePolicy: Ignore\n")}, nil, []string{"unscoped"}, "", nil},
		{"deletions of custom resources that may pass", map[string]string{"a.yaml": hook(strings.Replace(things, "DELETE", "CREATE, DELETE", 1), "  failurePolicy: Ignore\n") + definition}, nil, []string{"webhook-on-custom-resource"}, "", nil},
		{"custom resources that may pass", map[string]string{"a.yaml": hook(strings.Replace(things, "DELETE", "CREATE", 1), "  failurePolicy: Ignore\n") + definition}, nil, []string{"webhook-on-custom-resource"}, "", nil},
		{"custom resources with any fields that may pass", map[string]string{"a.yaml": hook(strings.Replace(things, "DELETE", "CREATE", 1), "  failurePolicy: Ignore\n") + strings.Replace(definition, "          spec:\n", "          content:\n", 1)}, []string{"webhook-on-custom-resource"}, nil, "", nil},
		{"one replica of a mutating webhook", map[string]string{"a.yaml": mutating(core, aside) + server}, []string{"warning single-replica"}, []string{"mutating-fails-closed"}, "", nil},
		{"one replica that is never two", map[string]string{"a.yaml": hook(core, aside) + strings.Replace(server, "  replicas: 1\n", "  replicas: 1\n  strategy: {type: Recreate}\n", 1)}, nil, []string{"single-replica"}, "", nil},
		{"an encoded line break as a placeholder", map[string]string{"a.yaml": bundle("Cg==", hook(core, ""))}, []string{"self-deadlock"}, []string{"invalid", "ca-bundle-invalid", "ca-bundle-missing"}, "caBundle", nil},
		{"capitals between underscores", map[string]string{"a.yaml": hook(core, "  namespaceSelector: {matchLabels: {a: __OWNER_VALUE__}}\n")}, nil, []string{"invalid"}, "webhooks[0].namespaceSelector.matchLabels.a", nil},
		{"one underscore", map[string]string{"a.yaml": hook(core, "  namespaceSelector: {matchLabels: {a: _OWNER_VALUE_}}\n")}, []string{"error invalid"}, nil, "", nil},
		{"a patch of annotations alone", map[string]string{"a.yaml": "apiVersion: admissionregistration.k8s.io/v1beta1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: a, annotations: {cert-manager.io/inject-ca-from: $(NAMESPACE)/$(NAME)}}\n"}, nil, []string{"registration-old"}, "is a patch", nil},
		{"everything that a webhook changes, for a second", map[string]string{"a.yaml": mutating(everything, "  failurePolicy: Ignore\n  timeoutSeconds: 1\n")}, []string{"warning fail-on-leases"}, []string{"wildcard-everything"}, "", nil},
		{"everything that a webhook changes, for three seconds", map[string]string{"a.yaml": mutating(everything, "  failurePolicy: Ignore\n  timeoutSeconds: 3\n")}, []string{"wildcard-everything"}, nil, "", nil},
		{"webhooks of two folders", map[string]string{"a/a.yaml": mutating(core, aside), "b/b.yaml": webhook("Mutating", "v1", "b", "v", core, aside)}, nil, []string{"not-reinvoked", "order-by-name"}, "", nil},
		{"webhooks of two folders for one namespace", map[string]string{"a/a.yaml": mutating(core, aside), "b/b.yaml": behind("other", webhook("Mutating", "v1", "b", "w", core, aside))}, []string{"not-reinvoked", "order-by-name"}, nil, "", nil},
		{"policies of two folders", map[string]string{"a/a.yaml": mutation("a"), "b/b.yaml": mutation("b")}, nil, []string{"order-by-name"}, "", nil},
		{"policies of one folder", map[string]string{"a/a.yaml": mutation("a"), "a/b.yaml": mutation("b")}, []string{"order-by-name"}, nil, "", nil},
		{"webhooks of two folders of a kustomization", map[string]string{"a/a.yaml": mutating(core, aside), "b/b.yaml": webhook("Mutating", "v1", "b", "v", core, aside), "kustomization.yaml": "resources: [a/a.yaml, b/b.yaml]\n"}, []string{"not-reinvoked", "order-by-name"}, nil, "", nil},
		{"webhooks below one folder", map[string]string{"c/a/a.yaml": mutating(core, aside), "c/b/b.yaml": webhook("Mutating", "v1", "b", "v", core, aside)}, []string{"not-reinvoked", "order-by-name"}, nil, "", nil},
		{"samples beside the server", map[string]string{"a.yaml": webhook("Validating", "v1", "a", "w", things, "") + definition, "config/samples/a.yaml": thing("w")}, nil, []string{"delete-own-kind"}, "", nil},
		{"a base that no other kustomization has", map[string]string{"d/kustomization.yaml": "resources: [b.yaml]\n", "d/b.yaml": service("name: b, namespace: system"), "a/kustomization.yaml": "resources: [a.yaml]\n", "a/a.yaml": webhook("Validating", "v1", "a", "system", core, "")}, nil, []string{"self-deadlock"}, "leaves out its file", nil},
		{"a base with a namespace of its own", map[string]string{"d/kustomization.yaml": "resources: [b.yaml]\n", "d/b.yaml": service("name: b, namespace: system"), "a/kustomization.yaml": "namespace: x\nresources: [a.yaml]\n", "a/a.yaml": webhook("Validating", "v1", "a", "system", core, "")}, []string{"self-deadlock"}, nil, "", nil},
		{"a kustomization of remote files alone", map[string]string{"d/kustomization.yaml": "resources: [https://example.com/crds.yaml]\n", "a/a.yaml": webhook("Validating", "v1", "a", "system", core, "")}, []string{"self-deadlock"}, nil, "", nil},
		{"the singular of a resource", map[string]string{"a.yaml": hook(strings.Replace(things, "[things]", "[thing]", 1), "") + definition}, []string{"warning rule-never-matches"}, nil, "", nil},
		{"the kind of a resource in no file", map[string]string{"a.yaml": hook(strings.Replace(things, "[things]", "[Gadget]", 1), "")}, []string{"warning rule-never-matches"}, nil, "", nil},
		{"files of other programs", map[string]string{"a.yaml": hook(workloads, optIn), "b.yaml": "kind: CustomResourceStateMetrics\nspec: {}\n", "d.yaml": "---\n...\n"}, nil, nil, "no metadata, and no apiVersion", nil},
		{"a word as a placeholder", map[string]string{"a.yaml": bundle("changeme", hook(core, ""))}, []string{"self-deadlock"}, []string{"invalid", "ca-bundle-invalid", "ca-bundle-missing"}, "caBundle", nil},

		{"a resource that is not served", map[string]string{"a.yaml": hook(strings.Replace(workloads, "deployments", "deployment", 1), "")}, []string{"rule-never-matches"}, []string{"unscoped"}, "", nil},
		{"a resource of a known group", map[string]string{"a.yaml": hook(strings.Replace(things, "[things]", "[gadgets]", 1), "") + definition}, nil, nil, "no file has gadgets of group example.com", nil},

		{"one replica for pods", map[string]string{"a.yaml": hook(core, aside) + server}, []string{"single-replica"}, nil, "", nil},

		{"a label on objects of the program", map[string]string{"a.yaml": hook(strings.Replace(things, "DELETE", "CREATE", 1), optOut) + definition}, []string{"note object-selector-opt-out"}, []string{"warning object-selector-opt-out"}, "", nil},
		{"a label on pods", map[string]string{"a.yaml": hook(core, optOut)}, []string{"warning object-selector-opt-out"}, nil, "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report, skipped := lintTree(t, tc.files, tc.change)
			var found []string
			for _, f := range report.Findings {
				found = append(found, string(f.Level)+" "+f.Rule.ID)
			}
			has := func(rule string) bool {
				return slices.ContainsFunc(found, func(f string) bool { return f == rule || strings.HasSuffix(f, " "+rule) })
			}
			expect(t, found, has, tc.want, tc.not)
			if unseen := strings.Join(slices.Concat(report.Unseen, skipped), "\n"); !strings.Contains(unseen, tc.unseen) {
				t.Errorf("%q does not say %q", unseen, tc.unseen)
			}
		})
	}
}

// A finding of several variants is there once, and names the webhooks of all.
func TestEqualFindingsOfVariants(t *testing.T) {
	hook := func(names ...string) string {
		text := "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: h}\nwebhooks:\n"
		for _, name := range names {
			text += "- name: " + name + ".example.com\n  clientConfig: {service: {namespace: w, name: w}}\n  admissionReviewVersions: [v1beta1]\n  sideEffects: None\n" +
				"  rules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]\n"
		}
		return text
	}
	report, _ := lintTree(t, map[string]string{"dev/w.yaml": hook("a", "b"), "prod/w.yaml": hook("a", "b", "c"), "stage/w.yaml": hook("a")}, nil)
	found := of(report, "registration-old")
	if len(found) != 1 || !strings.HasSuffix(found[0].Message, "; the same holds for the webhook b.example.com and the webhook c.example.com") {
		t.Errorf("found %v", found)
	}
}

// A value of another type is reported with its field, and not as a fault of the whole object.
func TestAValueOfAnotherTypeNamesItsField(t *testing.T) {
	for text, want := range map[string]string{
		"{name: a, selfLink: y}":                               "metadata.selfLink has a value of type bool, and takes a string: put it in quotes",
		"{name: a, annotations: {owner: 3}}":                   "metadata.annotations has a value of type number, and takes a string: put it in quotes",
		"{name: a, finalizers: {example.com/f: x}}":            "metadata.finalizers has a value of type object, and takes a []string",
		"{name: a}\nspec: {validations: [{expression: true}]}": "spec.validations.expression has a value of type bool, and takes a string: put it in quotes",
	} {
		report, _ := lintTree(t, map[string]string{"a.yaml": "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: " + text + "\n"}, nil)
		if found := of(report, "invalid"); len(found) != 1 || !strings.Contains(found[0].Message, want) {
			t.Errorf("%s: found %v, want %q", text, found, want)
		}
	}
}

// The newest versions are read, and different registrations before equal ones.
func TestTheNewestVariantsAreRead(t *testing.T) {
	files := map[string]string{}
	for minor := 20; minor < 40; minor++ {
		// Ten different registrations: 1.29 has the same as 1.30 to 1.39.
		files[fmt.Sprintf("1.%d/w.yaml", minor)] = fmt.Sprintf("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: h}\nwebhooks:\n- name: h%d.example.com\n"+
			"  clientConfig: {service: {namespace: w, name: w}}\n  admissionReviewVersions: [v1]\n  sideEffects: None\n  failurePolicy: Fail\n  timeoutSeconds: 25\n"+
			"  rules: [{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]\n", min(minor, 29))
	}
	report, skipped := lintTree(t, files, nil)
	found := fmt.Sprint(of(report, "unscoped"))
	for minor := 20; minor < 30; minor++ {
		name := fmt.Sprintf("h%d.example.com", minor)
		if read := strings.Contains(found, name); read != (minor > 21) {
			t.Errorf("%s was read: %v", name, read)
		}
	}
	if left := strings.Join(skipped, "\n"); strings.Contains(left, "1.39,") || !strings.Contains(left, "1.20, variant 1") {
		t.Errorf("left out: %s", left)
	}
}

// lintTree returns the findings of the files of a directory, and the sentences about skipped parts.
func lintTree(t *testing.T, files map[string]string, change func(*lint.Input)) (*lint.Result, []string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name), text)
	}
	w, skipped, _, err := offline.Survey([]string{dir}, nil, &manifests.Ignore{})
	if err != nil {
		t.Fatal(err)
	}
	var reports []*lint.Result
	for _, v := range w.Variants() {
		world, err := v.Lint(t.Context(), exampleTime, nil)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(world)
		}
		reports = append(reports, lint.Check(t.Context(), world, lint.Options{}))
	}
	return lint.Merge(reports), skipped
}
