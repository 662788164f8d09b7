package access

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// openID is an OpenID Connect issuer.
type openID struct {
	*httptest.Server
	key *rsa.PrivateKey
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func newOpenID(t *testing.T) *openID {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	o := &openID{key: key}
	o.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/.well-known/openid-configuration":
			harness.WriteJSON(w, http.StatusOK, map[string]any{"issuer": o.URL, "jwks_uri": o.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"}})
		case "/keys":
			harness.WriteJSON(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{
				"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one",
				"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()), "e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
			}}})
		default:
			http.NotFound(w, req)
		}
	}))
	t.Cleanup(o.Close)
	return o
}

// token returns a token with the given claims, which are added to the usual claims or replace them.
func (o *openID) token(t *testing.T, claims map[string]any) string {
	all := map[string]any{"iss": o.URL, "aud": "gatehouse", "sub": "jane", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix()}
	for name, value := range claims {
		all[name] = value
	}
	text := encode(map[string]any{"alg": "RS256", "typ": "JWT", "kid": "one"}) + "." + encode(all)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, o.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// certificate returns the PEM certificate of a server.
func certificate(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// fileOf writes a file in a directory of the test and returns its path.
func fileOf(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// askedThrough writes a kubeconfig for an authentication or authorization webhook.
func askedThrough(t *testing.T, s *httptest.Server) string {
	t.Helper()
	return fileOf(t, "kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%q}}],
		"users":[{"name":"u"}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"current-context":"c"}`,
		s.URL, base64.StdEncoding.EncodeToString([]byte(certificate(s)))))
}

// eventuallyIs waits until a token authenticates as a user, and returns the SelfSubjectReview.
func eventuallyIs(t *testing.T, s *harness.Server, token, user string) *harness.Response {
	t.Helper()
	var who *harness.Response
	harness.Eventually(t, "the bearer is "+user, func() error {
		who = s.HTTP(t, s.WithToken(token)).Do("POST", authenticationPath+"selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
		if name := who.Text("status", "userInfo", "username"); name != user {
			return fmt.Errorf("%d %s", who.Code, who.Raw)
		}
		return nil
	})
	return who
}

// One server has the flags of several kinds of credentials and of the node authorizer, each of which works beside the
// others.
func TestCredentials(t *testing.T) {
	t.Parallel()
	all := []struct {
		name string
		// flags returns the flags of serve, and the test of a server with them.
		flags func(*testing.T) ([]string, func(*testing.T, *harness.Server))
	}{
		{"OpenID Connect", openIDConnect}, {"a webhook for tokens", tokensThatAWebhookKnows}, {"nodes", nodesMayReadWhatTheirPodsUse},
		{"keys elsewhere", keysElsewhere}, {"kept tokens", keptTokensAreSignedByTheGivenKey}, {"a CA file", clientCAFile},
	}
	var flags []string
	tests := map[string]func(*testing.T, *harness.Server){}
	for _, c := range all {
		more, test := c.flags(t)
		flags, tests[c.name] = append(flags, more...), test
	}
	s := harness.Start(t, flags...)
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) { tests[c.name](t, s) })
	}
}

func openIDConnect(t *testing.T) ([]string, func(*testing.T, *harness.Server)) {
	issuer, other := newOpenID(t), newOpenID(t)
	return []string{"--oidc-issuer-url", issuer.URL, "--oidc-client-id", "gatehouse", "--oidc-groups-claim", "groups", "--oidc-groups-prefix", "oidc:",
			"--oidc-ca-file", fileOf(t, "ca.crt", certificate(issuer.Server))},
		func(t *testing.T, s *harness.Server) { tokensOfOpenIDConnect(t, s, issuer, other) }
}

func tokensOfOpenIDConnect(t *testing.T, s *harness.Server, issuer, other *openID) {
	t.Helper()
	who := eventuallyIs(t, s, issuer.token(t, map[string]any{"groups": []string{"ops"}}), issuer.URL+"#jane")
	want(t, "groups", who.At("status", "userInfo", "groups"), any([]any{"oidc:ops", "system:authenticated"}))
	for name, token := range map[string]string{
		"for somebody else": issuer.token(t, map[string]any{"aud": "other"}),
		"expired":           issuer.token(t, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
		"of a stranger":     other.token(t, map[string]any{"iss": issuer.URL}),
	} {
		if r := s.HTTP(t, s.WithToken(token)).Do("GET", "/version", ""); r.Code != http.StatusUnauthorized {
			t.Errorf("a token %s: %d %s", name, r.Code, r.Raw)
		}
	}
	// Authentication and authorization without the webhook continue to work.
	s.HTTP(t, nil).Get("/api/v1/namespaces/default")
	s.HTTP(t, s.WithToken("")).Get("/readyz")
}

func TestAuthenticationConfiguration(t *testing.T) {
	t.Parallel()
	issuer := newOpenID(t)
	configuration := func(prefix string) string {
		return toJSON(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous: {enabled: true, conditions: [{path: /readyz}]}
jwt:
- issuer: {url: %q, audiences: [gatehouse], certificateAuthority: %q}
  claimValidationRules:
  - {expression: "claims.team != 'guests'", message: guests stay outside}
  claimMappings:
    username: {expression: "'%s:' + claims.sub"}
    groups: {expression: "[claims.team]"}
`, issuer.URL, certificate(issuer.Server), prefix)
	}
	file := fileOf(t, "authentication.json", configuration("first"))
	s := harness.Start(t, "--authentication-config", file)
	jane := issuer.token(t, map[string]any{"team": "ops"})
	who := eventuallyIs(t, s, jane, "first:jane")
	want(t, "groups", who.At("status", "userInfo", "groups"), any([]any{"ops", "system:authenticated"}))
	if r := s.HTTP(t, s.WithToken(issuer.token(t, map[string]any{"team": "guests"}))).Do("GET", "/readyz", ""); r.Code != http.StatusUnauthorized {
		t.Errorf("a guest: %d %s", r.Code, r.Raw)
	}
	nobody := s.HTTP(t, s.WithToken(""))
	nobody.Get("/readyz")
	want(t, "health for anybody where the file says otherwise", nobody.Do("GET", "/livez", "").Code, http.StatusUnauthorized)

	// An invalid file changes nothing; a valid file takes effect without a restart.
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthenticationConfiguration","jwt":[{}]}`)
	harness.Eventually(t, "the failure is counted", func() error {
		if n := s.HTTP(t, nil).Metrics().Value("apiserver_authentication_config_controller_automatic_reloads_total", `status="failure"`); n < 1 {
			return fmt.Errorf("%v failures", n)
		}
		return nil
	})
	eventuallyIs(t, s, jane, "first:jane")
	write(configuration("second"))
	eventuallyIs(t, s, jane, "second:jane")
}

func tokensThatAWebhookKnows(t *testing.T) ([]string, func(*testing.T, *harness.Server)) {
	reviewer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if review.Spec.Token == "sesame" {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "ali", Groups: []string{"baba"}}, Audiences: review.Spec.Audiences}
		}
		harness.WriteJSON(w, http.StatusOK, review)
	}))
	t.Cleanup(reviewer.Close)
	return []string{"--authentication-token-webhook-config-file", askedThrough(t, reviewer), "--authentication-token-webhook-version", "v1"}, func(t *testing.T, s *harness.Server) {
		who := eventuallyIs(t, s, "sesame", "ali")
		want(t, "groups", who.At("status", "userInfo", "groups"), any([]any{"baba", "system:authenticated"}))
		want(t, "another token", s.HTTP(t, s.WithToken("barley")).Do("GET", "/version", "").Code, http.StatusUnauthorized)
	}
}

