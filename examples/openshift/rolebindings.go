package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

var roleBindingRestrictions = schema.GroupVersionResource{Group: "authorization.openshift.io", Version: "v1", Resource: "rolebindingrestrictions"}

// restriction has the used fields of a RoleBindingRestriction. Each restriction allows subjects of the kinds in
// its spec.
type restriction struct {
	Spec struct {
		User *struct {
			Users []string `json:"users"`
		} `json:"userrestriction"`
		Group *struct {
			Groups []string `json:"groups"`
		} `json:"grouprestriction"`
		Account *struct {
			Namespaces []string `json:"namespaces"`
			Accounts   []struct {
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"serviceaccounts"`
		} `json:"serviceaccountrestriction"`
	} `json:"spec"`
}

// allows reports whether a role may be bound to a subject.
func (r *restriction) allows(s *rbacv1.Subject, namespace string) bool {
	switch s.Kind {
	case rbacv1.UserKind:
		return r.Spec.User != nil && slices.Contains(r.Spec.User.Users, s.Name)
	case rbacv1.GroupKind:
		return r.Spec.Group != nil && slices.Contains(r.Spec.Group.Groups, s.Name)
	}
	if r.Spec.Account == nil {
		return false
	}
	if slices.Contains(r.Spec.Account.Namespaces, s.Namespace) {
		return true
	}
	for _, a := range r.Spec.Account.Accounts {
		if of := a.Namespace; a.Name == s.Name && (of == s.Namespace || of == "" && s.Namespace == namespace) {
			return true
		}
	}
	return false
}

// roleBindings is a webhook for role bindings: in a namespace with restrictions, one of them must allow each
// new subject.
type roleBindings struct{ client dynamic.Interface }

// Handle implements admission.Handler.
func (b roleBindings) Handle(ctx context.Context, req admission.Request) admission.Response {
	list, err := b.client.Resource(roleBindingRestrictions).Namespace(req.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("listing the restrictions: %w", err))
	}
	if len(list.Items) == 0 {
		return admission.Allowed("")
	}
	restrictions := make([]restriction, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &restrictions[i]); err != nil {
			return admission.Errored(http.StatusInternalServerError, fmt.Errorf("restriction %s: %w", list.Items[i].GetName(), err))
		}
	}
	var binding, old rbacv1.RoleBinding
	if err := json.Unmarshal(req.Object.Raw, &binding); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if len(req.OldObject.Raw) > 0 {
		if err := json.Unmarshal(req.OldObject.Raw, &old); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
	}
	var rejected []string
	for _, s := range binding.Subjects {
		// Subjects that the binding already has are allowed.
		if !slices.Contains(old.Subjects, s) && !slices.ContainsFunc(restrictions, func(r restriction) bool { return r.allows(&s, req.Namespace) }) {
			rejected = append(rejected, s.Kind+" "+s.Name)
		}
	}
	if len(rejected) > 0 {
		return admission.Denied("the project lets no role be bound to " + strings.Join(rejected, ", "))
	}
	return admission.Allowed("")
}
