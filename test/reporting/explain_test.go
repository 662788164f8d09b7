package reporting

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// If a user may not read a resource, the explanation says so and contains nothing of it, whether the server
// explains or the command reads.
func TestExplanationsLeakNothing(t *testing.T) {
	t.Parallel()
	s := sole(t)
	h := s.HTTP(t, nil)
	kubeconfig := kubeconfigOf(t, s, "alice-token")
	kubectl := s.Kubectl(t, "shop")
	kubectl.MustWith(explained, "apply", "-f", "-")
	object := filepath.Join(t.TempDir(), "new.yaml")
	if err := os.WriteFile(object, []byte(asJSON(configMapNamed("new", "shop"))), 0o600); err != nil {
		t.Fatal(err)
	}

	// permissions are all permissions that alice needs; each lists the resources of a rule.
	permissions := map[string]map[string]any{
		"mutating":    permission("list", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
		"validating":  permission("list", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
		"external":    permission("list", "admissionregistration.k8s.io", "externaladmissionhookconfigurations"),
		"initializer": permission("list", "admissionregistration.k8s.io", "initializerconfigurations"),
		"policies":    permission("list", "admissionregistration.k8s.io", "validatingadmissionpolicies", "mutatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicybindings"),
		"param":       permission("get", "", "secrets"),
		"namespace":   permission("get", "", "namespaces"),
		"object":      permission("get", "", "configmaps"),
		"impersonate": permission("impersonate", "", "users"),
	}
	everything := []string{"secret-mutating.example.com", "secret-validating.example.com", "secret-external.example.com", "secret-initializer.example.com", "secret-policy", "secret-param"}
	create := []string{"-f", object}
	for _, c := range speed.Some(t, 2, []struct {
		name string
		// missing is the permission that alice lacks; "all" for all of them.
		missing string
		args    []string
		// says lists required texts of the answer, hides lists forbidden texts.
		says, hides []string
		// code is the exit code. api means that the case applies only if the server explains.
		code int
		api  bool
	}{
		{name: "nothing missing", args: create, says: everything},
		{name: "list of mutating webhooks", missing: "mutating", args: create, says: []string{"unknown: may not list mutatingwebhookconfigurations"}, hides: []string{"secret-mutating"}},
		{name: "list of validating webhooks", missing: "validating", args: create, says: []string{"unknown: may not list validatingwebhookconfigurations"}, hides: []string{"secret-validating"}},
		{name: "list of external hooks", missing: "external", args: create, says: []string{"unknown: may not list externaladmissionhookconfigurations"}, hides: []string{"secret-external"}},
		{name: "list of initializers", missing: "initializer", args: create, says: []string{"unknown: may not list initializerconfigurations"}, hides: []string{"secret-initializer"}},
		{name: "list of policies", missing: "policies", args: create, says: []string{"unknown: may not list validatingadmissionpolicies"}, hides: []string{"secret-policy", "secret-param"}},
		{name: "param of a policy", missing: "param", args: create, says: []string{"secret-policy", "unknown: may not get secrets shop/params"}, hides: []string{"secret-param"}},
		{name: "namespace", missing: "namespace", args: create, says: []string{"unknown: may not get namespace shop"}, hides: []string{"secret-label"}},
		{name: "stored object", missing: "object", args: []string{"configmap/stored", "-n", "shop"}, says: []string{mayNotGet}, hides: []string{"secret-"}, code: 1},
		{name: "stored object to delete", missing: "object", args: []string{"configmap/stored", "-n", "shop", "--operation", "DELETE"}, says: []string{mayNotGet}, hides: []string{"secret-"}, code: 1},
		{name: "object that does not exist", missing: "object", args: []string{"configmap/none", "-n", "shop"}, says: []string{mayNotGet}, hides: []string{"not found"}, code: 1},
		{name: "impersonation", missing: "impersonate", args: append(create, "--as", "bob"), says: []string{"impersonate"}, hides: []string{"secret-"}, code: 1, api: true},
		{
			name: "everything", missing: "all", args: create, hides: []string{"secret-"},
			says: []string{
				"may not list mutatingwebhookconfigurations", "may not list validatingwebhookconfigurations",
				"may not list externaladmissionhookconfigurations", "may not list initializerconfigurations",
			},
		},
	}) {
		for _, api := range []bool{true, false} {
			if c.api && !api {
				continue
			}
			t.Run(fmt.Sprintf("%s/api=%t", c.name, api), func(t *testing.T) {
				var rules []any
				for name, r := range permissions {
					if name != c.missing && c.missing != "all" {
						rules = append(rules, r)
					}
				}
				if api {
					rules = append(rules, permission("create", "gatehouse.dev", "admissionexplanations"))
				}
				grantAlice(t, h, rules)
				args := append([]string{"explain", "--kubeconfig", kubeconfig, "--all"}, c.args...)
				says, code := c.says, c.code
				if !api && slices.Contains(says, mayNotGet) {
					// If alice may not send the request either, the answer is the cluster's rejection, which
					// reveals nothing.
					says, code = []string{`is forbidden: User "alice" cannot`}, 0
				}
				var got harness.Result
				harness.Eventually(t, "the right answer", func() error {
					// RBAC rules take effect shortly after they are written.
					got = harness.Run(t, args...)
					text := got.Out + got.Err
					for _, say := range says {
						if !strings.Contains(text, say) {
							return fmt.Errorf("it does not say %q:\n%s", say, text)
						}
					}
					for _, hide := range c.hides {
						if strings.Contains(text, hide) {
							return fmt.Errorf("it says %q:\n%s", hide, text)
						}
					}
					if compiled := strings.Contains(got.Out, "built-in plugins decide as in Kubernetes"); c.code == 0 && compiled == api {
						return fmt.Errorf("the wrong side explained:\n%s", text)
					}
					if got.Code != code {
						return fmt.Errorf("exit code %d, want %d:\n%s", got.Code, code, text)
					}
					return nil
				})
			})
		}
	}
}

// mayNotGet occurs in the error for users without permission to read the object of an explanation.
const mayNotGet = "allowed to get"

// explained is the set of objects on the server.
const explained = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {secret-label: "1"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: stored, namespace: shop, labels: {secret-object: "1"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: m}
webhooks:
- name: secret-mutating.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  namespaceSelector: {matchExpressions: [{key: secret-label, operator: Exists}]}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: ["*"]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: v}
webhooks:
- name: secret-validating.example.com
  clientConfig: {url: "https://127.0.0.1:1/"}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: ["*"]}
---
apiVersion: v1
kind: Secret
metadata: {name: params, namespace: shop, annotations: {word: secret-param}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: secret-policy}
spec:
  paramKind: {apiVersion: v1, kind: Secret}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [configmaps]}]}
  validations: [{expression: "false", messageExpression: "string(params.metadata.annotations.word)"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: secret-binding}
spec: {policyName: secret-policy, validationActions: [Warn], paramRef: {name: params, parameterNotFoundAction: Deny}}
---
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: ExternalAdmissionHookConfiguration
metadata: {name: e}
externalAdmissionHooks:
- name: secret-external.example.com
  clientConfig: {service: {namespace: shop, name: nobody}, caBundle: eA==}
  failurePolicy: Ignore
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: ["*"]}
---
apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata: {name: i}
initializers:
- name: secret-initializer.example.com
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps]}
`

func permission(verb, group string, resources ...string) map[string]any {
	return map[string]any{"verbs": []string{verb}, "apiGroups": []string{group}, "resources": resources}
}

// grantAlice replaces alice's rules, which apply in addition to the default permissions of all users.
func grantAlice(t *testing.T, h *harness.HTTP, rules []any) {
	t.Helper()
	const base = "/apis/rbac.authorization.k8s.io/v1/"
	apply := func(resource string, content map[string]any) {
		content["apiVersion"] = "rbac.authorization.k8s.io/v1"
		content["metadata"] = map[string]any{"name": "alice"}
		r := h.Do("PATCH", base+resource+"/alice?fieldManager=test&force=true", asJSON(content), "Content-Type", applyPatch)
		if r.Code != 200 && r.Code != 201 {
			t.Fatalf("%s: %d %v", resource, r.Code, r.Body)
		}
	}
	if rules == nil {
		rules = []any{}
	}
	apply("clusterroles", map[string]any{"kind": "ClusterRole", "rules": rules})
	apply("clusterrolebindings", map[string]any{
		"kind":     "ClusterRoleBinding",
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "alice"},
		"subjects": []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}},
	})
}

func configMapNamed(name, namespace string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": namespace}}
}

// kubeconfigOf writes a kubeconfig with a bearer token.
func kubeconfigOf(t *testing.T, s *harness.Server, token string) string {
	t.Helper()
	c, err := clientcmd.LoadFromFile(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name := range c.AuthInfos {
		c.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}
