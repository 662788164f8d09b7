package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// self returns the caller's SelfSubjectReview.
func self(h *harness.HTTP) *harness.Response {
	return h.Must(http.StatusCreated, "POST", authenticationPath+"selfsubjectreviews", toJSON(`{apiVersion: authentication.k8s.io/v1, kind: SelfSubjectReview}`))
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)

	t.Run("client certificate of the administrator", func(t *testing.T) {
		r := self(s.HTTP(t, nil))
		want(t, "user", r.Text("status", "userInfo", "username"), "gatehouse-admin")
		want(t, "groups", r.At("status", "userInfo", "groups"), any([]any{"system:masters", "system:authenticated"}))
	})
	t.Run("token file", func(t *testing.T) {
		r := self(s.HTTP(t, s.WithToken("bob-token")))
		want(t, "user", r.Text("status", "userInfo", "username"), "bob")
		want(t, "uid", r.Text("status", "userInfo", "uid"), "uid-bob")
		want(t, "groups", r.At("status", "userInfo", "groups"), any([]any{"devs", "ops", "system:authenticated"}))
	})
	t.Run("impersonation", func(t *testing.T) {
		c := s.As("dave", "devs")
		c.Impersonate.UID = "7"
		c.Impersonate.Extra = map[string][]string{"scopes": {"all"}}
		r := self(s.HTTP(t, c))
		want(t, "user", r.Text("status", "userInfo", "username"), "dave")
		want(t, "uid", r.Text("status", "userInfo", "uid"), "7")
		want(t, "groups", r.At("status", "userInfo", "groups"), any([]any{"devs", "system:authenticated"}))
		want(t, "extra", r.At("status", "userInfo", "extra", "scopes"), any([]any{"all"}))
		carol := s.WithToken("carol-token")
		carol.Impersonate.UserName = "dave"
		s.HTTP(t, carol).Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "GET", "/api/v1/namespaces", "")
	})
	t.Run("token review", func(t *testing.T) {
		h := s.HTTP(t, nil)
		review := func(token string) *harness.Response {
			return h.Must(http.StatusCreated, "POST", authenticationPath+"tokenreviews", toJSON(`{apiVersion: authentication.k8s.io/v1, kind: TokenReview, spec: {token: %s}}`, token))
		}
		good := review("alice-token")
		want(t, "authenticated", good.At("status", "authenticated"), any(true))
		want(t, "user", good.Text("status", "user", "username"), "alice")
		want(t, "authenticated", review("nonsense").At("status", "authenticated"), nil)
	})
	t.Run("anonymous", func(t *testing.T) {
		h := s.HTTP(t, s.WithToken(""))
		for _, path := range []string{"/livez", "/readyz", "/healthz", "/version"} {
			h.Get(path)
		}
		for _, path := range []string{"/metrics", "/api", "/apis", "/openapi/v3", "/swagger-2.0.0.pb-v1", "/", "/logs", "/debug/pprof/", "/api/v1/namespaces", "/readyz/../metrics"} {
			if r := h.Do("GET", path, ""); r.Code != http.StatusUnauthorized && r.Code != http.StatusForbidden {
				t.Errorf("%s: %d", path, r.Code)
			}
		}
	})
	t.Run("a token that is wrong does not make anonymous", func(t *testing.T) {
		s.HTTP(t, s.WithToken("wrong")).Refused(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "GET", "/version", "")
	})
	t.Run("a certificate of a stranger", func(t *testing.T) {
		c := rest.AnonymousClientConfig(s.Admin)
		c.CertData, c.KeyData = stranger(t)
		s.HTTP(t, c).Refused(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "GET", "/api", "")
	})
}

