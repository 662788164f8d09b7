package main

import (
	"fmt"
	"math/rand/v2"
)

// world is a random namespace, with the requests to send to it.
type world struct {
	namespace string
	// reader is the user as whom explain reads the cluster; empty means an administrator.
	reader string
	// objects are the objects of the namespace.
	objects  []map[string]any
	requests []map[string]any
	random   *rand.Rand
}

func object(apiVersion, kind, namespace, name string, more map[string]any) map[string]any {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	for key, value := range more {
		o[key] = value
	}
	return o
}

func labelled(o map[string]any, labels map[string]any) map[string]any {
	o["metadata"].(map[string]any)["labels"] = labels
	return o
}

func pod(namespace, name string, labels, spec map[string]any) map[string]any {
	return labelled(object("v1", "Pod", namespace, name, map[string]any{"spec": spec}), labels)
}

// rights are the rights that a reader needs. Each of the other readers lacks one of them.
var rights = []struct{ group, resource, verb string }{
	{"", "namespaces", "get"}, {"", "limitranges", "list"}, {"", "resourcequotas", "list"}, {"", "serviceaccounts", "list"},
	{"scheduling.k8s.io", "priorityclasses", "list"}, {"node.k8s.io", "runtimeclasses", "list"}, {"storage.k8s.io", "storageclasses", "list"},
	{"admissionregistration.k8s.io", "validatingadmissionpolicies", "list"}, {"admissionregistration.k8s.io", "validatingadmissionpolicybindings", "list"},
	{"admissionregistration.k8s.io", "mutatingadmissionpolicies", "list"}, {"admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "list"},
	{"admissionregistration.k8s.io", "mutatingwebhookconfigurations", "list"}, {"admissionregistration.k8s.io", "validatingwebhookconfigurations", "list"},
	{"resource.k8s.io", "deviceclasses", "list"}, {"resource.k8s.io", "resourceclaims", "list"},
}

func readerWithout(i int) string { return "reader-without-" + rights[i].resource }

// cluster returns the objects that all namespaces share.
func cluster() []map[string]any {
	list := []map[string]any{
		object("scheduling.k8s.io/v1", "PriorityClass", "", "high", map[string]any{"value": int64(1000)}),
		object("scheduling.k8s.io/v1", "PriorityClass", "", "usual", map[string]any{"value": int64(10), "globalDefault": true}),
		object("node.k8s.io/v1", "RuntimeClass", "", "sandbox", map[string]any{
			"handler": "sandbox", "overhead": map[string]any{"podFixed": map[string]any{"cpu": "250m", "memory": "64Mi"}},
			"scheduling": map[string]any{"nodeSelector": map[string]any{"sandbox": "yes"}},
		}),
		object("storage.k8s.io/v1", "StorageClass", "", "fast", map[string]any{"provisioner": "example.com/fast"}),
	}
	usual := object("storage.k8s.io/v1", "StorageClass", "", "usual", map[string]any{"provisioner": "example.com/usual"})
	usual["metadata"].(map[string]any)["annotations"] = map[string]any{"storageclass.kubernetes.io/is-default-class": "true"}
	list = append(list, usual)
	constraints := func(groups, resources []any) map[string]any {
		return map[string]any{"resourceRules": []any{map[string]any{"apiGroups": groups, "apiVersions": []any{"*"}, "operations": []any{"CREATE"}, "resources": resources}}}
	}
	list = append(list,
		object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "", "forbidden", map[string]any{"spec": map[string]any{
			"matchConstraints": constraints([]any{""}, []any{"pods"}),
			"validations":      []any{map[string]any{"expression": "!('forbidden' in object.metadata.?labels.orValue({}))", "message": "forbidden by the policy"}},
		}}),
		object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "", "forbidden", map[string]any{"spec": map[string]any{
			"policyName": "forbidden", "validationActions": []any{"Deny"},
		}}),
		object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "", "limits", map[string]any{"spec": map[string]any{
			"matchConstraints": constraints([]any{""}, []any{"pods"}),
			"matchConditions":  []any{map[string]any{"name": "controllers", "expression": "request.userInfo.username.startsWith('system:serviceaccount:kube-system:')"}},
			"validations": []any{map[string]any{
				"expression":        "object.spec.containers.all(c, has(c.resources) && has(c.resources.limits) && 'memory' in c.resources.limits)",
				"messageExpression": "'containers in ' + namespaceObject.metadata.name + ' need a memory limit'",
			}},
		}}),
		object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "", "limits", map[string]any{"spec": map[string]any{
			"policyName": "limits", "validationActions": []any{"Deny"},
			"matchResources": map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"limits": "needed"}}},
		}}),
		// Each of these expressions has a different result for the object that the registry prepares than for the
		// object in the request.
		object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "", "prepared", map[string]any{"spec": map[string]any{
			"matchConstraints": constraints([]any{"", "apps", "batch"}, []any{"pods", "deployments", "jobs"}),
			// If two policies reject a request, either may be reported first.
			"matchConditions": []any{map[string]any{"name": "alone", "expression": "!('forbidden' in object.metadata.?labels.orValue({}))"}},
			"validations": []any{
				map[string]any{"expression": "object.kind != 'Pod' || !has(object.spec.evictionResponders)", "message": "a field of a gate that is off"},
				map[string]any{"expression": "object.kind != 'Pod' || object.status.phase == 'Pending'", "message": "the status of a new pod"},
				map[string]any{"expression": "object.kind != 'Pod' || object.status.qosClass != 'Guaranteed'", "message": "guaranteed pods"},
				map[string]any{"expression": "object.kind != 'Deployment' || !has(object.status.replicas)", "message": "the status of a new Deployment"},
				map[string]any{"expression": "object.kind == 'Pod' || object.metadata.generation == 1", "message": "the generation of a new object"},
				map[string]any{"expression": "object.kind != 'Job' || 'batch.kubernetes.io/controller-uid' in object.spec.selector.matchLabels", "message": "the selector of a Job"},
				map[string]any{"expression": "object.kind != 'Job' || object.spec.template.metadata.labels['batch.kubernetes.io/job-name'] == object.metadata.name", "message": "the labels of the pods of a Job"},
				map[string]any{"expression": "has(object.metadata.uid)", "message": "the uid of a new object"},
			},
		}}),
		object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "", "prepared", map[string]any{"spec": map[string]any{
			"policyName": "prepared", "validationActions": []any{"Deny"},
		}}),
		object("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", "", "privileged", map[string]any{"spec": map[string]any{
			"reinvocationPolicy": "Never",
			"matchConstraints":   constraints([]any{""}, []any{"pods"}),
			"matchConditions":    []any{map[string]any{"name": "asked", "expression": "'debug' in object.metadata.?labels.orValue({})"}},
			"mutations": []any{map[string]any{"patchType": "ApplyConfiguration", "applyConfiguration": map[string]any{
				"expression": "Object{spec: Object.spec{hostPID: true}}",
			}}},
		}}),
		object("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding", "", "privileged", map[string]any{"spec": map[string]any{"policyName": "privileged"}}),
	)
	// Only the administrator impersonates users; the readers only read, and ask for the rights of users.
	for i := range rights {
		var rules []any
		for j, r := range rights {
			if i != j {
				rules = append(rules, map[string]any{"apiGroups": []any{r.group}, "resources": []any{r.resource}, "verbs": []any{r.verb}})
			}
		}
		rules = append(rules,
			map[string]any{"apiGroups": []any{"", "apps", "batch"}, "resources": []any{"pods", "persistentvolumeclaims", "replicasets", "deployments", "statefulsets", "daemonsets", "jobs", "cronjobs"}, "verbs": []any{"get"}},
			map[string]any{"apiGroups": []any{"authorization.k8s.io"}, "resources": []any{"subjectaccessreviews"}, "verbs": []any{"create"}})
		name := readerWithout(i)
		list = append(list,
			object("rbac.authorization.k8s.io/v1", "ClusterRole", "", name, map[string]any{"rules": rules}),
			object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", name, map[string]any{
				"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
				"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}},
			}))
	}
	return list
}

