package auth

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/client-go/informers"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
)

// NewAuthorizer returns the authorizer of requests. Members of system:masters may do everything,
// and every user may read health and version. The options decide about all other requests. RBAC
// and Node read their objects through the informers. The configuration file is followed until ctx
// ends.
func NewAuthorizer(ctx context.Context, o *options.BuiltInAuthorizationOptions, informers informers.SharedInformerFactory, serverID string) (authorizer.Authorizer, authorizer.RuleResolver, error) {
	open, err := path.NewAuthorizer(append([]string{"/livez/*", "/readyz/*", "/healthz/*"}, openPaths...))
	if err != nil {
		return nil, nil, err
	}
	decide, rules, err := chosen(ctx, o, informers, serverID)
	if err != nil {
		return nil, nil, fmt.Errorf("authorization: %w", err)
	}
	a, err := union.New(
		union.NamedAuthorizer{AuthorizerName: "masters", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		union.NamedAuthorizer{AuthorizerName: "open-paths", Authorizer: open},
		union.NamedAuthorizer{AuthorizerName: "rbac", Authorizer: sameDocument{decide}},
	)
	return a, rules, err
}

// chosen returns the configured authorizer. RBAC alone and AlwaysAllow alone need none of
// upstream's preparations for files and webhooks.
func chosen(ctx context.Context, o *options.BuiltInAuthorizationOptions, informers informers.SharedInformerFactory, serverID string) (authorizer.Authorizer, authorizer.RuleResolver, error) {
	if o.AuthorizationConfigurationFile == "" && len(o.Modes) == 1 {
		switch o.Modes[0] {
		case modes.ModeAlwaysAllow:
			all := authorizerfactory.NewAlwaysAllowAuthorizer()
			return all, all, nil
		case modes.ModeRBAC:
			rules := informers.Rbac().V1()
			r := rbac.New(
				&rbac.RoleGetter{Lister: rules.Roles().Lister()},
				&rbac.RoleBindingLister{Lister: rules.RoleBindings().Lister()},
				&rbac.ClusterRoleGetter{Lister: rules.ClusterRoles().Lister()},
				&rbac.ClusterRoleBindingLister{Lister: rules.ClusterRoleBindings().Lister()},
			)
			return r, r, nil
		}
	}
	config, err := o.ToAuthorizationConfig(informers)
	if err != nil {
		return nil, nil, err
	}
	return config.New(ctx, serverID)
}

// sameDocument allows a user that may read OpenAPI v2 to read it also at the path of kubectl up to
// 1.9. The role for discovery named that path until Kubernetes 1.14.
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

// moved is a request with the path of OpenAPI v2.
type moved struct{ authorizer.Attributes }

// GetPath implements authorizer.Attributes.
func (moved) GetPath() string { return "/openapi/v2" }

// Modes returns the types of the authorizers that options of authorization name. If the options
// are wrong, it returns upstream's error.
func Modes(o *options.BuiltInAuthorizationOptions) ([]string, error) {
	file := o.AuthorizationConfigurationFile
	if errs := o.Validate(); len(errs) > 0 {
		if file != "" {
			return nil, fmt.Errorf("--authorization-config %s: %w", file, errs[0])
		}
		return nil, fmt.Errorf("--%w", errs[0])
	}
	config, err := o.ToAuthorizationConfig(nil)
	if err != nil {
		return nil, fmt.Errorf("--authorization-config %s: %w", file, err)
	}
	var types []string
	for _, a := range config.AuthorizationConfiguration.Authorizers {
		types = append(types, string(a.Type))
	}
	return types, nil
}
