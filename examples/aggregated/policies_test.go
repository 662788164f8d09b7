package main

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Policies of the main server apply to paintings behind it (S22.20): a ValidatingAdmissionPolicy with a param
// on the main server, and a MutatingAdmissionPolicy, which needs the gallery's schema.
func TestPoliciesOfTheMainServerJudgePaintings(t *testing.T) {
	t.Parallel()
	c := startWith(t, true)
	if _, err := c.main.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Data: map[string]string{"latest": "1900"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rules := []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"gallery.example.com"}, APIVersions: []string{"v1"}, Resources: []string{"paintings"}},
	}}}
	policies := c.main.AdmissionregistrationV1()
	notFound := admissionregistrationv1.DenyAction
	if _, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "old-masters"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind:        &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules},
			Validations:      []admissionregistrationv1.Validation{{Expression: "object.spec.year <= int(params.data.latest)", Message: "this gallery has old masters only"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "old-masters"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "old-masters", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			ParamRef: &admissionregistrationv1.ParamRef{Name: "limits", Namespace: "default", ParameterNotFoundAction: &notFound},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := policies.MutatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "sign"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules}, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: `Object{spec: Object.spec{artist: "anonymous"}}`},
			}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := policies.MutatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sign"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "sign"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := paintings(t, c.admin, "v1", "default")
	old, err := client.Create(t.Context(), paint("v1", "old", map[string]any{"title": "Untitled", "year": int64(1700)}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if artist := old.Object["spec"].(map[string]any)["artist"]; artist != "anonymous" {
		t.Errorf("artist %v, want what the policy sets", artist)
	}
	_, err = client.Create(t.Context(), paint("v1", "new", map[string]any{"title": "Untitled", "year": int64(1990)}), metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "this gallery has old masters only") {
		t.Errorf("a painting that the policy refuses: %v", err)
	}
}