// newWorld generates a namespace from a seed.
func newWorld(seed uint64) *world {
	w := &world{namespace: fmt.Sprintf("n%d", seed), random: rand.New(rand.NewPCG(seed, 23))}
	if seed%4 == 0 {
		w.reader = readerWithout(w.random.IntN(len(rights)))
	}
	labels := map[string]any{}
	if w.one(2) {
		labels["pod-security.kubernetes.io/enforce"] = w.pick("privileged", "baseline", "restricted")
		if w.one(3) {
			labels["pod-security.kubernetes.io/enforce-version"] = w.pick("latest", "v1.30", "v1.24")
		}
	}
	if w.one(3) {
		labels["limits"] = "needed"
	}
	w.objects = append(w.objects, labelled(object("v1", "Namespace", "", w.namespace, nil), labels))
	if !w.one(15) {
		w.objects = append(w.objects, object("v1", "ServiceAccount", w.namespace, "default", nil))
	}
	w.objects = append(w.objects, object("v1", "ServiceAccount", w.namespace, "worker", map[string]any{
		"automountServiceAccountToken": w.one(2), "imagePullSecrets": []any{map[string]any{"name": "pull"}},
	}))
	for i := range w.random.IntN(3) {
		w.limitRange(i)
	}
	for i := range w.random.IntN(3) {
		w.quota(i)
	}
	for i := range 4 {
		w.requests = append(w.requests, w.object("v1", "Pod", fmt.Sprintf("pod-%d", i), w.template()))
	}
	w.requests = append(w.requests, w.claim("claim"))
	for i := range 3 {
		w.requests = append(w.requests, w.workload(i))
	}
	return w
}

