package auth

import (
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
)

// Modes are the values of --authorization-mode.
var Modes = []string{"RBAC", "AlwaysAllow"}

// NewAuthorizer returns what decides what a caller may do. Members of
// system:masters may do everything, and anybody who is let in may read health
// and version; the rest is for the mode. RBAC reads its rules through the
// informers.
func NewAuthorizer(mode string, informers informers.SharedInformerFactory) (authorizer.Authorizer, authorizer.RuleResolver, error) {
	if !slices.Contains(Modes, mode) {
		return nil, nil, fmt.Errorf("--authorization-mode %q is not one of %v", mode, Modes)
	}
	open, err := path.NewAuthorizer(append([]string{"/livez/*", "/readyz/*", "/healthz/*"}, openPaths...))
	if err != nil {
		return nil, nil, err
	}
	chain := []union.NamedAuthorizer{
		{AuthorizerName: "masters", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		{AuthorizerName: "open-paths", Authorizer: open},
	}
	if mode == "AlwaysAllow" {
		all := authorizerfactory.NewAlwaysAllowAuthorizer()
		a, err := union.New(append(chain, union.NamedAuthorizer{AuthorizerName: mode, Authorizer: all})...)
		return a, all, err
	}
	rules := informers.Rbac().V1()
	r := rbac.New(
		&rbac.RoleGetter{Lister: rules.Roles().Lister()},
		&rbac.RoleBindingLister{Lister: rules.RoleBindings().Lister()},
		&rbac.ClusterRoleGetter{Lister: rules.ClusterRoles().Lister()},
		&rbac.ClusterRoleBindingLister{Lister: rules.ClusterRoleBindings().Lister()},
	)
	a, err := union.New(append(chain, union.NamedAuthorizer{AuthorizerName: mode, Authorizer: r})...)
	return a, r, err
}
