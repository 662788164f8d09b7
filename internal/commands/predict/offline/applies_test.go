package offline

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
)

// A policy is excluded only if its kinds, namespaces, names or operations certainly exclude the request.
func TestWhichPoliciesOfEnginesCanApply(t *testing.T) {
	pod := plan.About{Operation: "CREATE", APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: "web"}
	with := func(change func(*plan.About)) *plan.About {
		a := pod
		change(&a)
		return &a
	}
	deployment := with(func(a *plan.About) { a.APIVersion, a.Kind, a.Resource = "apps/v1", "Deployment", "deployments" })
	configMap := with(func(a *plan.About) { a.Kind, a.Resource = "ConfigMap", "configmaps" })
	namespace := with(func(a *plan.About) {
		a.Kind, a.Resource, a.Namespace, a.Name = "Namespace", "namespaces", "kube-system", "kube-system"
	})
	exec := with(func(a *plan.About) { a.Operation, a.Kind, a.Subresource = "CONNECT", "PodExecOptions", "exec" })
	update := with(func(a *plan.About) { a.Operation = "UPDATE" })
	unnamed := with(func(a *plan.About) { a.Name = "" })
	cronJob := with(func(a *plan.About) { a.APIVersion, a.Kind, a.Resource = "batch/v1", "CronJob", "cronjobs" })
	node := with(func(a *plan.About) { a.Kind, a.Resource, a.Namespace = "Node", "nodes", "" })

	// Gatekeeper evaluates the pods of cron jobs through the jobs that it generates from them.
	expansions := []policyObject{
		{spec: map[string]any{"applyTo": []any{map[string]any{"kinds": []any{"Job"}}}, "generatedGVK": map[string]any{"kind": "Pod"}}},
		{spec: map[string]any{"applyTo": []any{map[string]any{"kinds": []any{"CronJob"}}}, "generatedGVK": map[string]any{"kind": "Job"}}},
	}

	type verdict struct {
		about    *plan.About
		mutating bool
		want     bool
	}
	for _, tt := range []struct {
		name, policy string
		verdicts     []verdict
	}{
		{"no rules", "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: p}}", []verdict{{&pod, false, true}}},
		{"a kind", "validate: {}, match: {any: [{resources: {kinds: [ConfigMap]}}]}", []verdict{{&pod, false, false}, {configMap, false, true}, {exec, false, true}}},
		{"of several kinds", "match: {any: [{resources: {kinds: [Pod]}}, {resources: {kinds: [v1/ConfigMap]}}]}", []verdict{{&pod, false, true}, {configMap, false, true}, {node, false, false}}},
		{"legacy resources", "match: {resources: {kinds: [Secret]}}", []verdict{{&pod, false, false}}},
		{"a group and a version", "match: {any: [{resources: {kinds: [batch.x-k8s.io/v1/Job, apps/*/Deploy*]}}]}", []verdict{{&pod, false, false}, {deployment, false, true}}},
		{"any kind", "match: {any: [{resources: {kinds: ['*']}}]}", []verdict{{&pod, false, true}, {node, false, true}}},
		{"pods of a template", "match: {any: [{resources: {kinds: [Pod]}}]}", []verdict{{deployment, false, true}, {configMap, false, false}}},
		{"a template that is not judged", "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: p, annotations: {pod-policies.kyverno.io/autogen-controllers: 'Job, CronJob'}}, spec: {rules: [{match: {any: [{resources: {kinds: [Pod]}}]}}]}}",
			[]verdict{{&pod, false, true}, {deployment, false, false}}},
		{"namespaces", "match: {any: [{resources: {kinds: [Pod, Namespace], namespaces: [team-*]}}]}", []verdict{{&pod, false, false}, {namespace, false, true}}},
		{"names", "match: {any: [{resources: {kinds: [Pod], names: ['db-?']}}]}", []verdict{{&pod, false, false}, {unnamed, false, true}}},
		{"operations", "match: {any: [{resources: {kinds: [Pod], operations: [UPDATE]}}]}", []verdict{{&pod, false, false}, {update, false, true}}},
		{"labels may come", "match: {any: [{resources: {kinds: [Pod], selector: {matchLabels: {a: b}}}}]}", []verdict{{&pod, false, true}}},
		{"all filters", "match: {all: [{resources: {kinds: [Pod]}}, {resources: {namespaces: [other]}}]}", []verdict{{&pod, false, false}}},
		{"what a rule does", "mutate: {patchStrategicMerge: {}}, match: {any: [{resources: {kinds: [Pod]}}]}", []verdict{{&pod, false, false}, {&pod, true, true}}},
		{"a rule that validates", "validate: {pattern: {}}, match: {any: [{resources: {kinds: [Pod]}}]}", []verdict{{&pod, false, true}, {&pod, true, false}}},
		{"images", "verifyImages: [{}], match: {any: [{resources: {kinds: [Pod]}}]}", []verdict{{&pod, false, true}, {&pod, true, true}}},
		{"others are changed", "mutate: {targets: [{kind: Secret}]}, match: {any: [{resources: {kinds: [Pod]}}]}", []verdict{{&pod, false, true}}},
		{"excluded", "match: {any: [{resources: {kinds: ['*']}}]}, exclude: {any: [{resources: {namespaces: [sh*]}}]}", []verdict{{&pod, false, false}, {node, false, true}}},
		{"excluded for some users", "match: {any: [{resources: {kinds: ['*']}}]}, exclude: {any: [{resources: {namespaces: [shop]}, subjects: [{kind: User, name: jane}]}]}", []verdict{{&pod, false, true}}},
		{"excluded by a label", "match: {any: [{resources: {kinds: ['*']}}]}, exclude: {any: [{resources: {kinds: [Pod], selector: {}}}]}", []verdict{{&pod, false, true}}},
		{"excluded by all", "match: {any: [{resources: {kinds: ['*']}}]}, exclude: {all: [{resources: {kinds: [Pod]}}, {resources: {names: [web]}}]}", []verdict{{&pod, false, false}, {unnamed, false, true}}},
		{"of another namespace", "{apiVersion: kyverno.io/v1, kind: Policy, metadata: {name: p, namespace: other}}", []verdict{{&pod, false, false}}},
		{"match constraints", "{apiVersion: policies.kyverno.io/v1, kind: ValidatingPolicy, metadata: {name: p}, spec: {matchConstraints: {resourceRules: [{apiGroups: [''], resources: [pods], operations: [CREATE]}]}}}",
			[]verdict{{&pod, false, true}, {update, false, false}, {configMap, false, false}, {deployment, false, true}, {exec, false, false}}},
		{"a constraint", "{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, metadata: {name: p}, spec: {match: {kinds: [{apiGroups: [''], kinds: [Pod]}], excludedNamespaces: [kube-*]}}}",
			[]verdict{{&pod, false, true}, {configMap, false, false}, {deployment, false, false}, {cronJob, false, true}, {node, false, false}}},
		{"namespaces of a constraint", "{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, metadata: {name: p}, spec: {match: {excludedNamespaces: [sho*, kube-*]}}}",
			[]verdict{{&pod, false, false}, {node, false, true}, {namespace, false, true}}},
		{"the scope of a constraint", "{apiVersion: constraints.gatekeeper.sh/v1beta1, kind: K, metadata: {name: p}, spec: {match: {scope: Cluster}}}", []verdict{{&pod, false, false}, {node, false, true}}},
		{"a mutator", "{apiVersion: mutations.gatekeeper.sh/v1, kind: Assign, metadata: {name: p}, spec: {applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment]}]}}", []verdict{{&pod, true, false}, {deployment, true, true}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := tt.policy
			if text[0] != '{' {
				text = "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: p}, spec: {rules: [{name: r, " + text + "}]}}"
			}
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
				t.Fatal(err)
			}
			o := policyOf(u.GroupVersionKind().GroupKind(), u)
			for _, v := range tt.verdicts {
				a := &asked{about: v.about, mutating: v.mutating}
				a.expand(expansions)
				if got := a.reaches(&o); got != v.want {
					t.Errorf("%+v, mutating %t: can apply %t, want %t", *v.about, v.mutating, got, v.want)
				}
			}
		})
	}
}