// one returns true in one of n cases.
func (w *world) one(n int) bool { return w.random.IntN(n) == 0 }

func (w *world) pick(choices ...any) any { return choices[w.random.IntN(len(choices))] }

func (w *world) limitRange(i int) {
	item := map[string]any{"type": w.pick("Container", "Container", "Pod", "PersistentVolumeClaim")}
	if item["type"] == "PersistentVolumeClaim" {
		item["max"] = map[string]any{"storage": w.pick("1Gi", "10Gi")}
		if w.one(2) {
			item["min"] = map[string]any{"storage": "500Mi"}
		}
	} else {
		resource := w.pick("cpu", "memory").(string)
		small, medium, large := "100m", "500m", "1"
		if resource == "memory" {
			small, medium, large = "32Mi", "128Mi", "512Mi"
		}
		if item["type"] == "Container" && w.one(2) {
			item["default"] = map[string]any{resource: medium}
			if w.one(2) {
				item["defaultRequest"] = map[string]any{resource: w.pick(small, medium)}
			}
		}
		if w.one(2) {
			item["max"] = map[string]any{resource: large}
		}
		if w.one(3) {
			item["min"] = map[string]any{resource: small}
		}
		if w.one(4) {
			item["maxLimitRequestRatio"] = map[string]any{resource: "2"}
		}
	}
	w.objects = append(w.objects, object("v1", "LimitRange", w.namespace, fmt.Sprintf("limits-%d", i), map[string]any{"spec": map[string]any{"limits": []any{item}}}))
}

// quota adds a quota that is partly used. No controller counts the usage: the status is a part of the object.
func (w *world) quota(i int) {
	hard, used := map[string]any{}, map[string]any{}
	counts := [][3]string{
		{"pods", "5", "4"}, {"pods", "5", "5"}, {"requests.cpu", "2", "1500m"}, {"limits.cpu", "4", "1"}, {"requests.memory", "1Gi", "900Mi"},
		{"limits.memory", "2Gi", "0"}, {"count/deployments.apps", "1", "1"}, {"count/replicasets.apps", "3", "3"}, {"count/jobs.batch", "2", "1"},
		{"count/pods", "9", "9"}, {"persistentvolumeclaims", "1", "0"}, {"persistentvolumeclaims", "1", "1"}, {"requests.storage", "2Gi", "1Gi"},
		{"usual.storageclass.storage.k8s.io/persistentvolumeclaims", "1", "1"}, {"requests.ephemeral-storage", "1Gi", "0"}, {"configmaps", "1", "1"},
	}
	spec := map[string]any{}
	switch w.random.IntN(6) {
	case 0:
		counts = [][3]string{{"pods", "3", "3"}, {"pods", "3", "2"}}
		spec["scopes"] = []any{w.pick("BestEffort", "NotBestEffort", "Terminating", "NotTerminating")}
	case 1:
		counts = [][3]string{{"pods", "3", "3"}, {"requests.cpu", "1", "1"}}
		spec["scopeSelector"] = map[string]any{"matchExpressions": []any{
			map[string]any{"scopeName": "PriorityClass", "operator": "In", "values": []any{w.pick("high", "usual")}},
		}}
	}
	for range 1 + w.random.IntN(2) {
		c := counts[w.random.IntN(len(counts))]
		hard[c[0]], used[c[0]] = c[1], c[2]
	}
	spec["hard"] = hard
	o := object("v1", "ResourceQuota", w.namespace, fmt.Sprintf("quota-%d", i), map[string]any{"spec": spec})
	if !w.one(8) {
		// A quota without a status is not enforced yet.
		o["status"] = map[string]any{"hard": hard, "used": used}
	}
	w.objects = append(w.objects, o)
}

