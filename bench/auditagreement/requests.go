package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
)

// object is an object to create.
type object struct{ path, body string }

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

const admission = "/apis/admissionregistration.k8s.io/v1/"

// policy returns a validating policy that checks a label, and its binding.
func policy(name, condition, expression, message string, actions ...string) []object {
	spec := map[string]any{
		"matchConstraints": map[string]any{
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"judged": "yes"}},
			"resourceRules":     []any{map[string]any{"apiGroups": []string{"", "apps"}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE", "UPDATE"}, "resources": []string{"configmaps", "pods", "deployments"}}},
		},
		"validations": []any{map[string]any{"expression": expression, "message": message}},
	}
	if condition != "" {
		spec["matchConditions"] = []any{map[string]any{"name": "c", "expression": condition}}
	}
	return []object{
		{admission + "validatingadmissionpolicies", encode(map[string]any{"metadata": map[string]any{"name": name}, "spec": spec})},
		{admission + "validatingadmissionpolicybindings", encode(map[string]any{"metadata": map[string]any{"name": "to-" + name}, "spec": map[string]any{"policyName": name, "validationActions": actions}})},
	}
}

// says returns an expression that is false only if the label policy has the given value.
func says(value string) string {
	return "object.metadata.?labels['policy'].orValue('') != '" + value + "'"
}

// policies maps the validating policies, which match each create and update, to the value of the label policy that
// each of them reports.
var policies = map[string]string{"denies": "d", "records": "r", "warns": "w", "both": "b", "breaks": "x"}

// setup returns the objects of the cluster, in order of creation.
func setup() []object {
	list := []object{
		{"/api/v1/namespaces", `{"metadata":{"name":"red","labels":{"judged":"yes"}}}`},
		{"/api/v1/namespaces", `{"metadata":{"name":"blue","labels":{"judged":"yes","colour":"blue","pod-security.kubernetes.io/audit":"restricted","pod-security.kubernetes.io/warn":"restricted"}}}`},
		{"/api/v1/namespaces", `{"metadata":{"name":"green","labels":{"judged":"yes","pod-security.kubernetes.io/enforce":"baseline"}}}`},
		{"/api/v1/namespaces", `{"metadata":{"name":"full","labels":{"judged":"yes"}}}`},
		{"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"all"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"makers"}]}`},
		{"/api/v1/namespaces/blue/limitranges", `{"metadata":{"name":"small"},"spec":{"limits":[{"type":"Container","max":{"memory":"1Gi"}}]}}`},
		{"/api/v1/namespaces/full/resourcequotas", `{"metadata":{"name":"none"},"spec":{"hard":{"count/configmaps":"0"}}}`},
		{admission + "mutatingadmissionpolicies", `{"metadata":{"name":"map"},"spec":{"reinvocationPolicy":"Never","failurePolicy":"Fail","matchConstraints":{"namespaceSelector":{"matchLabels":{"judged":"yes"}},"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},"matchConditions":[{"name":"asked","expression":"'map' in object.metadata.?labels.orValue({})"}],"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: object.metadata.labels['map'] == 'fail' ? '/nothing/there' : '/metadata/labels/mapped', value: 'yes'}]"}}]}}`},
		{admission + "mutatingadmissionpolicybindings", `{"metadata":{"name":"to-map"},"spec":{"policyName":"map"}}`},
	}
	for _, namespace := range []string{"red", "blue", "green", "full"} {
		list = append(list, object{"/api/v1/namespaces/" + namespace + "/serviceaccounts", `{"metadata":{"name":"default"}}`})
	}
	list = append(list, policy("denies", "", says("d"), `admission webhook "m0.example.com" denied the request: not so`, "Deny")...)
	list = append(list, policy("records", "", says("r"), "recorded", "Audit")...)
	list = append(list, policy("warns", "", says("w"), "warned", "Warn", "Audit")...)
	list = append(list, policy("both", "", says("b"), "refused and recorded", "Deny", "Audit")...)
	list = append(list, policy("breaks", "", "object.metadata.?labels['policy'].orValue('') != 'x' || object.metadata.labels['never'] == 'x'", "broken", "Deny")...)
	return append(list, policy("some", "'some' in object.metadata.?labels.orValue({})", "true", "never", "Deny")...)
}

// attempt is a request, with the expected rejection by other parts of the server than webhooks.
type attempt struct {
	user, group                     string
	method, path, contentType, body string
	// trouble is the part of the server that rejects the request, unless a webhook rejects it before. Empty for none.
	trouble string
	// labels are the labels of the object in a create or a whole update.
	labels                 map[string]string
	kind, namespace, name  string
	operation, subresource string
}

var paths = map[string]string{"configmaps": "/api/v1/namespaces/%s/configmaps", "pods": "/api/v1/namespaces/%s/pods", "deployments": "/apis/apps/v1/namespaces/%s/deployments"}

// made is an object that was created.
type made struct {
	kind, namespace, name string
	labels                map[string]string
}

// maker generates random requests.
type maker struct {
	*rand.Rand
	made []made
	// hangs is the number of requests that may still call a webhook that hangs.
	hangs int
}

func one[T any](m *maker, list ...T) T { return list[m.IntN(len(list))] }

// labels returns the labels of an object. They control the actions of each webhook, and the findings of the policies.
func (m *maker) labels() map[string]string {
	labels := map[string]string{"n": fmt.Sprint(m.IntN(9))}
	for i := range registered {
		w := &registered[i]
		letters := mutatingBehaviours
		if w.validating {
			letters = validatingBehaviours
		}
		if m.IntN(6) > 0 {
			continue
		}
		labels[w.label] = string(letters[m.IntN(len(letters))])
		if m.hangs > 0 && m.IntN(30) == 0 {
			labels[w.label] = "h"
			m.hangs--
		}
		if !w.ignores && m.IntN(2) == 0 {
			// Otherwise too few requests would reach the end of the chain.
			labels[w.label] = one(m, "p", "n", "w", "a")
			if w.validating {
				labels[w.label] = one(m, "w", "a", "")
			}
		}
	}
	if m.IntN(4) == 0 {
		labels["policy"] = one(m, "d", "r", "w", "b", "x")
	}
	if m.IntN(6) == 0 {
		labels["some"] = "y"
	}
	return labels
}

func (m *maker) object(kind, name string, labels map[string]string) map[string]any {
	meta := map[string]any{"name": name, "labels": labels}
	pod := map[string]any{"containers": []any{map[string]any{"name": "c", "image": "example.com/image:1"}}}
	switch kind {
	case "configmaps":
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": map[string]any{"k": fmt.Sprint(m.IntN(100))}}
	case "pods":
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod}
	}
	template := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": pod}
	return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "template": template}}
}

