package tokens

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gopkg.in/go-jose/go-jose.v2/jwt"
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
	// signerPatience is the timeout for the first keys of an external signer, and signerAnswer for
	// its metadata, as in kube-apiserver.
	signerPatience = 60 * time.Second
	signerAnswer   = 10 * time.Second
)

// Options configure how tokens are signed and verified. The zero value means the server's own key.
type Options struct {
	// Issuers are the accepted issuers of tokens; new tokens get the first one.
	Issuers []string
	// SigningKeyFile has the key that signs tokens, and KeyFiles more keys that verify them.
	SigningKeyFile string
	KeyFiles       []string
	// SigningEndpoint is the socket of an external signer, instead of keys.
	SigningEndpoint string
	// MaxExpiration is how long a token may be valid; 0 means no limit. KeepExpiration keeps
	// tokens of pods from being valid for longer than pods ask for.
	MaxExpiration  time.Duration
	KeepExpiration bool
	// JWKSURI is where other programs find the keys that verify tokens; empty means this server.
	JWKSURI string
}

// Tokens signs and verifies tokens of service accounts.
type Tokens struct {
	// Issuers are the accepted issuers of tokens; new tokens get the first one.
	Issuers   []string
	Generator serviceaccount.TokenGenerator
	Keys      serviceaccount.PublicKeysGetter
	// Kept signs the tokens that are kept in Secrets. It is nil for an external signer, which does
	// not sign such tokens.
	Kept serviceaccount.TokenGenerator
	// MaxExpiration is how long a token may be valid; 0 means no limit.
	MaxExpiration time.Duration
	// MaxExtended is the lifetime of a token that a pod requests for an hour; 0 means an hour.
	MaxExtended time.Duration

	// own are the server's own keys; nil when the options name other keys.
	own *keys
}

// Own are the server's own keys.
type Own struct {
	// Key signs, and Public verify: the public key of Key, and other keys whose tokens are still
	// valid.
	Key    crypto.Signer
	Public []any
}

// New reads the keys that the options name, or takes the server's own. An external signer is
// used until ctx ends.
func New(ctx context.Context, o Options, own Own) (*Tokens, error) {
	t := &Tokens{Issuers: o.Issuers, MaxExpiration: o.MaxExpiration}
	if !o.KeepExpiration {
		t.MaxExtended = serviceaccount.ExpirationExtensionSeconds * time.Second
	}
	if len(t.Issuers) == 0 {
		t.Issuers = []string{issuer}
	}
	if o.SigningEndpoint != "" {
		if err := t.signOutside(ctx, o.SigningEndpoint); err != nil {
			return nil, fmt.Errorf("--service-account-signing-endpoint %s: %w", o.SigningEndpoint, err)
		}
		return t, nil
	}
	k := &keys{}
	if o.SigningKeyFile != "" {
		given, err := keyutil.PrivateKeyFromFile(o.SigningKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
		}
		signer, ok := given.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("--service-account-signing-key-file: a %T cannot sign tokens", given)
		}
		own = Own{Key: signer, Public: []any{signer.Public()}}
	} else {
		t.own = k
	}
	for _, file := range o.KeyFiles {
		public, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file: %w", err)
		}
		k.further = append(k.further, public...)
	}
	if err := k.set(t.Issuers[0], own); err != nil {
		return nil, err
	}
	t.Keys, t.Generator, t.Kept = k, signer{k, false}, signer{k, true}
	return t, nil
}

// Replace replaces the server's own keys. It has no effect when the options name other keys.
func (t *Tokens) Replace(own Own) error {
	if t.own == nil {
		return nil
	}
	return t.own.set(t.Issuers[0], own)
}

// keys are keys that can be replaced.
type keys struct {
	// further verify in addition to the server's own.
	further []any
	now     atomic.Pointer[keysNow]

	mu        sync.Mutex
	listeners []serviceaccount.Listener
}

type keysNow struct {
	serviceaccount.PublicKeysGetter
	// issued and kept sign tokens of the API and tokens in Secrets.
	issued, kept serviceaccount.TokenGenerator
}

