package auth

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	admissionlisters "k8s.io/client-go/listers/admissionregistration/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// openPaths are the paths that every client may read, also without credentials.
var openPaths = []string{"/livez", "/readyz", "/healthz", "/version"}

// AuthenticationOptions configure the credentials that the server trusts.
type AuthenticationOptions struct {
	// ClientCA verifies client certificates.
	ClientCA dynamiccertificates.CAContentProvider
	// RequestHeader names the proxies that may name the user of a request in headers; nil for none.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
	// TokenFile is a CSV file of tokens; empty for none.
	TokenFile string
	// LoopbackToken is the token of the server's own requests.
	LoopbackToken string
	// Issuers, Keys and Audiences verify tokens of service accounts; Client reads the objects that
	// the tokens are bound to.
	Issuers   []string
	Keys      serviceaccount.PublicKeysGetter
	Audiences authenticator.Audiences
	Client    kubernetes.Interface
	// Others configures further issuers of accepted tokens; nil for none. ServerID names this
	// server in metrics.
	Others   *options.BuiltInAuthenticationOptions
	ServerID string
	// Anonymous says whether requests without credentials are anonymous, at all paths. nil means
	// the value of the authentication configuration or, without a configuration, only the paths of
	// health and version.
	Anonymous *bool
}

// NewAuthenticator returns the authenticator of requests. It accepts proxies, client certificates,
// tokens of the token file, tokens of service accounts and tokens of others. Requests for health
// and version may be anonymous. An error means that a file cannot be read. Until ctx ends, the
// authenticator follows the keys of issuers and the file of the authentication configuration.
func NewAuthenticator(ctx context.Context, o AuthenticationOptions) (authenticator.Request, error) {
	tokens := []authenticator.Token{
		authenticator.WrapAudienceAgnosticToken(o.Audiences, tokenfile.New(map[string]*user.DefaultInfo{
			o.LoopbackToken: {Name: user.APIServerUser, UID: "loopback", Groups: []string{user.SystemPrivilegedGroup}},
		})),
	}
	if o.TokenFile != "" {
		file, err := tokenfile.NewCSV(o.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-auth-file: %w", err)
		}
		tokens = append(tokens, authenticator.WrapAudienceAgnosticToken(o.Audiences, file))
	}
	tokens = append(tokens, serviceaccount.JWTTokenAuthenticator(o.Issuers, o.Keys, o.Audiences,
		serviceaccount.NewValidator(boundObjects(o.Client))))
	// Tokens that are kept in Secrets.
	kept, err := serviceaccount.NewLegacyValidator(true, boundObjects(o.Client), o.Client.CoreV1())
	if err != nil {
		return nil, fmt.Errorf("tokens of service accounts: %w", err)
	}
	tokens = append(tokens, serviceaccount.JWTTokenAuthenticator([]string{serviceaccount.LegacyIssuer}, o.Keys, o.Audiences, kept))
	token := tokenunion.New(tokens...)

	known := union.New(
		rememberVerified(x509.NewDynamic(o.ClientCA.VerifyOptions, x509.CommonNameUserConversion), o.ClientCA),
		bearertoken.New(token),
		websocket.NewProtocolAuthenticator(token),
	)
	unknown := openToAnybody()
	if KnowsOthers(o.Others) {
		others, configured, err := newOthers(ctx, o)
		if err != nil {
			return nil, err
		}
		known = union.New(known, others)
		if configured != nil {
			unknown = configured
		}
	}
	if o.RequestHeader != nil {
		// A proxy may also be a user by its client certificate. The user that it names counts.
		known = union.New(newProxies(o.RequestHeader), known)
	}
	if o.Anonymous != nil {
		unknown = &apiserver.AnonymousAuthConfig{Enabled: *o.Anonymous}
	}
	if known = group.NewAuthenticatedGroupAdder(known); !unknown.Enabled {
		return known, nil
	}
	return union.NewFailOnError(known, anonymous.NewAuthenticator(unknown.Conditions)), nil
}

// openToAnybody returns a configuration that lets anonymous clients read the open paths.
func openToAnybody() *apiserver.AnonymousAuthConfig {
	config := &apiserver.AnonymousAuthConfig{Enabled: true}
	for _, path := range openPaths {
		config.Conditions = append(config.Conditions, apiserver.AnonymousAuthCondition{Path: path})
	}
	return config
}

// boundObjects reads the objects that a service account's token is bound to: a token is no longer
// accepted when its object is deleted. Upstream's getter reads informers first, and here these are
// empty, so that each read goes to the API.
func boundObjects(client kubernetes.Interface) serviceaccount.ServiceAccountTokenGetter {
	none := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	return serviceaccountcontroller.NewGetterFromClient(client,
		corelisters.NewSecretLister(none), corelisters.NewServiceAccountLister(none), corelisters.NewPodLister(none), corelisters.NewNodeLister(none),
		admissionlisters.NewValidatingWebhookConfigurationLister(none), admissionlisters.NewMutatingWebhookConfigurationLister(none))
}