// authorities starts a server that answers SubjectAccessReviews, and counts them.
func authorities(t *testing.T, allowed func(authorizationv1.SubjectAccessReviewSpec) bool) (*httptest.Server, *atomic.Int64) {
	asked := &atomic.Int64{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked.Add(1)
		if review.Status.Allowed = allowed(review.Spec); !review.Status.Allowed {
			review.Status.Reason = "the authorities say no"
		}
		harness.WriteJSON(w, http.StatusOK, review)
	}))
	t.Cleanup(s.Close)
	return s, asked
}

func readsConfigMaps(r authorizationv1.SubjectAccessReviewSpec) bool {
	return r.User == "alice" && r.ResourceAttributes != nil && r.ResourceAttributes.Verb == "list" && r.ResourceAttributes.Resource == "configmaps"
}

func TestAWebhookAuthorizes(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	authority, asked := authorities(t, readsConfigMaps)
	s := harness.Start(t, "--authorization-mode", "Webhook", "--authorization-webhook-config-file", askedThrough(t, authority), "--authorization-webhook-version", "v1")
	alice := s.HTTP(t, s.As("alice"))
	alice.Get("/api/v1/namespaces/default/configmaps")
	refused := alice.Refused(http.StatusForbidden, "Forbidden", "GET", "/api/v1/namespaces/default/secrets", "")
	in(t, "refusal", refused.Message, "the authorities say no")
	if asked.Load() == 0 {
		t.Error("the webhook was not asked")
	}
	// RBAC is not consulted.
	s.HTTP(t, s.As("system:kube-scheduler")).Refused(http.StatusForbidden, "Forbidden", "GET", "/api/v1/nodes", "")
}

