package server

import (
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/auth"
)

// optionFile is a file that a flag names.
type optionFile struct{ flag, path string }

// accessFiles lists the files that say who callers are and what they may do.
func (s *settings) accessFiles() []optionFile {
	files := []optionFile{
		{"--authentication-config", s.Authentication.AuthenticationConfigFile},
		{"--authorization-config", s.Authorization.AuthorizationConfigurationFile},
		{"--authorization-webhook-config-file", s.Authorization.WebhookConfigFile},
		{"--authorization-policy-file", s.Authorization.PolicyFile},
	}
	if o := s.Authentication.WebHook; o != nil {
		files = append(files, optionFile{"--authentication-token-webhook-config-file", o.ConfigFile})
	}
	if o := s.Authentication.OIDC; o != nil {
		files = append(files, optionFile{"--oidc-ca-file", o.CAFile})
	}
	return files
}

// checkAuthentication says in upstream's words what is wrong with the options for tokens of
// others.
func (s *settings) checkAuthentication() error {
	o := s.Authentication
	if errs := auth.Others(o).Validate(); len(errs) > 0 {
		return fmt.Errorf("--%w", errs[0])
	}
	if !auth.KnowsOthers(o) {
		return nil
	}
	if _, err := auth.Others(o).ToAuthenticationConfig(); err != nil {
		if o.AuthenticationConfigFile != "" {
			return fmt.Errorf("--authentication-config %s: %w", o.AuthenticationConfigFile, err)
		}
		return fmt.Errorf("--oidc-*: %w", err)
	}
	return nil
}

// parseAuthorization says in upstream's words what is wrong with the options of authorization.
func (s *settings) parseAuthorization() error {
	o := *s.Authorization
	if len(o.Modes) == 0 {
		o.Modes = Defaults().Authorization.Modes
	}
	s.Authorization = &o
	file := o.AuthorizationConfigurationFile
	if errs := o.Validate(); len(errs) > 0 {
		if file != "" {
			return fmt.Errorf("--authorization-config %s: %w", file, errs[0])
		}
		return fmt.Errorf("--%w", errs[0])
	}
	config, err := o.ToAuthorizationConfig(nil)
	if err != nil {
		return fmt.Errorf("--authorization-config %s: %w", file, err)
	}
	for _, a := range config.AuthorizationConfiguration.Authorizers {
		s.modes = append(s.modes, string(a.Type))
	}
	return nil
}

// authorizes reports whether an authorizer of a type decides what callers may do.
func (s *settings) authorizes(mode string) bool { return slices.Contains(s.modes, mode) }

// audiences are those of tokens for this server.
func (s *settings) audiences(t *tokens) authenticator.Audiences {
	if len(s.Authentication.APIAudiences) > 0 {
		return s.Authentication.APIAudiences
	}
	return t.issuers
}
