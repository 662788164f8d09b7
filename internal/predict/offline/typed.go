package offline

import (
	"cmp"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// typed returns the validating policies, and the definitions of the custom resources that they are
// about, as they are needed to check the types of expressions.
func (s *survey) typed(objects []runtime.Object) []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	groups := map[string]bool{}
	for _, obj := range objects {
		if kindOf(obj) != registration.ValidatingPolicyKind || snapshot.IsStatic(obj) {
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			continue
		}
		// All versions have the same fields.
		u := bare(content, admissionregistrationv1.SchemeGroupVersion.WithKind(registration.ValidatingPolicyKind))
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		if !into(u, policy) {
			continue
		}
		if c := policy.Spec.MatchConstraints; c != nil {
			for i := range c.ResourceRules {
				for _, group := range c.ResourceRules[i].APIGroups {
					groups[group] = true
				}
			}
		}
		if p := policy.Spec.ParamKind; p != nil {
			if gv, err := schema.ParseGroupVersion(p.APIVersion); err == nil {
				groups[gv.Group] = true
			}
		}
		list = append(list, u)
	}
	for _, u := range s.definitions {
		if group, _, _ := unstructured.NestedString(u.Object, "spec", "group"); len(list) > 0 && groups[group] {
			list = append(list, bare(u.Object, u.GroupVersionKind()))
		}
	}
	slices.SortFunc(list, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return list
}

// bare is an object without what a server adds.
func bare(content map[string]any, kind schema.GroupVersionKind) *unstructured.Unstructured {
	from := &unstructured.Unstructured{Object: content}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": content["spec"]}}
	u.SetGroupVersionKind(kind)
	u.SetName(from.GetName())
	u.SetAnnotations(from.GetAnnotations())
	return u
}