func (k *keys) set(issuer string, own Own) error {
	n := &keysNow{}
	var err error
	if n.PublicKeysGetter, err = serviceaccount.StaticPublicKeysGetter(append(slices.Clone(own.Public), k.further...)); err != nil {
		return fmt.Errorf("key of service account tokens: %w", err)
	}
	if n.issued, err = serviceaccount.JWTTokenGenerator(issuer, own.Key); err != nil {
		return fmt.Errorf("key of service account tokens: %w", err)
	}
	if n.kept, err = serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, own.Key); err != nil {
		return fmt.Errorf("key of service account tokens: %w", err)
	}
	k.now.Store(n)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.listeners {
		l.Enqueue()
	}
	return nil
}

// AddListener implements serviceaccount.PublicKeysGetter.
func (k *keys) AddListener(l serviceaccount.Listener) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listeners = append(k.listeners, l)
}

// GetCacheAgeMaxSeconds implements serviceaccount.PublicKeysGetter.
func (k *keys) GetCacheAgeMaxSeconds() int { return k.now.Load().GetCacheAgeMaxSeconds() }

// GetPublicKeys implements serviceaccount.PublicKeysGetter.
func (k *keys) GetPublicKeys(ctx context.Context, hint string) []serviceaccount.PublicKey {
	return k.now.Load().GetPublicKeys(ctx, hint)
}

// signer signs with the current key: tokens of the API, or tokens that are kept in Secrets.
type signer struct {
	keys *keys
	kept bool
}

// GenerateToken implements serviceaccount.TokenGenerator.
func (s signer) GenerateToken(ctx context.Context, claims *jwt.Claims, private any) (string, error) {
	n := s.keys.now.Load()
	if s.kept {
		return n.kept.GenerateToken(ctx, claims, private)
	}
	return n.issued.GenerateToken(ctx, claims, private)
}

// signOutside sets an external signer, and the keys that verify its tokens.
func (t *Tokens) signOutside(ctx context.Context, endpoint string) error {
	signer, keys, err := externaljwt.New(ctx, t.Issuers[0], endpoint, signerPatience, false)
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
	t.Generator, t.Keys = signer, keys
	most := time.Duration(metadata.MaxTokenExpirationSeconds) * time.Second
	if t.MaxExpiration == 0 {
		t.MaxExpiration = most
	} else if t.MaxExpiration > most {
		return fmt.Errorf("--service-account-max-token-expiration %s is longer than the %s of the signer", t.MaxExpiration, most)
	}
	t.MaxExtended = min(t.MaxExtended, most)
	return nil
}

// abstractSocket matches a socket of Linux that has no file.
var abstractSocket = regexp.MustCompile(`^@([a-zA-Z0-9_-]+\.)*[a-zA-Z0-9_-]+$`)

// Check returns an error if options exclude each other.
func (o Options) Check() error {
	const least, most = time.Hour, (1 << 32) * time.Second
	if d := o.MaxExpiration; d != 0 && (d < least || d > most) {
		return fmt.Errorf("--service-account-max-token-expiration %s must be between 1 hour and 2^32 seconds", d)
	}
	if endpoint := o.SigningEndpoint; endpoint != "" {
		if o.SigningKeyFile != "" || len(o.KeyFiles) > 0 {
			return errors.New("--service-account-signing-endpoint excludes --service-account-signing-key-file and --service-account-key-file: the external signer has the keys")
		}
		if strings.HasPrefix(endpoint, "@") && !abstractSocket.MatchString(endpoint) {
			return fmt.Errorf("--service-account-signing-endpoint %q is not the name of an abstract socket", endpoint)
		}
	}
	if o.JWKSURI == "" {
		return nil
	}
	u, err := url.Parse(o.JWKSURI)
	if err != nil {
		return fmt.Errorf("--service-account-jwks-uri: %w", err)
	}
	if u.Scheme != "https" {
		return fmt.Errorf("--service-account-jwks-uri %q must be an https URL", o.JWKSURI)
	}
	return nil
}

// Describe serves the documents with which other programs verify tokens of service accounts:
// /.well-known/openid-configuration and /openid/v1/jwks.
func (t *Tokens) Describe(jwksURI, address string, server *genericapiserver.GenericAPIServer) {
	metadata, err := serviceaccount.NewOpenIDMetadataProvider(t.Issuers[0], jwksURI, address, t.Keys)
	if err != nil {
		klog.ErrorS(err, "Not serving the discovery of the issuer of service account tokens: it needs an issuer that is an https URL", "issuer", t.Issuers[0])
		return
	}
	routes.NewOpenIDMetadataServer(metadata).Install(server.Handler.GoRestfulContainer)
}
