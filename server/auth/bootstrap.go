package auth

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// bootstrapWorkers is how many roles are looked at at once.
const bootstrapWorkers = 8

// Bootstrap makes the roles and bindings that every cluster has, and adds what
// is missing to those that are there. An administrator's additions stay. The
// error is the first; the objects after it are made all the same.
func Bootstrap(ctx context.Context, client kubernetes.Interface) error {
	rbac, namespaces := client.RbacV1(), client.CoreV1().Namespaces()
	var tasks []func() error
	role := func(name string, owner reconciliation.RuleOwner, modifier reconciliation.RuleOwnerModifier) {
		tasks = append(tasks, func() error {
			_, err := (&reconciliation.ReconcileRoleOptions{Role: owner, Client: modifier, Confirm: true}).Run()
			return wrap("role", name, err)
		})
	}
	binding := func(name string, b reconciliation.RoleBinding, modifier reconciliation.RoleBindingModifier) {
		tasks = append(tasks, func() error {
			_, err := (&reconciliation.ReconcileRoleBindingOptions{RoleBinding: b, Client: modifier, Confirm: true}).Run()
			return wrap("role binding", name, err)
		})
	}
	for _, r := range append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...) {
		role(r.Name, reconciliation.ClusterRoleRuleOwner{ClusterRole: &r}, reconciliation.ClusterRoleModifier{Client: rbac.ClusterRoles()})
	}
	for _, b := range append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...) {
		binding(b.Name, reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &b},
			reconciliation.ClusterRoleBindingClientAdapter{Client: rbac.ClusterRoleBindings()})
	}
	for _, roles := range bootstrappolicy.NamespaceRoles() {
		for _, r := range roles {
			role(r.Name, reconciliation.RoleRuleOwner{Role: &r}, reconciliation.RoleModifier{Client: rbac, NamespaceClient: namespaces})
		}
	}
	for _, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, b := range bindings {
			binding(b.Name, reconciliation.RoleBindingAdapter{RoleBinding: &b},
				reconciliation.RoleBindingClientAdapter{Client: rbac, NamespaceClient: namespaces})
		}
	}
	var group errgroup.Group
	group.SetLimit(bootstrapWorkers)
	for _, task := range tasks {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			// Another replica may be doing the same.
			return retry.OnError(retry.DefaultBackoff, func(err error) bool {
				return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
			}, task)
		})
	}
	return group.Wait()
}

func wrap(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, name, err)
}
