package server

import (
	"context"
	"crypto"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	authenticationvalidation "k8s.io/kubernetes/pkg/apis/authentication/validation"
	"k8s.io/kubernetes/pkg/routes"
	"k8s.io/kubernetes/pkg/serviceaccount"
	externaljwt "k8s.io/kubernetes/pkg/serviceaccount/externaljwt/plugin"
)

// issuer names this server in the tokens of service accounts, unless the options do.
const issuer = "https://kubernetes.default.svc.cluster.local"

const (
	// signerPatience is how long the first keys of an external signer may take, and
	// signerAnswer its first answer to anything else, as in kube-apiserver.
	signerPatience = 60 * time.Second
	signerAnswer   = 10 * time.Second
)

// tokens are what tokens of service accounts are signed and verified with.
type tokens struct {
	// issuers are those of tokens that are accepted; the first one is that of new tokens.
	issuers   []string
	generator serviceaccount.TokenGenerator
	keys      serviceaccount.PublicKeysGetter
	// key signs the tokens that are kept in Secrets; nil for an external signer, which
	// signs none of them.
	key any
	// maxExpiration is how long a token may be valid; 0 means any time.
	maxExpiration time.Duration
}

// tokens reads the keys that the options name, or takes the server's own. An external signer is
// used until ctx ends.
func (o *Options) tokens(ctx context.Context, own crypto.Signer) (*tokens, error) {
	t := &tokens{issuers: o.ServiceAccountIssuers, key: own}
	if len(t.issuers) == 0 {
		t.issuers = []string{issuer}
	}
	if o.ServiceAccountSigningEndpoint != "" {
		if err := t.signOutside(ctx, o.ServiceAccountSigningEndpoint); err != nil {
			return nil, fmt.Errorf("--service-account-signing-endpoint %s: %w", o.ServiceAccountSigningEndpoint, err)
		}
		return t, nil
	}
	if o.ServiceAccountSigningKeyFile != "" {
		var err error
		if t.key, err = keyutil.PrivateKeyFromFile(o.ServiceAccountSigningKeyFile); err != nil {
			return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
	}
	signer, ok := t.key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("--service-account-signing-key-file: a %T cannot sign tokens", t.key)
	}
	public := []any{signer.Public()}
	for _, file := range o.ServiceAccountKeyFiles {
		keys, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file: %w", err)
		}
		public = append(public, keys...)
	}
	var err error
	if t.keys, err = serviceaccount.StaticPublicKeysGetter(public); err != nil {
		return nil, fmt.Errorf("key of service account tokens: %w", err)
	}
	if t.generator, err = serviceaccount.JWTTokenGenerator(t.issuers[0], t.key); err != nil {
		return nil, fmt.Errorf("key of service account tokens: %w", err)
	}
	return t, nil
}

// signOutside lets an external signer sign tokens, and tell the keys that verify them.
func (t *tokens) signOutside(ctx context.Context, endpoint string) error {
	signer, keys, err := externaljwt.New(ctx, t.issuers[0], endpoint, signerPatience, false)
	if err != nil {
		return err
	}
	answer, cancel := context.WithTimeout(ctx, signerAnswer)
	defer cancel()
	metadata, err := signer.GetServiceMetadata(answer)
	if err != nil {
		return err
	}
	if metadata.MaxTokenExpirationSeconds < authenticationvalidation.MinTokenAgeSec {
		return fmt.Errorf("the signer's tokens are valid for %d s at most, and %d s are needed", metadata.MaxTokenExpirationSeconds, authenticationvalidation.MinTokenAgeSec)
	}
	t.generator, t.keys, t.key = signer, keys, nil
	t.maxExpiration = time.Duration(metadata.MaxTokenExpirationSeconds) * time.Second
	return nil
}

// abstractSocket is a socket of Linux that has no file.
var abstractSocket = regexp.MustCompile(`^@([a-zA-Z0-9_-]+\.)*[a-zA-Z0-9_-]+$`)

// checkTokens says which options of tokens of service accounts do not go together.
func (s *settings) checkTokens() error {
	if endpoint := s.ServiceAccountSigningEndpoint; endpoint != "" {
		if s.ServiceAccountSigningKeyFile != "" || len(s.ServiceAccountKeyFiles) > 0 {
			return errors.New("--service-account-signing-endpoint excludes --service-account-signing-key-file and --service-account-key-file: the external signer has the keys")
		}
		if strings.HasPrefix(endpoint, "@") && !abstractSocket.MatchString(endpoint) {
			return fmt.Errorf("--service-account-signing-endpoint %q is not the name of an abstract socket", endpoint)
		}
	}
	if s.ServiceAccountJWKSURI == "" {
		return nil
	}
	u, err := url.Parse(s.ServiceAccountJWKSURI)
	if err != nil {
		return fmt.Errorf("--service-account-jwks-uri: %w", err)
	}
	if u.Scheme != "https" {
		return fmt.Errorf("--service-account-jwks-uri %q must be an https URL", s.ServiceAccountJWKSURI)
	}
	return nil
}

// describeIssuer serves what others need to verify tokens of service accounts:
// /.well-known/openid-configuration and /openid/v1/jwks.
func (s *settings) describeIssuer(t *tokens, address string, server *genericapiserver.GenericAPIServer) {
	metadata, err := serviceaccount.NewOpenIDMetadataProvider(t.issuers[0], s.ServiceAccountJWKSURI, address, t.keys)
	if err != nil {
		klog.ErrorS(err, "Not serving the discovery of the issuer of service account tokens: it needs an issuer that is an https URL", "issuer", t.issuers[0])
		return
	}
	routes.NewOpenIDMetadataServer(metadata).Install(server.Handler.GoRestfulContainer)
}

// proxyTransport reaches pods and services, whose certificates nobody can verify: they are
// dialed by address.
func (s *settings) proxyTransport() *http.Transport {
	return utilnet.SetTransportDefaults(&http.Transport{DialContext: s.DialWebhook, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})
}
