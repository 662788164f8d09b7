package auth

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// bootstrapWorkers is how many roles and bindings are compared at the same time.
const bootstrapWorkers = 8

// Bootstrap makes the default roles and bindings of a cluster, and adds missing rules and subjects
// to existing ones. Additions by an administrator stay. After an error Bootstrap still makes the
// other objects, and returns the first error.
func Bootstrap(ctx context.Context, client kubernetes.Interface) error {
	there, err := list(ctx, client)
	if err != nil {
		return err
	}
	if err := there.split(ctx, client); err != nil {
		return err
	}
	rbac, namespaces := client.RbacV1(), client.CoreV1().Namespaces()
	var tasks []func() error
	role := func(name string, owner reconciliation.RuleOwner, modifier reconciliation.RuleOwnerModifier) {
		known := knownRole{modifier, first("roles", there.roles, modifier.Get)}
		tasks = append(tasks, func() error {
			_, err := (&reconciliation.ReconcileRoleOptions{Role: owner, Client: known, Confirm: true}).Run()
			return wrap("role", name, err)
		})
	}
	binding := func(name string, b reconciliation.RoleBinding, modifier reconciliation.RoleBindingModifier) {
		known := knownBinding{modifier, first("rolebindings", there.bindings, modifier.Get)}
		tasks = append(tasks, func() error {
			_, err := (&reconciliation.ReconcileRoleBindingOptions{RoleBinding: b, Client: known, Confirm: true}).Run()
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

// objects are the roles and bindings that exist, by their namespaces and names.
type objects struct {
	roles    map[[2]string]reconciliation.RuleOwner
	bindings map[[2]string]reconciliation.RoleBinding
}

// list reads all roles and bindings in a few requests, instead of one request for each object.
func list(ctx context.Context, client kubernetes.Interface) (*objects, error) {
	o := &objects{roles: map[[2]string]reconciliation.RuleOwner{}, bindings: map[[2]string]reconciliation.RoleBinding{}}
	rbac := client.RbacV1()
	clusterRoles, err := rbac.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cluster roles: %w", err)
	}
	for _, r := range clusterRoles.Items {
		o.roles[[2]string{"", r.Name}] = reconciliation.ClusterRoleRuleOwner{ClusterRole: &r}
	}
	clusterRoleBindings, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cluster role bindings: %w", err)
	}
	for _, b := range clusterRoleBindings.Items {
		o.bindings[[2]string{"", b.Name}] = reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &b}
	}
	for namespace := range bootstrappolicy.NamespaceRoles() {
		roles, err := rbac.Roles(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("roles in namespace %s: %w", namespace, err)
		}
		for _, r := range roles.Items {
			o.roles[[2]string{namespace, r.Name}] = reconciliation.RoleRuleOwner{Role: &r}
		}
	}
	for namespace := range bootstrappolicy.NamespaceRoleBindings() {
		bindings, err := rbac.RoleBindings(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("role bindings in namespace %s: %w", namespace, err)
		}
		for _, b := range bindings.Items {
			o.bindings[[2]string{namespace, b.Name}] = reconciliation.RoleBindingAdapter{RoleBinding: &b}
		}
	}
	return o, nil
}

// split makes each binding that a release split off an older one, if the older one exists. The new
// binding gets the subjects, labels and annotations of the older one: an administrator who narrowed
// the older binding has narrowed both.
func (o *objects) split(ctx context.Context, client kubernetes.Interface) error {
	for older, newer := range bootstrappolicy.ClusterRoleBindingsToSplit() {
		key := [2]string{"", newer.Name}
		from, there := o.bindings[[2]string{"", older}]
		if _, done := o.bindings[key]; done || !there {
			continue
		}
		newer.Subjects, newer.Labels, newer.Annotations = from.GetSubjects(), from.GetLabels(), from.GetAnnotations()
		made, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &newer, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			// Another server was faster. The task that reconciles the binding reads it.
			continue
		}
		if err != nil {
			return wrap("role binding", newer.Name, err)
		}
		o.bindings[key] = reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: made}
	}
	return nil
}

// first returns a function that reads an object of a resource from a list at first. After that the
// list may be old, and it reads the object from the API.
func first[T any](resource string, there map[[2]string]T, get func(namespace, name string) (T, error)) func(namespace, name string) (T, error) {
	again := false
	return func(namespace, name string) (T, error) {
		if again {
			return get(namespace, name)
		}
		again = true
		found, ok := there[[2]string{namespace, name}]
		if !ok {
			return found, apierrors.NewNotFound(rbacv1.Resource(resource), name)
		}
		return found, nil
	}
}

// knownRole and knownBinding read an object by get.
type knownRole struct {
	reconciliation.RuleOwnerModifier
	get func(namespace, name string) (reconciliation.RuleOwner, error)
}

func (k knownRole) Get(namespace, name string) (reconciliation.RuleOwner, error) {
	return k.get(namespace, name)
}

type knownBinding struct {
	reconciliation.RoleBindingModifier
	get func(namespace, name string) (reconciliation.RoleBinding, error)
}

func (k knownBinding) Get(namespace, name string) (reconciliation.RoleBinding, error) {
	return k.get(namespace, name)
}

func wrap(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, name, err)
}
