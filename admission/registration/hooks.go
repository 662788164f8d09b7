package registration

import (
	"time"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

// Hooks returns the hooks that an object registers, in its order: a webhook
// configuration of v1 or v1beta1, an ExternalAdmissionHookConfiguration, or one of
// them unstructured. An InitializerConfiguration has none.
//
// The object should have been defaulted. Where it was not, an absent failure
// policy counts as Fail, for v1alpha1 as Ignore (S7.1), an absent matchPolicy as
// Exact, an absent timeout as the default of the version, and an absent selector
// selects nothing (S1.3).
//
// The hooks share memory with the object. The error says that the object is no
// registration, or cannot be read.
func Hooks(obj runtime.Object) ([]*Hook, error) {
	obj, err := typed(obj)
	if err != nil {
		return nil, err
	}
	switch c := obj.(type) {
	case *v1.MutatingWebhookConfiguration:
		return webhooks(Mutating, &c.ObjectMeta, c.Webhooks, 10), nil
	case *v1beta1.MutatingWebhookConfiguration:
		return webhooks(Mutating, &c.ObjectMeta, each(c.Webhooks, mutatingToV1), 30), nil
	case *v1.ValidatingWebhookConfiguration:
		return webhooks(Validating, &c.ObjectMeta, each(c.Webhooks, validatingAsMutating), 10), nil
	case *v1beta1.ValidatingWebhookConfiguration:
		return webhooks(Validating, &c.ObjectMeta, each(each(c.Webhooks, validatingToV1), validatingAsMutating), 30), nil
	case *v1alpha1.ExternalAdmissionHookConfiguration:
		return externalHooks(c), nil
	case *v1alpha1.InitializerConfiguration:
		return nil, nil
	}
	return nil, unknown(obj)
}

// validatingAsMutating gives a validating webhook the type that has every field.
func validatingAsMutating(w *v1.ValidatingWebhook) v1.MutatingWebhook {
	return v1.MutatingWebhook{
		Name:                    w.Name,
		ClientConfig:            w.ClientConfig,
		Rules:                   w.Rules,
		FailurePolicy:           w.FailurePolicy,
		MatchPolicy:             w.MatchPolicy,
		NamespaceSelector:       w.NamespaceSelector,
		ObjectSelector:          w.ObjectSelector,
		SideEffects:             w.SideEffects,
		TimeoutSeconds:          w.TimeoutSeconds,
		AdmissionReviewVersions: w.AdmissionReviewVersions,
		MatchConditions:         w.MatchConditions,
	}
}

func webhooks(source Source, meta *metav1.ObjectMeta, list []v1.MutatingWebhook, timeout int32) []*Hook {
	hooks := make([]*Hook, len(list))
	seen := make(map[string]int, len(list))
	for i := range list {
		w := &list[i]
		h := newHook(source, meta, i, w.Name, seen)
		h.ClientConfig = ClientConfig{URL: or(w.ClientConfig.URL, ""), CABundle: w.ClientConfig.CABundle}
		if s := w.ClientConfig.Service; s != nil {
			h.ClientConfig.Service = &Service{Namespace: s.Namespace, Name: s.Name, Path: or(s.Path, ""), Port: or(s.Port, 443)}
		}
		h.Rules = each(w.Rules, func(r *v1.RuleWithOperations) Rule {
			return Rule{
				Operations:  each(r.Operations, func(o *v1.OperationType) string { return string(*o) }),
				APIGroups:   r.APIGroups,
				APIVersions: r.APIVersions,
				Resources:   r.Resources,
				Scope:       string(or(r.Scope, v1.AllScopes)),
			}
		})
		h.FailurePolicy = FailurePolicy(or(w.FailurePolicy, v1.Fail))
		h.Equivalent = or(w.MatchPolicy, v1.Exact) == v1.Equivalent
		h.NamespaceSelector, h.ObjectSelector = w.NamespaceSelector, w.ObjectSelector
		h.MatchConditions = each(w.MatchConditions, func(c *v1.MatchCondition) MatchCondition { return MatchCondition(*c) })
		h.SideEffects = string(or(w.SideEffects, ""))
		h.Timeout = time.Duration(or(w.TimeoutSeconds, timeout)) * time.Second
		h.ReviewVersions = w.AdmissionReviewVersions
		h.MayReinvoke = or(w.ReinvocationPolicy, v1.NeverReinvocationPolicy) == v1.IfNeededReinvocationPolicy
		hooks[i] = h
	}
	return hooks
}

func externalHooks(c *v1alpha1.ExternalAdmissionHookConfiguration) []*Hook {
	hooks := make([]*Hook, len(c.ExternalAdmissionHooks))
	seen := make(map[string]int, len(hooks))
	for i := range c.ExternalAdmissionHooks {
		w := &c.ExternalAdmissionHooks[i]
		h := newHook(External, &c.ObjectMeta, i, w.Name, seen)
		h.ClientConfig = ClientConfig{
			Service: &Service{
				Namespace: w.ClientConfig.Service.Namespace,
				Name:      w.ClientConfig.Service.Name,
				Path:      or(w.ClientConfig.URLPath, ""),
			},
			CABundle: w.ClientConfig.CABundle,
		}
		h.Rules = each(w.Rules, func(r *v1alpha1.RuleWithOperations) Rule {
			return Rule{
				Operations:  each(r.Operations, func(o *v1alpha1.OperationType) string { return string(*o) }),
				APIGroups:   r.APIGroups,
				APIVersions: r.APIVersions,
				Resources:   r.Resources,
				Scope:       string(v1.AllScopes),
			}
		})
		h.FailurePolicy = FailurePolicy(or(w.FailurePolicy, v1alpha1.Ignore))
		h.NamespaceSelector, h.ObjectSelector = w.NamespaceSelector, &metav1.LabelSelector{}
		// It cannot be told of a dry run, nor say what it does (S12.16).
		h.SideEffects = string(v1.SideEffectClassUnknown)
		h.Timeout = 30 * time.Second
		h.ReviewVersions = []string{"v1alpha1"}
		hooks[i] = h
	}
	return hooks
}

// newHook makes a hook with what tells it apart. seen counts the names so far.
func newHook(source Source, meta *metav1.ObjectMeta, index int, name string, seen map[string]int) *Hook {
	seen[name]++
	return &Hook{
		Source:               source,
		Configuration:        meta.Name,
		ConfigurationUID:     meta.UID,
		ConfigurationVersion: meta.ResourceVersion,
		Index:                index,
		Name:                 name,
		Ordinal:              seen[name] - 1,
	}
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