func TestAuthorizationConfiguration(t *testing.T) {
	t.Parallel()
	authority, asked := authorities(t, readsConfigMaps)
	kubeconfig := askedThrough(t, authority)
	configuration := func(namespace string) string {
		return toJSON(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: authorities
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: NoOpinion
    authorizedTTL: 1ms
    unauthorizedTTL: 1ms
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}
    matchConditions:
    - expression: "has(request.resourceAttributes) && request.resourceAttributes.namespace == '%s'"
- {type: RBAC, name: rbac}
`, kubeconfig, namespace)
	}
	file := fileOf(t, "authorization.json", configuration("kube-public"))
	s := harness.Start(t, "--authorization-config", file)
	alice := s.HTTP(t, s.As("alice"))
	alice.Get("/api/v1/namespaces/kube-public/configmaps")
	before := asked.Load()
	alice.Refused(http.StatusForbidden, "Forbidden", "GET", "/api/v1/namespaces/default/configmaps", "")
	want(t, "questions that no condition matched", asked.Load(), before)
	harness.Eventually(t, "RBAC decides, too", func() error {
		if r := s.HTTP(t, s.As("system:kube-scheduler")).Do("GET", "/api/v1/nodes", ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// RBAC is mandatory: a file without it changes nothing.
	write(toJSON(`{apiVersion: apiserver.config.k8s.io/v1, kind: AuthorizationConfiguration, authorizers: [{type: AlwaysAllow, name: alwaysallow}]}`))
	harness.Eventually(t, "the failure is counted", func() error {
		if n := s.HTTP(t, nil).Metrics().Value("apiserver_authorization_config_controller_automatic_reloads_total", `status="failure"`); n < 1 {
			return fmt.Errorf("%v failures", n)
		}
		return nil
	})
	alice.Refused(http.StatusForbidden, "Forbidden", "GET", "/api/v1/namespaces/default/configmaps", "")
	write(configuration("default"))
	harness.Eventually(t, "the new condition is in force", func() error {
		if r := alice.Do("GET", "/api/v1/namespaces/default/configmaps", ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
}

func nodesMayReadWhatTheirPodsUse(*testing.T) ([]string, func(*testing.T, *harness.Server)) {
	return []string{"--authorization-mode", "Node,RBAC"}, nodesRead
}

func nodesRead(t *testing.T, s *harness.Server) {
	t.Helper()
	h, ns := s.HTTP(t, nil), s.Namespace(t)
	secrets := "/api/v1/namespaces/" + ns + "/secrets"
	for _, name := range []string{"used", "unused"} {
		h.Must(http.StatusCreated, "POST", secrets, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	}
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/pods", pod("p", "spec: {nodeName: n1, volumes: [{name: v, secret: {secretName: used}}]}"))
	node := s.HTTP(t, s.As("system:node:n1", "system:nodes"))
	harness.Eventually(t, "the node may read the secret", func() error {
		if r := node.Do("GET", secrets+"/used", ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
	refused := node.Refused(http.StatusForbidden, "Forbidden", "GET", secrets+"/unused", "")
	in(t, "refusal", refused.Message, "no relationship found between node 'n1' and this object")
	s.HTTP(t, s.As("system:node:n2", "system:nodes")).Refused(http.StatusForbidden, "Forbidden", "GET", secrets+"/used", "")
}

// Invalid options prevent the start of a server, with upstream's error messages.
func TestAccessOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, tt := range speed.Some(t, 3, []struct {
		name  string
		flags []string
		err   string
	}{
		{"a mode that there is not", []string{"--authorization-mode", "Some"}, `--authorization-mode "Some" is not a valid mode`},
		{"a mode twice", []string{"--authorization-mode", "RBAC,RBAC"}, `has mode specified more than once`},
		{"a webhook without a file", []string{"--authorization-mode", "Webhook"}, `authorization-mode Webhook's authorization config file not passed`},
		{"an authorization file that is missing", []string{"--authorization-config", "/nowhere"}, `--authorization-config: open /nowhere: no such file or directory`},
		{"an authorization file that is empty of authorizers", []string{"--authorization-config",
			fileOf(t, "a", `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthorizationConfiguration"}`)}, `authorizers: Required value: at least one authorization mode must be defined`},
		{"a condition that is no CEL", []string{"--authorization-config", fileOf(t, "a", toJSON(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers: [{type: Webhook, name: w, webhook: {timeout: 3s, subjectAccessReviewVersion: v1, matchConditionSubjectAccessReviewVersion: v1, failurePolicy: Deny, connectionInfo: {type: InClusterConfig}, matchConditions: [{expression: "request.nothing"}]}}]`))}, `undefined field 'nothing'`},
		{"half of the flags for OpenID Connect", []string{"--oidc-client-id", "c"}, `--oidc-issuer-url and oidc-client-id must be specified together`},
		{"an issuer without TLS", []string{"--oidc-issuer-url", "http://a", "--oidc-client-id", "c"}, `URL scheme must be https`},
		{"an authentication file with an unknown field", []string{"--authentication-config",
			fileOf(t, "a", `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthenticationConfiguration","jwts":[]}`)}, `unknown field "jwts"`},
		{"a file and flags", []string{"--oidc-client-id", "c", "--authentication-config", fileOf(t, "a", "")}, `authentication-config file and oidc-* flags are mutually exclusive`},
		{"keys that are not served by TLS", []string{"--service-account-jwks-uri", "http://a"}, `--service-account-jwks-uri "http://a" must be an https URL`},
		{"two signers", []string{"--service-account-signing-endpoint", "/s", "--service-account-key-file", fileOf(t, "key", "")}, `--service-account-signing-endpoint excludes`},
	}) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if text := harness.Refuses(t, tt.flags...); !strings.Contains(text, tt.err) {
				t.Errorf("refused with %q, want %q in it", text, tt.err)
			}
		})
	}
}

