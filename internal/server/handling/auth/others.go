package auth

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	openapi "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// KnowsOthers reports whether options name further issuers whose tokens the server accepts.
func KnowsOthers(o *options.BuiltInAuthenticationOptions) bool {
	return o != nil && (o.AuthenticationConfigFile != "" || (o.OIDC != nil && o.OIDC.IssuerURL != "") || (o.WebHook != nil && o.WebHook.ConfigFile != ""))
}

// Others returns the part of options that names further issuers whose tokens the server accepts.
func Others(o *options.BuiltInAuthenticationOptions) *options.BuiltInAuthenticationOptions {
	return &options.BuiltInAuthenticationOptions{
		APIAudiences: o.APIAudiences, OIDC: o.OIDC, WebHook: o.WebHook, AuthenticationConfigFile: o.AuthenticationConfigFile,
		TokenSuccessCacheTTL: o.TokenSuccessCacheTTL, TokenFailureCacheTTL: o.TokenFailureCacheTTL,
	}
}

// CheckOthers returns upstream's error about the options for tokens of others, or nil.
func CheckOthers(o *options.BuiltInAuthenticationOptions) error {
	if errs := Others(o).Validate(); len(errs) > 0 {
		return fmt.Errorf("--%w", errs[0])
	}
	if !KnowsOthers(o) {
		return nil
	}
	if _, err := Others(o).ToAuthenticationConfig(); err != nil {
		if o.AuthenticationConfigFile != "" {
			return fmt.Errorf("--authentication-config %s: %w", o.AuthenticationConfigFile, err)
		}
		return fmt.Errorf("--oidc-*: %w", err)
	}
	return nil
}

// newOthers returns upstream's authenticator of tokens of OpenID Connect and of tokens that a
// webhook accepts. It also returns the configuration of anonymous requests, if there is one.
func newOthers(ctx context.Context, o AuthenticationOptions) (authenticator.Request, *apiserver.AnonymousAuthConfig, error) {
	others := Others(o.Others)
	others.APIAudiences = o.Audiences
	others.ServiceAccounts = &options.ServiceAccountAuthenticationOptions{
		// Only these issuers issue tokens of service accounts.
		Issuers: o.Issuers,
		// NewAuthenticator checks the tokens of this server: upstream's code need not watch their
		// objects.
		OptionalTokenGetter: func(informers.SharedInformerFactory) serviceaccount.ServiceAccountTokenGetter {
			return boundObjects(o.Client)
		},
	}
	config, err := others.ToAuthenticationConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("authentication: %w", err)
	}
	var made genericapiserver.AuthenticationInfo
	if err := others.ApplyTo(ctx, &made, nil, nil, &openapi.Config{}, nil, o.Client, nil, o.ServerID); err != nil {
		return nil, nil, fmt.Errorf("authentication: %w", err)
	}
	if config.AuthenticationConfig == nil {
		return made.Authenticator, nil, nil
	}
	return made.Authenticator, config.AuthenticationConfig.Anonymous, nil
}
