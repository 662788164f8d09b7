package replicas

import (
	"fmt"
	"net/http"
	"strings"
)

// subjects are the objects whose versions a history writes. Each of them evaluates every write of a ConfigMap
// in the namespace default, and the warnings of the response contain their versions.
var subjects = []string{"mutating", "validating", "policy", "binding", "param", "mutatingpolicy", "mutatingbinding"}

const (
	policies         = group + "validatingadmissionpolicies"
	bindings         = group + "validatingadmissionpolicybindings"
	mutatingPolicies = group + "mutatingadmissionpolicies"
	mutatingBindings = group + "mutatingadmissionpolicybindings"
	// params are objects with an annotation that contains the version.
	params = "/api/v1/namespaces/default/serviceaccounts"
)

// subject returns the path of a subject, and its object for a version. The name of the object is history.
func (f *fleet) subject(subject string, version int) (at string, object map[string]any) {
	switch subject {
	case "policy":
		return policies, validatingPolicy("history", nil, fmt.Sprintf("'judged by policy %d'", version))
	case "binding":
		return bindings, validatingBinding("history", "by-binding", paramFor(subject, version))
	case "param":
		return params, param("history", version)
	case "mutatingpolicy":
		return mutatingPolicies, mutatingPolicy("history", nil, "policy", fmt.Sprintf("'%d'", version))
	case "mutatingbinding":
		return mutatingBindings, binding("history", map[string]any{"policyName": "by-binding", "paramRef": paramFor(subject, version)})
	}
	return collection(subject), f.configuration(subject, version)
}

// tellers creates the constant objects through which the subjects report their versions.
func (f *fleet) tellers() {
	f.t.Helper()
	theirs := "params.metadata.annotations.version"
	for _, one := range []struct {
		collection string
		object     map[string]any
	}{
		// The binding for the policy that is a subject.
		{bindings, validatingBinding("policy", "history", nil)},
		// The policy for the binding that is a subject.
		{policies, validatingPolicy("by-binding", paramKind, "'judged by binding ' + "+theirs)},
		// The policy and the binding for the param that is a subject.
		{policies, validatingPolicy("by-param", paramKind, "'judged by param ' + "+theirs)},
		{bindings, validatingBinding("by-param", "by-param", map[string]any{"name": "history", "namespace": "default", "parameterNotFoundAction": "Deny"})},
		// The same for mutating policies, which set labels; a validating policy reports the labels.
		{mutatingBindings, binding("policy", map[string]any{"policyName": "history"})},
		{mutatingPolicies, mutatingPolicy("by-binding", paramKind, "binding", theirs)},
		{policies, validatingPolicy("labels", nil, "'judged by mutatingpolicy ' + object.metadata.labels.policy", "'judged by mutatingbinding ' + object.metadata.labels.binding")},
		{bindings, validatingBinding("labels", "labels", nil)},
	} {
		f.must(http.StatusCreated, 0, "POST", one.collection, one.object)
	}
}

var paramKind = map[string]any{"apiVersion": "v1", "kind": "ServiceAccount"}

func paramFor(subject string, version int) map[string]any {
	return map[string]any{"name": fmt.Sprintf("%s-%d", subject, version), "namespace": "default", "parameterNotFoundAction": "Deny"}
}

// paramOf returns the param of a version of a binding; nil for other subjects.
func paramOf(object map[string]any) map[string]any {
	spec, _ := object["spec"].(map[string]any)
	ref, _ := spec["paramRef"].(map[string]any)
	if ref == nil {
		return nil
	}
	name := ref["name"].(string)
	return map[string]any{"metadata": map[string]any{
		"name": name, "annotations": map[string]any{"version": name[strings.LastIndex(name, "-")+1:]},
	}}
}

func param(name string, version int) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": name, "annotations": map[string]any{"version": fmt.Sprint(version)}}}
}

// creations are the match constraints of all policies.
var creations = map[string]any{
	"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "default"}},
	"resourceRules": []any{map[string]any{
		"operations": []string{"CREATE"}, "apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"configmaps"},
	}},
}

// validatingPolicy is violated by every object; expressions compute its messages.
func validatingPolicy(name string, kind map[string]any, messages ...string) map[string]any {
	var validations []any
	for _, m := range messages {
		validations = append(validations, map[string]any{"expression": "false", "messageExpression": m})
	}
	return map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{
		"paramKind": kind, "matchConstraints": creations, "validations": validations,
	}}
}

// validatingBinding warns about violations.
func validatingBinding(name, policy string, ref map[string]any) map[string]any {
	spec := map[string]any{"policyName": policy, "validationActions": []string{"Warn"}}
	if ref != nil {
		spec["paramRef"] = ref
	}
	return binding(name, spec)
}

func binding(name string, spec map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": name}, "spec": spec}
}

// mutatingPolicy sets a label to the value of an expression.
func mutatingPolicy(name string, kind map[string]any, label, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{
		"paramKind": kind, "matchConstraints": creations, "reinvocationPolicy": "Never",
		"mutations": []any{map[string]any{"patchType": "ApplyConfiguration", "applyConfiguration": map[string]any{
			"expression": fmt.Sprintf("Object{metadata: Object.metadata{labels: {'%s': %s}}}", label, value),
		}}},
	}}
}

// unread reports whether a write was rejected because params could not be read, as on a server that is
// shutting down.
func (a *answer) unread() bool {
	_, message := a.status()
	return a.code >= 400 && strings.Contains(message, "failed to configure binding") && !a.withoutParams()
}

// withoutParams reports whether a write was rejected because a param was not found that existed before its
// binding. That is an escape.
func (a *answer) withoutParams() bool {
	_, message := a.status()
	return a.code >= 400 && strings.Contains(message, "no params found")
}
