package auth

import (
	"context"
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
	a, err := union.New(append(chain, union.NamedAuthorizer{AuthorizerName: mode, Authorizer: sameDocument{r}})...)
	return a, r, err
}

// sameDocument lets who may read OpenAPI v2 read it where kubectl up to 1.9 does.
// The role for discovery named that path until Kubernetes 1.14.
type sameDocument struct{ authorizer.Authorizer }

// Authorize implements authorizer.Authorizer.
func (s sameDocument) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return s.Authorizer.Authorize(ctx, atCurrentPath(a))
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (s sameDocument) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return s.Authorizer.ConditionsAwareAuthorize(ctx, atCurrentPath(a))
}

func atCurrentPath(a authorizer.Attributes) authorizer.Attributes {
	if !a.IsResourceRequest() && a.GetPath() == "/swagger-2.0.0.pb-v1" {
		return moved{a}
	}
	return a
}

// moved is a request for OpenAPI v2.
type moved struct{ authorizer.Attributes }

// GetPath implements authorizer.Attributes.
func (moved) GetPath() string { return "/openapi/v2" }