// stranger creates a self-signed certificate of system:masters.
func stranger(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		Subject: pkix.Name{CommonName: "mallory", Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// clientCAFile configures a certificate authority of another owner.
func clientCAFile(t *testing.T) ([]string, func(*testing.T, *harness.Server)) {
	cert, key := stranger(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--client-ca-file", file}, func(t *testing.T, s *harness.Server) {
		c := rest.AnonymousClientConfig(s.Admin)
		c.CertData, c.KeyData = cert, key
		want(t, "user", self(s.HTTP(t, c)).Text("status", "userInfo", "username"), "mallory")
		want(t, "user", self(s.HTTP(t, nil)).Text("status", "userInfo", "username"), "gatehouse-admin")
	}
}

func TestAlwaysAllow(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte("t,erin,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, "--authorization-mode", "AlwaysAllow", "--token-auth-file", file)
	h := s.HTTP(t, s.WithToken("t"))
	h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/default/configmaps", configMap("c"))
	s.HTTP(t, s.WithToken("")).Refused(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "GET", "/api/v1/namespaces", "")
}

func TestRBAC(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	admin := s.HTTP(t, nil)

	t.Run("bootstrap roles", func(t *testing.T) {
		h := s.HTTP(t, nil)
		for _, name := range []string{"cluster-admin", "admin", "edit", "view", "system:discovery", "system:basic-user", "system:controller:namespace-controller"} {
			h.Get(rbacPath + "clusterroles/" + name)
		}
		h.Get(rbacPath + "clusterrolebindings/cluster-admin")
		h.Get(rbacPath + "namespaces/kube-system/roles/extension-apiserver-authentication-reader")
		// The role view is aggregated from other roles.
		if rules, _ := h.Get(rbacPath + "clusterroles/view").At("rules").([]any); len(rules) < 5 {
			t.Errorf("view has %d rules", len(rules))
		}
	})
	t.Run("who may read OpenAPI may read it where kubectl 1.8 does", func(t *testing.T) {
		h := s.HTTP(t, s.WithToken("alice-token"))
		want(t, "type", h.Get("/swagger-2.0.0.pb-v1").Header.Get("Content-Type"), "application/octet-stream")
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "GET", "/swagger-2.0.0.json", "")
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "POST", "/swagger-2.0.0.pb-v1", "")
	})
	t.Run("aggregated roles", func(t *testing.T) {
		h := s.HTTP(t, nil)
		ns := s.Namespace(t)
		h.Must(http.StatusCreated, "POST", rbacPath+"clusterroles", toJSON(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: sum-%s}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {sum: %[1]s}}]}}`, ns))
		h.Must(http.StatusCreated, "POST", rbacPath+"clusterroles", toJSON(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: part-%s, labels: {sum: %[1]s}}, rules: [{apiGroups: [example.com], resources: [things], verbs: [get]}]}`, ns))
		harness.Eventually(t, "the sum has the part", func() error {
			if got := h.Get(rbacPath+"clusterroles/sum-"+ns).Text("rules", "0", "resources", "0"); got != "things" {
				return fmt.Errorf("first resource %q", got)
			}
			return nil
		})
	})
	t.Run("a role allows what it says, in its namespace", func(t *testing.T) {
		ns, other := s.Namespace(t), s.Namespace(t)
		allow(t, s, ns, "alice", `{apiGroups: [""], resources: [configmaps], verbs: [get, list, create]}, {apiGroups: [""], resources: [secrets], resourceNames: [mine], verbs: [get]}`)
		h := s.HTTP(t, s.WithToken("alice-token"))
		path := "/api/v1/namespaces/" + ns + "/"
		h.Must(http.StatusCreated, "POST", path+"configmaps", configMap("c"))
		h.Get(path + "configmaps/c")
		h.Get(path + "configmaps")
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "GET", path+"configmaps?watch=1", "")
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "DELETE", path+"configmaps/c", "")
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "DELETE", path+"configmaps", "")
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "PATCH", path+"configmaps/c", "{}", "Content-Type", mergePatch)
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "GET", "/api/v1/namespaces/"+other+"/configmaps", "")
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "GET", "/api/v1/configmaps", "")
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "GET", path+"secrets/other", "")
		h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", path+"secrets/mine", "")
		// Creating by apply needs the permissions create and patch.
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "PATCH", path+"configmaps/new?fieldManager=a", configMap("new"), "Content-Type", applyPatch)
	})
	t.Run("nobody gives away more than they have", func(t *testing.T) {
		ns := s.Namespace(t)
		allow(t, s, ns, "bob", `{apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings], verbs: ["get", "create", "update", "patch"]}, {apiGroups: [""], resources: [pods], verbs: [get]}`)
		h := s.HTTP(t, s.WithToken("bob-token"))
		path := rbacPath + "namespaces/" + ns + "/"
		role := func(name, resource string) string {
			return toJSON(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: %s}, rules: [{apiGroups: [""], resources: [%s], verbs: [get]}]}`, name, resource)
		}
		binding := func(name, kind, role string) string {
			return toJSON(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %s, name: %s}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]}`, name, kind, role)
		}
		h.Must(http.StatusCreated, "POST", path+"roles", role("pods", "pods"))
		status := h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "POST", path+"roles", role("secrets", "secrets"))
		if !strings.Contains(status.Message, "attempting to grant RBAC permissions not currently held") {
			t.Errorf("message %q", status.Message)
		}
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "PATCH", path+"roles/pods", `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`, "Content-Type", mergePatch)
		h.Must(http.StatusCreated, "POST", path+"rolebindings", binding("pods", "Role", "pods"))
		h.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "POST", path+"rolebindings", binding("all", "ClusterRole", "cluster-admin"))

		admin.Must(http.StatusCreated, "POST", path+"roles", toJSON(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: higher}, rules: [{apiGroups: [rbac.authorization.k8s.io], resources: [roles, clusterroles], verbs: [bind, escalate]}]}`))
		admin.Must(http.StatusCreated, "POST", path+"rolebindings", binding("higher", "Role", "higher"))
		harness.Eventually(t, "bob may escalate", func() error {
			if r := h.Do("POST", path+"roles", role("secrets", "secrets")); r.Code != http.StatusCreated {
				return fmt.Errorf("%d", r.Code)
			}
			return nil
		})
		h.Must(http.StatusCreated, "POST", path+"rolebindings", binding("all", "ClusterRole", "cluster-admin"))
	})
}

func TestAccessReviews(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	ns := s.Namespace(t)
	allow(t, s, ns, "frank", `{apiGroups: [apps], resources: [deployments, deployments/scale], verbs: [get, patch]}`)
	admin := s.HTTP(t, nil)
	frank := s.HTTP(t, s.As("frank", "system:authenticated"))
	attributes := func(verb, resource string) string {
		return fmt.Sprintf(`{namespace: %s, verb: %s, group: apps, resource: %s}`, ns, verb, resource)
	}
	for _, c := range []struct {
		name   string
		review *harness.Response
		want   bool
	}{
		{"subject, yes", admin.Must(http.StatusCreated, "POST", authorizationPath+"subjectaccessreviews", toJSON(`{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {user: frank, resourceAttributes: %s}}`, attributes("get", "deployments"))), true},
		{"subject, subresource", admin.Must(http.StatusCreated, "POST", authorizationPath+"subjectaccessreviews", toJSON(`{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {user: frank, resourceAttributes: {namespace: %s, verb: patch, group: apps, resource: deployments, subresource: scale}}}`, ns)), true},
		{"subject, no", admin.Must(http.StatusCreated, "POST", authorizationPath+"subjectaccessreviews", toJSON(`{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {user: frank, resourceAttributes: %s}}`, attributes("delete", "deployments"))), false},
		{"subject, group", admin.Must(http.StatusCreated, "POST", authorizationPath+"subjectaccessreviews", toJSON(`{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {user: x, groups: [system:masters], resourceAttributes: %s}}`, attributes("delete", "anything"))), true},
		{"subject, path", admin.Must(http.StatusCreated, "POST", authorizationPath+"subjectaccessreviews", toJSON(`{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {user: frank, nonResourceAttributes: {path: /metrics, verb: get}}}`)), false},
		{"local", admin.Must(http.StatusCreated, "POST", authorizationPath+"namespaces/"+ns+"/localsubjectaccessreviews", toJSON(`{apiVersion: authorization.k8s.io/v1, kind: LocalSubjectAccessReview, metadata: {namespace: %s}, spec: {user: frank, resourceAttributes: %s}}`, ns, attributes("get", "deployments"))), true},
		{"self, yes", frank.Must(http.StatusCreated, "POST", authorizationPath+"selfsubjectaccessreviews", toJSON(`{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectAccessReview, spec: {resourceAttributes: %s}}`, attributes("patch", "deployments"))), true},
		{"self, no", frank.Must(http.StatusCreated, "POST", authorizationPath+"selfsubjectaccessreviews", toJSON(`{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectAccessReview, spec: {resourceAttributes: %s}}`, attributes("patch", "daemonsets"))), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			want(t, "allowed", c.review.At("status", "allowed"), any(c.want))
		})
	}
	rules := frank.Must(http.StatusCreated, "POST", authorizationPath+"selfsubjectrulesreviews", toJSON(`{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectRulesReview, spec: {namespace: %s}}`, ns))
	if !strings.Contains(string(rules.Raw), "deployments/scale") {
		t.Errorf("rules: %s", rules.Raw)
	}
	frank.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "POST", authorizationPath+"subjectaccessreviews", toJSON(`{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {user: x}}`))
}
