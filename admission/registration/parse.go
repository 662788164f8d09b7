package registration

import (
	"time"

	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration/v1alpha1"
)

// Entries returns the entries of an object, in the order of the object. The object has one of the
// kinds of Sources, in any of their versions, typed or unstructured.
//
// The object should have its defaults. Without them, an absent failure policy counts as Fail, or as
// Ignore in v1alpha1 (S7.1), an absent matchPolicy as Exact, an absent timeout as the default of
// the version, and an absent selector selects nothing (S1.3).
//
// The entries share memory with the object. It is an error if the object has another kind, or
// cannot be read.
func Entries(obj runtime.Object) ([]*Entry, error) {
	obj, err := typed(obj)
	if err != nil {
		return nil, err
	}
	source, ok := SourceOf(obj)
	if !ok {
		return nil, unknown(obj)
	}
	return sources[source].parse(obj), nil
}

func parseMutating(obj runtime.Object) []*Entry {
	c, _ := asWebhooks(obj)
	return inOrder(c.meta, c.entries(Mutating))
}

func parseValidating(obj runtime.Object) []*Entry {
	c, _ := asWebhooks(obj)
	return c.entries(Validating)
}

// inOrder sets the order of an object's entries from its annotations.
func inOrder(meta *metav1.ObjectMeta, entries []*Entry) []*Entry {
	if order := orderOf(meta); order != nil {
		for _, e := range entries {
			e.Order = order
		}
	}
	return entries
}

// validatingAsMutating converts a validating webhook to a mutating one, whose type has every field.
// It avoids recast, which uses reflection: a server may have thousands of webhooks.
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

// entries returns the entries of the webhooks.
func (c *webhookList) entries(source Source) []*Entry {
	timeout := int32(timeoutV1)
	if c.beta {
		timeout = timeoutV1beta1
	}
	entries := make([]*Entry, len(c.webhooks))
	seen := make(map[string]int, len(c.webhooks))
	for i := range c.webhooks {
		w := &c.webhooks[i]
		h := newEntry(source, c.meta, i, w.Name, seen)
		h.Webhook = &Webhook{}
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
		entries[i] = h
	}
	return entries
}

func parseExternal(obj runtime.Object) []*Entry {
	c := obj.(*v1alpha1.ExternalAdmissionHookConfiguration)
	entries := make([]*Entry, len(c.ExternalAdmissionHooks))
	seen := make(map[string]int, len(entries))
	for i := range c.ExternalAdmissionHooks {
		w := &c.ExternalAdmissionHooks[i]
		h := newEntry(External, &c.ObjectMeta, i, w.Name, seen)
		h.Webhook = &Webhook{}
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
		// The v1alpha1 review has no field for a dry run, and the hook cannot declare side effects
		// (S12.16).
		h.SideEffects = string(v1.SideEffectClassUnknown)
		h.Timeout = timeoutExternal * time.Second
		h.ReviewVersions = []string{"v1alpha1"}
		entries[i] = h
	}
	return entries
}

// newEntry returns an entry with its Origin. seen counts the entries of each name so far.
func newEntry(source Source, meta *metav1.ObjectMeta, index int, name string, seen map[string]int) *Entry {
	seen[name]++
	e := &Entry{Match: &Match{}, Origin: Origin{
		Source:               source,
		Configuration:        meta.Name,
		ConfigurationUID:     meta.UID,
		ConfigurationVersion: meta.ResourceVersion,
		Index:                index,
		Name:                 name,
		Ordinal:              seen[name] - 1,
	}}
	if source != Initializing {
		e.Enforcement = enforcementOf(meta, name)
	}
	return e
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