// template returns the metadata and spec of a pod.
func (w *world) template() map[string]any {
	labels := map[string]any{"app": "web"}
	if w.one(15) {
		labels["forbidden"] = "yes"
	}
	if w.one(12) {
		labels["debug"] = "yes"
	}
	container := map[string]any{"name": "main", "image": "registry.example.com/web:1"}
	resources := map[string]any{}
	for _, list := range []string{"requests", "limits"} {
		if w.one(2) {
			resources[list] = map[string]any{}
			for resource, amounts := range map[string][]any{"cpu": {"50m", "400m", "900m", "3"}, "memory": {"16Mi", "100Mi", "600Mi"}} {
				if w.one(2) {
					amount := amounts[w.random.IntN(len(amounts))]
					resources[list].(map[string]any)[resource] = amount
				}
			}
		}
	}
	if len(resources) > 0 {
		container["resources"] = resources
	}
	spec := map[string]any{"containers": []any{container}}
	secure := w.one(2)
	if secure {
		container["securityContext"] = map[string]any{
			"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": map[string]any{"drop": []any{"ALL"}},
			"seccompProfile": map[string]any{"type": "RuntimeDefault"},
		}
	}
	switch w.random.IntN(14) {
	case 0:
		spec["hostNetwork"] = true
	case 1:
		container["securityContext"] = map[string]any{"privileged": true}
	case 2:
		spec["volumes"] = []any{map[string]any{"name": "host", "hostPath": map[string]any{"path": "/"}}}
	case 3:
		spec["serviceAccountName"] = w.pick("worker", "nobody")
	case 4:
		spec["priorityClassName"] = w.pick("high", "missing", "system-node-critical")
	case 5:
		spec["runtimeClassName"] = w.pick("sandbox", "missing")
	case 6:
		spec["activeDeadlineSeconds"] = int64(60)
	case 7:
		spec["initContainers"] = []any{map[string]any{"name": "init", "image": "registry.example.com/init:1"}}
	case 8:
		container["ports"] = []any{map[string]any{"containerPort": int64(80), "hostPort": int64(8080)}}
	case 9:
		spec["nodeName"] = "nowhere"
	case 11:
		spec["evictionResponders"] = []any{map[string]any{"name": "example.com/responder"}}
	case 10:
		spec["securityContext"] = map[string]any{"sysctls": []any{map[string]any{"name": "kernel.msgmax", "value": "1"}}}
	}
	return map[string]any{"metadata": map[string]any{"labels": labels}, "spec": spec}
}

// object returns an object with the metadata and spec of a template.
func (w *world) object(apiVersion, kind, name string, template map[string]any) map[string]any {
	return labelled(object(apiVersion, kind, w.namespace, name, map[string]any{"spec": template["spec"]}), template["metadata"].(map[string]any)["labels"].(map[string]any))
}

func (w *world) claim(name string) map[string]any {
	spec := map[string]any{"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": w.pick("100Mi", "1Gi", "5Gi", "20Gi")}}}
	if w.one(2) {
		spec["storageClassName"] = w.pick("fast", "usual", "missing")
	}
	return object("v1", "PersistentVolumeClaim", w.namespace, name, map[string]any{"spec": spec})
}

func (w *world) workload(i int) map[string]any {
	template := w.template()
	selector := map[string]any{"matchLabels": map[string]any{"app": "web"}}
	name := fmt.Sprintf("work-%d", i)
	never := func() { template["spec"].(map[string]any)["restartPolicy"] = "Never" }
	// Workloads reject this field, which is valid in a pod.
	delete(template["spec"].(map[string]any), "activeDeadlineSeconds")
	switch w.random.IntN(7) {
	case 0:
		return object("apps/v1", "StatefulSet", w.namespace, name, map[string]any{"spec": map[string]any{
			"selector": selector, "serviceName": "web", "template": template, "volumeClaimTemplates": w.claims(template),
		}})
	case 1:
		return object("apps/v1", "DaemonSet", w.namespace, name, map[string]any{"spec": map[string]any{"selector": selector, "template": template}})
	case 2:
		never()
		spec := map[string]any{"template": template}
		if w.one(2) {
			spec["completionMode"], spec["completions"] = "Indexed", int64(2)
		}
		return object("batch/v1", "Job", w.namespace, name, map[string]any{"spec": spec})
	case 3:
		never()
		return object("batch/v1", "CronJob", w.namespace, name, map[string]any{"spec": map[string]any{
			"schedule": "0 0 * * *", "jobTemplate": map[string]any{"spec": map[string]any{"template": template}},
		}})
	case 4:
		return object("apps/v1", "ReplicaSet", w.namespace, name, map[string]any{"spec": map[string]any{"selector": selector, "template": template}})
	}
	return object("apps/v1", "Deployment", w.namespace, name, map[string]any{"spec": map[string]any{"selector": selector, "template": template}})
}

// claims returns the claim templates of a StatefulSet, and mounts them in its pods.
func (w *world) claims(template map[string]any) []any {
	if w.one(2) {
		return nil
	}
	claim := w.claim("data")
	delete(claim["metadata"].(map[string]any), "namespace")
	container := template["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	container["volumeMounts"] = []any{map[string]any{"name": "data", "mountPath": "/data"}}
	return []any{claim}
}
