package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/server/reporting/replicas/v1alpha1"
)

// reading decodes the kinds of registrations that can be tried, and refuses objects named bad.
func reading(text []byte) (runtime.Object, error) {
	var about metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &about); err != nil {
		return nil, err
	}
	if about.Name == "bad" {
		return nil, errors.New("it could not be created")
	}
	obj := map[string]runtime.Object{
		"ValidatingAdmissionPolicy": &v1.ValidatingAdmissionPolicy{}, "ValidatingAdmissionPolicyBinding": &v1.ValidatingAdmissionPolicyBinding{},
		"MutatingAdmissionPolicy": &v1.MutatingAdmissionPolicy{}, "MutatingAdmissionPolicyBinding": &v1.MutatingAdmissionPolicyBinding{},
	}[about.Kind]
	return obj, json.Unmarshal(text, obj)
}

// A caller may try registrations that show it only the verdict about an object that it has; for
// others a sentence gives the reason (S20.10).
func TestWhatACallerMayTry(t *testing.T) {
	const policy, binding = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy"`, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding"`
	const mutating, mutatingBinding = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicy"`, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding"`
	asks := rights{"create subjectaccessreviews"}
	for _, tt := range []struct {
		name   string
		given  []string
		rights rights
		want   string // how many objects are taken, and the problems
		err    string
	}{
		{name: "nothing", want: "0 "},
		{name: "a policy and its binding", given: []string{policy + `,"metadata":{"name":"p"},"spec":{"validations":[{"expression":"object.a == 1"}]}}`, binding + `,"metadata":{"name":"b"},"spec":{"policyName":"p"}}`}, want: "2 "},
		{name: "a type error is shown, and the policy judges", given: []string{policy + `,"metadata":{"name":"untyped"}}`}, want: "1 spec.validations[0].expression: undefined field"},
		{name: "what could not be created", given: []string{policy + `,"metadata":{"name":"bad"}}`}, want: "0 it could not be created"},
		{name: "params", given: []string{policy + `,"metadata":{"name":"p"},"spec":{"paramKind":{"apiVersion":"v1","kind":"Secret"}}}`}, want: "0 spec.paramKind: a policy with params cannot be tried"},
		{name: "params of a mutation", given: []string{mutating + `,"metadata":{"name":"p"},"spec":{"paramKind":{"apiVersion":"v1","kind":"Secret"}}}`}, want: "0 spec.paramKind: a policy with params cannot be tried"},
		{name: "a reference to params, for a policy that is stored", given: []string{binding + `,"metadata":{"name":"b"},"spec":{"policyName":"stored","paramRef":{"name":"s"}}}`}, want: "0 spec.paramRef: a policy with params cannot be tried"},
		{name: "the same for a mutation", given: []string{mutatingBinding + `,"metadata":{"name":"b"},"spec":{"policyName":"stored","paramRef":{"name":"s"}}}`}, want: "0 spec.paramRef: a policy with params cannot be tried"},
		{name: "params, by who may ask for anything", given: []string{policy + `,"metadata":{"name":"p"},"spec":{"paramKind":{"apiVersion":"v1","kind":"Secret"}}}`}, rights: asks, want: "0 spec.paramKind: a policy with params cannot be tried"},
		{name: "what others may do", given: []string{policy + `,"metadata":{"name":"p"},"spec":{"validations":[{"expression":"authorizer.serviceAccount('kube-system','root').group('').resource('secrets').check('get').allowed()"}]}}`}, want: "0 a policy with the variable authorizer cannot be tried"},
		{name: "the same, written with an escape", given: []string{policy + `,"metadata":{"name":"p"},"spec":{"variables":[{"name":"a","expression":"\u0061uthorizer.requestResource.check('get').allowed()"}]}}`}, want: "0 a policy with the variable authorizer cannot be tried"},
		{name: "the same in a mutation", given: []string{mutating + `,"metadata":{"name":"p"},"spec":{"matchConditions":[{"name":"a","expression":"authorizer.requestResource.check('get').allowed()"}]}}`}, want: "0 a policy with the variable authorizer cannot be tried"},
		{name: "the same, by who may ask what others may do", given: []string{policy + `,"metadata":{"name":"p"},"spec":{"validations":[{"expression":"authorizer.requestResource.check('get').allowed()"}]}}`}, rights: asks, want: "1 "},
		{name: "an authorizer that is away", given: []string{policy + `}`}, rights: rights{"broken"}, err: "the authorizer is away"},
		{name: "another kind", given: []string{`{"apiVersion":"v1","kind":"Pod"}`}, err: "spec.registrations[0]: Unsupported value"},
		{name: "another version", given: []string{`{"apiVersion":"admissionregistration.k8s.io/v1beta1","kind":"ValidatingAdmissionPolicy"}`}, err: "spec.registrations[0]: Unsupported value"},
		{name: "no JSON", given: []string{`{`}, err: "spec.registrations[0]: Invalid value"},
		{name: "too many", given: strings.Split(strings.Repeat(policy+"};", maxTried)+policy+"}", ";"), err: "spec.registrations: Too many"},
		{name: "too much", given: []string{policy + `,"metadata":{"name":"` + strings.Repeat("a", maxTriedBytes) + `"}}`}, err: "spec.registrations: Invalid value"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			trying := &Trying{
				Read: reading,
				TypeErrors: func(p *v1.ValidatingAdmissionPolicy) []v1.ExpressionWarning {
					if p.Name != "untyped" {
						return nil
					}
					return []v1.ExpressionWarning{{FieldRef: "spec.validations[0].expression", Warning: "undefined field"}}
				},
				Costs: func(e *snapshot.Entry) []v1alpha1.ExpressionCost {
					return []v1alpha1.ExpressionCost{{Field: e.Configuration}}
				},
			}
			spec := &v1alpha1.AdmissionExplanationSpec{}
			for _, text := range tt.given {
				spec.Registrations = append(spec.Registrations, runtime.RawExtension{Raw: []byte(text)})
			}
			objects, list, err := trying.try(spec, tt.rights.may)
			if err != nil || tt.err != "" {
				if err == nil || tt.err == "" || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				if !strings.Contains(tt.err, "away") && !apierrors.IsInvalid(err) {
					t.Errorf("the client is not at fault: %v", err)
				}
				return
			}
			var problems []string
			for i := range list {
				problems = append(problems, list[i].Problems...)
			}
			got := fmt.Sprintf("%d %s", len(objects), strings.Join(problems, "; "))
			if strings.HasSuffix(tt.want, " ") && got != tt.want || !strings.HasPrefix(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if len(objects) > 0 && strings.HasPrefix(list[0].Kind, "Validating") && len(list[0].Costs) != 1 {
				t.Errorf("costs %v", list[0].Costs)
			}
		})
	}
}

// A policy would see the labels of the stored namespace when a namespace of the same name is
// created.
func TestANewNamespaceShowsNoStoredOne(t *testing.T) {
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	for _, tt := range []struct {
		name   string
		about  schema.GroupVersionResource
		rights rights
		want   string
	}{
		{"without the right", namespaces, nil, "may not get namespaces"},
		{"with the right", namespaces, rights{"get namespaces"}, ""},
		{"another resource", schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, nil, ""},
	} {
		if got, err := hideNewNamespace(tt.about, tt.rights.may); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
}