// judges returns the plugin that rejects a create or a whole update of an object with these labels.
func judges(labels map[string]string) string {
	switch labels["policy"] {
	case "d", "b", "x":
		return "ValidatingAdmissionPolicy"
	}
	return ""
}

// next returns the next request.
func (m *maker) next(i int) attempt {
	q := attempt{user: fmt.Sprintf("maker-%d", i), group: "makers"}
	if len(m.made) > 5 && m.IntN(2) == 0 {
		m.about(&q, m.made[m.IntN(len(m.made))])
		return q
	}
	q.kind, q.namespace, q.name = one(m, "configmaps", "configmaps", "pods", "deployments"), one(m, "red", "blue", "green"), fmt.Sprintf("o%d", i)
	n := m.IntN(24)
	switch n {
	case 1, 2:
		q.kind = "pods"
	case 3, 4, 9:
		q.kind = "configmaps"
	case 7:
		q.kind, q.namespace = "pods", "green"
	case 8:
		q.kind, q.namespace = "pods", "blue"
	}
	q.labels, q.operation = m.labels(), "CREATE"
	q.trouble = judges(q.labels)
	o := m.object(q.kind, q.name, q.labels)
	q.method, q.contentType = http.MethodPost, "application/json"
	spec, _ := o["spec"].(map[string]any)
	switch {
	case n == 0:
		q.namespace, q.trouble = "nowhere", "NamespaceLifecycle"
	case n == 1:
		spec["serviceAccountName"], q.trouble = "missing", "ServiceAccount"
	case n == 2:
		spec["priorityClassName"], q.trouble = "missing", "Priority"
	case n == 3:
		q.labels["map"], q.trouble = "fail", "MutatingAdmissionPolicy"
	case n == 4:
		q.labels["map"] = "yes"
	case n == 5 || n == 6:
		// Validation precedes the policies.
		q.trouble = "Validation"
		if q.kind == "configmaps" {
			o["data"] = map[string]any{"not a key!": "x"}
		} else if q.kind == "pods" {
			spec["containers"] = []any{}
		} else {
			spec["selector"] = map[string]any{"matchLabels": map[string]any{"other": "b"}}
		}
	case n == 7:
		spec["hostNetwork"], q.trouble = true, "PodSecurity"
	case n == 8:
		spec["containers"].([]any)[0].(map[string]any)["resources"], q.trouble = map[string]any{"limits": map[string]any{"memory": "2Gi"}}, "LimitRanger"
	case n == 9:
		q.namespace = "full"
		if q.trouble == "" {
			q.trouble = "ResourceQuota"
		}
	case n == 10:
		q.group, q.trouble = "nobodies", "Authorization"
	case n == 11 && len(m.made) > 0:
		had := m.made[m.IntN(len(m.made))]
		q.kind, q.namespace, q.name = had.kind, had.namespace, had.name
		o = m.object(q.kind, q.name, q.labels)
		if q.trouble == "" {
			q.trouble = "Storage"
		}
	}
	q.path = fmt.Sprintf(paths[q.kind], q.namespace)
	q.body = encode(o)
	switch m.IntN(25) {
	case 0:
		if q.group == "makers" {
			q.body, q.trouble = `{"apiVersion":"v1","kind":`, "Decoding"
		}
	case 1:
		q.path += "?dryRun=All"
	case 2:
		if q.trouble == "" || q.trouble == "ValidatingAdmissionPolicy" {
			q.method, q.contentType = http.MethodPatch, "application/apply-patch+yaml"
			q.path += "/" + q.name + "?fieldManager=maker&force=true"
		}
	}
	return q
}

