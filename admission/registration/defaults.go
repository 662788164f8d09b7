package registration

import (
	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

// Default timeouts of webhooks in seconds, by version (S1.2, S1.9, S3.4). External hooks have no
// field for a timeout.
const (
	timeoutV1       = 10
	timeoutV1beta1  = 30
	timeoutExternal = 30
)

// Default sets absent fields of a webhook configuration, policy, binding or initializer
// configuration to the defaults of the object's version (S1.2, S1.9, S1.32), and moves the verbs of
// external hooks to operations (S1.31). It does not change unstructured and other objects.
func Default(obj runtime.Object) {
	switch c := obj.(type) {
	case *v1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			fill(&w.ReinvocationPolicy, v1.NeverReinvocationPolicy)
			defaultStable(&w.FailurePolicy, &w.MatchPolicy, &w.TimeoutSeconds, &w.ClientConfig)
			defaultSelection(&w.NamespaceSelector, &w.ObjectSelector, w.Rules)
		}
	case *v1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			defaultStable(&w.FailurePolicy, &w.MatchPolicy, &w.TimeoutSeconds, &w.ClientConfig)
			defaultSelection(&w.NamespaceSelector, &w.ObjectSelector, w.Rules)
		}
	case *v1beta1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			fill(&w.ReinvocationPolicy, v1beta1.NeverReinvocationPolicy)
			defaultBeta(&w.FailurePolicy, &w.MatchPolicy, &w.SideEffects, &w.TimeoutSeconds, &w.AdmissionReviewVersions, &w.ClientConfig)
			defaultSelection(&w.NamespaceSelector, &w.ObjectSelector, w.Rules)
		}
	case *v1beta1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			defaultBeta(&w.FailurePolicy, &w.MatchPolicy, &w.SideEffects, &w.TimeoutSeconds, &w.AdmissionReviewVersions, &w.ClientConfig)
			defaultSelection(&w.NamespaceSelector, &w.ObjectSelector, w.Rules)
		}
	case *v1alpha1.ExternalAdmissionHookConfiguration:
		for i := range c.ExternalAdmissionHooks {
			h := &c.ExternalAdmissionHooks[i]
			fill(&h.FailurePolicy, v1alpha1.Ignore)
			fill(&h.NamespaceSelector, metav1.LabelSelector{})
			for j := range h.Rules {
				// Validation rejects a rule with both operations and verbs (S1.31).
				if r := &h.Rules[j]; len(r.Operations) == 0 {
					r.Operations, r.Verbs = r.Verbs, nil
				}
			}
		}
	case *v1alpha1.InitializerConfiguration:
		for i := range c.Initializers {
			fill(&c.Initializers[i].FailurePolicy, v1alpha1.Ignore)
		}
	case *v1.ValidatingAdmissionPolicy:
		fill(&c.Spec.FailurePolicy, v1.Fail)
		defaultMatch(c.Spec.MatchConstraints)
	case *v1.ValidatingAdmissionPolicyBinding:
		defaultMatch(c.Spec.MatchResources)
	case *v1.MutatingAdmissionPolicy:
		fill(&c.Spec.FailurePolicy, v1.Fail)
		defaultMatch(c.Spec.MatchConstraints)
	case *v1.MutatingAdmissionPolicyBinding:
		defaultMatch(c.Spec.MatchResources)
	}
}

// defaultMatch sets the defaults of the matchConstraints of a policy, or the matchResources of
// a binding (S13.6, S13.7).
func defaultMatch(m *v1.MatchResources) {
	if m == nil {
		return
	}
	fill(&m.MatchPolicy, v1.Equivalent)
	fill(&m.NamespaceSelector, metav1.LabelSelector{})
	fill(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]v1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			fill(&rules[i].Scope, v1.AllScopes)
		}
	}
}

func defaultStable(failure **v1.FailurePolicyType, match **v1.MatchPolicyType, timeout **int32, client *v1.WebhookClientConfig) {
	fill(failure, v1.Fail)
	fill(match, v1.Equivalent)
	fill(timeout, timeoutV1)
	if client.Service != nil {
		fill(&client.Service.Port, 443)
	}
}

func defaultBeta(failure **v1beta1.FailurePolicyType, match **v1beta1.MatchPolicyType, effects **v1beta1.SideEffectClass, timeout **int32, versions *[]string, client *v1beta1.WebhookClientConfig) {
	fill(failure, v1beta1.Ignore)
	fill(match, v1beta1.Exact)
	fill(effects, v1beta1.SideEffectClassUnknown)
	fill(timeout, timeoutV1beta1)
	if len(*versions) == 0 {
		*versions = []string{"v1beta1"}
	}
	if client.Service != nil {
		fill(&client.Service.Port, 443)
	}
}

// defaultSelection sets the defaults that v1 and v1beta1 share. Rules have the same type in both.
func defaultSelection(namespaces, objects **metav1.LabelSelector, rules []v1.RuleWithOperations) {
	fill(namespaces, metav1.LabelSelector{})
	fill(objects, metav1.LabelSelector{})
	for i := range rules {
		fill(&rules[i].Scope, v1.AllScopes)
	}
}

// fill sets a field that is nil.
func fill[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