// keyOf returns the ID of the key that signed a token.
func keyOf(t *testing.T, token string) string {
	t.Helper()
	header, err := base64.RawURLEncoding.DecodeString(strings.SplitN(token, ".", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	var content struct {
		Kid string `json:"kid"`
	}
	if err := json.Unmarshal(header, &content); err != nil {
		t.Fatal(err)
	}
	return content.Kid
}

// describesItsIssuer checks that a client with a service account token can discover the key that verifies it.
func describesItsIssuer(t *testing.T, s *harness.Server, jwks string) {
	t.Helper()
	ns := s.Namespace(t)
	made := s.HTTP(t, nil).Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/serviceaccounts/default/token", `{"spec":{"expirationSeconds":600}}`)
	token := made.Text("status", "token")
	account := s.HTTP(t, s.WithToken(token))
	var found *harness.Response
	harness.Eventually(t, "service accounts may read the description", func() error {
		if found = account.Do("GET", "/.well-known/openid-configuration", ""); found.Code != http.StatusOK {
			return fmt.Errorf("%d %s", found.Code, found.Raw)
		}
		return nil
	})
	want(t, "issuer", found.Text("issuer"), "https://kubernetes.default.svc.cluster.local")
	if jwks == "" {
		jwks = s.Admin.Host + "/openid/v1/jwks"
	}
	want(t, "jwks_uri", found.Text("jwks_uri"), jwks)
	keys := account.Get("/openid/v1/jwks")
	want(t, "type", keys.Header.Get("Content-Type"), "application/jwk-set+json")
	type named struct {
		Kid string `json:"kid"`
	}
	var set struct {
		Keys []named `json:"keys"`
	}
	if err := json.Unmarshal(keys.Raw, &set); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(set.Keys, named{keyOf(t, token)}) {
		t.Errorf("the key %s is not among %s", keyOf(t, token), keys.Raw)
	}
	want(t, "nobody's request", s.HTTP(t, s.WithToken("")).Do("GET", "/openid/v1/jwks", "").Code, http.StatusUnauthorized)
}

func TestTheIssuerIsDescribed(t *testing.T) {
	t.Parallel()
	describesItsIssuer(t, harness.Shared(t), "")
}

func keysElsewhere(*testing.T) ([]string, func(*testing.T, *harness.Server)) {
	const elsewhere = "https://keys.example.com/openid/v1/jwks"
	return []string{"--service-account-jwks-uri", elsewhere}, func(t *testing.T, s *harness.Server) { describesItsIssuer(t, s, elsewhere) }
}

// Tokens stored in Secrets are signed with the key that verifies them, even if the key was given by a flag.
func keptTokensAreSignedByTheGivenKey(t *testing.T) ([]string, func(*testing.T, *harness.Server)) {
	key := harness.NewAuthority(t, "signer")
	_, pemKey := key.Pair(t, "signer")
	return []string{"--service-account-signing-key-file", fileOf(t, "key.pem", string(pemKey)), "--controllers", strings.Join(append(harness.Controllers, "serviceaccount-token-controller"), ",")}, keptTokens
}

func keptTokens(t *testing.T, s *harness.Server) {
	t.Helper()
	h, ns := s.HTTP(t, nil), s.Namespace(t)
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/secrets", `{"metadata":{"name":"kept","annotations":{"kubernetes.io/service-account.name":"default"}},"type":"kubernetes.io/service-account-token"}`)
	var token []byte
	harness.Eventually(t, "the secret has a token", func() error {
		text := h.Get("/api/v1/namespaces/"+ns+"/secrets/kept").Text("data", "token")
		if text == "" {
			return fmt.Errorf("it has none")
		}
		var err error
		token, err = base64.StdEncoding.DecodeString(text)
		return err
	})
	eventuallyIs(t, s, string(token), "system:serviceaccount:"+ns+":default")
}
