package registration

import (
	"fmt"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Convert returns a webhook configuration in a version, v1 or v1beta1. Every field has its
// counterpart (S1.2), and nothing is defaulted. The result is obj itself if it has the version,
// and otherwise shares memory with obj. It is an error if obj is not a webhook configuration,
// or the version is unknown.
func Convert(obj runtime.Object, version string) (runtime.Object, error) {
	switch version {
	case "v1":
		switch c := obj.(type) {
		case *v1.MutatingWebhookConfiguration, *v1.ValidatingWebhookConfiguration:
			return obj, nil
		case *v1beta1.MutatingWebhookConfiguration:
			out := &v1.MutatingWebhookConfiguration{ObjectMeta: c.ObjectMeta, Webhooks: each(c.Webhooks, mutatingToV1)}
			out.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind(MutatingKind))
			return out, nil
		case *v1beta1.ValidatingWebhookConfiguration:
			out := &v1.ValidatingWebhookConfiguration{ObjectMeta: c.ObjectMeta, Webhooks: each(c.Webhooks, validatingToV1)}
			out.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind(ValidatingKind))
			return out, nil
		}
	case "v1beta1":
		switch c := obj.(type) {
		case *v1beta1.MutatingWebhookConfiguration, *v1beta1.ValidatingWebhookConfiguration:
			return obj, nil
		case *v1.MutatingWebhookConfiguration:
			out := &v1beta1.MutatingWebhookConfiguration{ObjectMeta: c.ObjectMeta, Webhooks: each(c.Webhooks, mutatingToBeta)}
			out.SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind(MutatingKind))
			return out, nil
		case *v1.ValidatingWebhookConfiguration:
			out := &v1beta1.ValidatingWebhookConfiguration{ObjectMeta: c.ObjectMeta, Webhooks: each(c.Webhooks, validatingToBeta)}
			out.SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind(ValidatingKind))
			return out, nil
		}
	default:
		return nil, fmt.Errorf("webhook configurations have no version %q", version)
	}
	return nil, fmt.Errorf("%T is not a webhook configuration", obj)
}

func mutatingToV1(w *v1beta1.MutatingWebhook) v1.MutatingWebhook {
	return v1.MutatingWebhook{
		Name:                    w.Name,
		ClientConfig:            clientToV1(w.ClientConfig),
		Rules:                   w.Rules,
		FailurePolicy:           recast[v1.FailurePolicyType](w.FailurePolicy),
		MatchPolicy:             recast[v1.MatchPolicyType](w.MatchPolicy),
		NamespaceSelector:       w.NamespaceSelector,
		ObjectSelector:          w.ObjectSelector,
		SideEffects:             recast[v1.SideEffectClass](w.SideEffects),
		TimeoutSeconds:          w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions,
		ReinvocationPolicy:      recast[v1.ReinvocationPolicyType](w.ReinvocationPolicy),
		MatchConditions:         each(w.MatchConditions, func(c *v1beta1.MatchCondition) v1.MatchCondition { return v1.MatchCondition(*c) }),
	}
}

func mutatingToBeta(w *v1.MutatingWebhook) v1beta1.MutatingWebhook {
	return v1beta1.MutatingWebhook{
		Name:                    w.Name,
		ClientConfig:            clientToBeta(w.ClientConfig),
		Rules:                   w.Rules,
		FailurePolicy:           recast[v1beta1.FailurePolicyType](w.FailurePolicy),
		MatchPolicy:             recast[v1beta1.MatchPolicyType](w.MatchPolicy),
		NamespaceSelector:       w.NamespaceSelector,
		ObjectSelector:          w.ObjectSelector,
		SideEffects:             recast[v1beta1.SideEffectClass](w.SideEffects),
		TimeoutSeconds:          w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions,
		ReinvocationPolicy:      recast[v1beta1.ReinvocationPolicyType](w.ReinvocationPolicy),
		MatchConditions:         each(w.MatchConditions, func(c *v1.MatchCondition) v1beta1.MatchCondition { return v1beta1.MatchCondition(*c) }),
	}
}

func validatingToV1(w *v1beta1.ValidatingWebhook) v1.ValidatingWebhook {
	return v1.ValidatingWebhook{
		Name:                    w.Name,
		ClientConfig:            clientToV1(w.ClientConfig),
		Rules:                   w.Rules,
		FailurePolicy:           recast[v1.FailurePolicyType](w.FailurePolicy),
		MatchPolicy:             recast[v1.MatchPolicyType](w.MatchPolicy),
		NamespaceSelector:       w.NamespaceSelector,
		ObjectSelector:          w.ObjectSelector,
		SideEffects:             recast[v1.SideEffectClass](w.SideEffects),
		TimeoutSeconds:          w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions,
		MatchConditions:         each(w.MatchConditions, func(c *v1beta1.MatchCondition) v1.MatchCondition { return v1.MatchCondition(*c) }),
	}
}

func validatingToBeta(w *v1.ValidatingWebhook) v1beta1.ValidatingWebhook {
	return v1beta1.ValidatingWebhook{
		Name:                    w.Name,
		ClientConfig:            clientToBeta(w.ClientConfig),
		Rules:                   w.Rules,
		FailurePolicy:           recast[v1beta1.FailurePolicyType](w.FailurePolicy),
		MatchPolicy:             recast[v1beta1.MatchPolicyType](w.MatchPolicy),
		NamespaceSelector:       w.NamespaceSelector,
		ObjectSelector:          w.ObjectSelector,
		SideEffects:             recast[v1beta1.SideEffectClass](w.SideEffects),
		TimeoutSeconds:          w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions,
		MatchConditions:         each(w.MatchConditions, func(c *v1.MatchCondition) v1beta1.MatchCondition { return v1beta1.MatchCondition(*c) }),
	}
}

func clientToV1(c v1beta1.WebhookClientConfig) v1.WebhookClientConfig {
	return v1.WebhookClientConfig{URL: c.URL, Service: (*v1.ServiceReference)(c.Service), CABundle: c.CABundle}
}

func clientToBeta(c v1.WebhookClientConfig) v1beta1.WebhookClientConfig {
	return v1beta1.WebhookClientConfig{URL: c.URL, Service: (*v1beta1.ServiceReference)(c.Service), CABundle: c.CABundle}
}

// recast turns a pointer to one kind of string into a pointer to another.
func recast[To, From ~string](in *From) *To {
	if in == nil {
		return nil
	}
	out := To(*in)
	return &out
}

// each maps a slice; nil stays nil.
func each[From, To any](in []From, f func(*From) To) []To {
	if in == nil {
		return nil
	}
	out := make([]To, len(in))
	for i := range in {
		out[i] = f(&in[i])
	}
	return out
}