// about generates a request about an existing object.
func (m *maker) about(q *attempt, had made) {
	q.kind, q.namespace, q.name = had.kind, had.namespace, had.name
	q.path = fmt.Sprintf(paths[q.kind], q.namespace) + "/" + q.name
	labels := m.labels()
	switch m.IntN(8) {
	case 0:
		q.method, q.operation = http.MethodDelete, "DELETE"
		if had.kind == "pods" {
			q.path += "?gracePeriodSeconds=0"
		}
		return
	case 1:
		q.method, q.operation, q.path, q.trouble = http.MethodDelete, "DELETE", q.path+"x", "Storage"
		return
	case 2:
		q.method, q.contentType, q.operation = http.MethodPut, "application/json", "UPDATE"
		o := m.object(q.kind, q.name, labels)
		o["metadata"].(map[string]any)["resourceVersion"] = "1"
		q.body, q.trouble, q.labels = encode(o), "Storage", labels
		return
	case 3:
		if q.kind == "deployments" {
			q.method, q.contentType, q.operation, q.subresource = http.MethodPatch, "application/merge-patch+json", "UPDATE", "scale"
			q.path, q.body = q.path+"/scale", fmt.Sprintf(`{"spec":{"replicas":%d}}`, m.IntN(8))
			return
		}
	case 4, 5:
		if q.kind == "configmaps" {
			q.method, q.contentType, q.operation = http.MethodPut, "application/json", "UPDATE"
			q.body, q.labels, q.trouble = encode(m.object(q.kind, q.name, labels)), labels, judges(labels)
			return
		}
	}
	// A patch keeps the labels that it does not name.
	q.method, q.contentType, q.operation = http.MethodPatch, one(m, "application/merge-patch+json", "application/strategic-merge-patch+json"), "UPDATE"
	patch := map[string]any{}
	for _, w := range registered {
		patch[w.label] = nil
	}
	patch["policy"], patch["some"] = nil, nil
	for k, v := range labels {
		patch[k] = v
	}
	q.body, q.labels, q.trouble = encode(map[string]any{"metadata": map[string]any{"labels": patch}}), labels, judges(labels)
}

// took records the objects that a request created or deleted.
func (m *maker) took(q *attempt, code int) {
	i := slices.IndexFunc(m.made, func(had made) bool { return had.kind == q.kind && had.namespace == q.namespace && had.name == q.name })
	dry := len(q.path) > 10 && q.path[len(q.path)-10:] == "dryRun=All"
	switch {
	case q.operation == "DELETE" && code < 300 && i >= 0:
		m.made = slices.Delete(m.made, i, i+1)
	case q.operation == "CREATE" && code == http.StatusCreated && !dry && i < 0:
		m.made = append(m.made, made{q.kind, q.namespace, q.name, q.labels})
	}
}
