package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/recipe"
	"github.com/gatehouse-dev/gatehouse/internal/kit/selfsigned"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

var (
	engineRules = schema.GroupVersionResource{Group: "rules.example.com", Version: "v1", Resource: "rules"}
	engineHooks = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
)

// A test binary with this variable is a policy engine.
const asEngine = "GATEHOUSE_TEST_ENGINE"

// engineMain is a small policy engine: a Rule names a label that each ConfigMap must have. The engine registers its
// webhook itself, and reports in the status of a Rule that it enforces it.
func engineMain() error {
	ctx := context.Background()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	certificates := os.Getenv("CERT_DIR")
	authority, err := os.ReadFile(filepath.Join(certificates, selfsigned.AuthorityFile))
	if err != nil {
		return err
	}
	service := func(path string) map[string]any {
		return map[string]any{"caBundle": authority, "service": map[string]any{"namespace": "engine", "name": "engine", "path": path}}
	}
	hook := func(name, group, version, resource, path string) map[string]any {
		return map[string]any{
			"name": name, "sideEffects": "None", "admissionReviewVersions": []string{"v1"}, "clientConfig": service(path),
			"rules": []any{map[string]any{"apiGroups": []string{group}, "apiVersions": []string{version}, "operations": []string{"CREATE"}, "resources": []string{resource}}},
		}
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": map[string]any{"name": "engine"},
		"webhooks": []any{hook("rules.engine.example.com", "rules.example.com", "v1", "rules", "/rules"), hook("judge.engine.example.com", "", "v1", "configmaps", "/judge")},
	})
	if err != nil {
		return err
	}
	registration := &unstructured.Unstructured{}
	if err := registration.UnmarshalJSON(data); err != nil {
		return err
	}
	review := func(w http.ResponseWriter, r *http.Request, judge func(*unstructured.Unstructured) string) {
		var in admissionv1.AdmissionReview
		u := &unstructured.Unstructured{}
		if json.NewDecoder(r.Body).Decode(&in) != nil || u.UnmarshalJSON(in.Request.Object.Raw) != nil {
			http.Error(w, "no review", http.StatusBadRequest)
			return
		}
		message := judge(u)
		in.Response = &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: message == "", Result: &metav1.Status{Message: message}}
		in.Request = nil
		_ = json.NewEncoder(w).Encode(in)
	}
	handler := http.NewServeMux()
	handler.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	handler.HandleFunc("/rules", func(w http.ResponseWriter, r *http.Request) {
		review(w, r, func(u *unstructured.Unstructured) string {
			if label, _, _ := unstructured.NestedString(u.Object, "spec", "label"); label == "" {
				return "a rule needs a label"
			}
			return ""
		})
	})
	handler.HandleFunc("/judge", func(w http.ResponseWriter, r *http.Request) {
		review(w, r, func(u *unstructured.Unstructured) string {
			rules, err := client.Resource(engineRules).List(r.Context(), metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			var missing []string
			for _, rule := range rules.Items {
				label, _, _ := unstructured.NestedString(rule.Object, "spec", "label")
				enforced, _, _ := unstructured.NestedBool(rule.Object, "spec", "enforce")
				if _, ok := u.GetLabels()[label]; !ok && enforced {
					missing = append(missing, "["+rule.GetName()+"] the label "+label+" is missing")
				}
			}
			return strings.Join(missing, "\n")
		})
	})
	if _, err := client.Resource(engineHooks).Create(ctx, registration, metav1.CreateOptions{}); err != nil {
		return err
	}
	go func() {
		for ; ; time.Sleep(10 * time.Millisecond) {
			rules, err := client.Resource(engineRules).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for i := range rules.Items {
				rule := &rules.Items[i]
				if _, known := rule.Object["status"]; known {
					continue
				}
				rule.Object["status"] = map[string]any{"judges": true}
				// The next round tries again.
				_, _ = client.Resource(engineRules).UpdateStatus(ctx, rule, metav1.UpdateOptions{})
			}
		}
	}()
	return http.ListenAndServeTLS("127.0.0.1:"+os.Getenv("PORT"), filepath.Join(certificates, selfsigned.CertificateFile), filepath.Join(certificates, selfsigned.KeyFile), handler)
}

// engineFiles returns a recipe of the engine, with its manifests, policies and tests.
func engineFiles(t *testing.T) map[string]string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"engine/engine.yaml": fmt.Sprintf(`
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionEngine
name: engine
command: [%q]
env: {GATEHOUSE_TEST_ENGINE: runs}
manifests: [install.yaml]
service: engine/engine
ready: https://127.0.0.1:${PORT}/readyz
policies:
- group: rules.example.com
  set: {spec.enforce: true}
  ready: object.status.judges
answers: ['(?m)(?:^|: )\[(?P<policy>[^\]]+)\] ']
`, program),
		"engine/install.yaml": `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rules.rules.example.com}
spec:
  group: rules.example.com
  scope: Cluster
  names: {kind: Rule, plural: rules}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`,
		"policies/rules.yaml": `
apiVersion: rules.example.com/v1
kind: Rule
metadata: {name: owned}
spec: {label: owner}
---
apiVersion: rules.example.com/v1
kind: Rule
metadata: {name: priced}
spec: {label: price, enforce: false}
`,
		"policies/tests.yaml": `
apiVersion: gatehouse.dev/v1alpha1
kind: AdmissionTests
tests:
- name: neither label
  request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}
  expect: {allowed: false, by: {webhook: judge.engine.example.com, policy: priced}, message: {contains: the label owner is missing}}
- name: one label
  request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {price: "1"}}}}
  expect: {allowed: false, by: {policy: owned}}
- name: both labels
  request: {object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {price: "1", owner: me}}}}
  expect: {allowed: true, called: [judge.engine.example.com]}
`,
	}
}

// S24.33, S24.2, S24.4: an engine runs next to the server, registers its webhook itself, gets the policies of the test
// environment in enforcing mode, and evaluates the requests in the chain. Its responses name its policies.
func TestEngineJudges(t *testing.T) {
	for _, tc := range speed.Some(t, 1, []struct {
		name   string
		change func(files map[string]string)
		status []Status
		says   string
	}{
		{"as its policies say", func(map[string]string) {}, []Status{Passed, Passed, Passed}, ""},
		{"not by a policy that it refuses", func(files map[string]string) {
			files["policies/rules.yaml"] = strings.Replace(files["policies/rules.yaml"], "label: owner", "label: ''", 1)
		}, []Status{Broken, Broken, Broken}, "the engine engine does not take Rule owned: admission webhook"},
		{"not when it does not start", func(files map[string]string) {
			files["engine/engine.yaml"] = regexp.MustCompile("command:.*").ReplaceAllString(files["engine/engine.yaml"], `command: ["false"]`)
		}, []Status{Broken, Broken, Broken}, "the engine engine: it ended: "},
		{"only by policies that are there", func(files map[string]string) {
			files["policies/tests.yaml"] = strings.Replace(files["policies/tests.yaml"], "policy: owned", "policy: owner", 1)
		}, []Status{Passed, Broken, Passed}, `the test environment has no policy "owner" (did you mean owned?)`},
		// A request for which no webhook is called counts as skipped by its policies; kinds that no file defines get a
		// CRD for each suite.
		{"as Kyverno, in its suites", func(files map[string]string) {
			files["engine/engine.yaml"] = strings.Replace(files["engine/engine.yaml"], "name: engine", "name: kyverno", 1)
			delete(files, "policies/tests.yaml")
			for _, version := range []string{"v1", "v2"} {
				files["policies/"+version+"/kyverno-test.yaml"] = `
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
policies: [../rules.yaml]
resources: [resources.yaml]
results:
- {policy: owned, isValidatingPolicy: true, kind: ConfigMap, resources: [default/taken], result: pass}
- {policy: owned, kind: Secret, resources: [other], result: skip}
- {policy: owned, kind: Widget, resources: [some], result: skip}
- {policy: owned, kind: Widget, resources: [some], result: pass}
`
				files["policies/"+version+"/resources.yaml"] = `
apiVersion: v1
kind: ConfigMap
metadata: {name: taken, labels: {price: "1", owner: me}}
---
apiVersion: v1
kind: Secret
metadata: {name: other}
---
apiVersion: example.com/` + version + `
kind: Widget
metadata: {name: some}
`
			}
		}, []Status{Passed, Passed, Passed, Skipped, Passed, Passed, Passed, Skipped}, uncalled},
	}) {
		t.Run(tc.name, func(t *testing.T) {
			texts := engineFiles(t)
			tc.change(texts)
			write(t, texts)
			engine, err := recipe.Read("engine/engine.yaml")
			if err != nil {
				t.Fatal(err)
			}
			set, err := Find([]string{"policies"}, Reading{Through: []string{engine.Name}})
			if err != nil || len(set.Errors) > 0 {
				t.Fatal(err, set.Errors)
			}
			report, err := Run(t.Context(), Options{Set: set, Engines: []*recipe.Recipe{engine}})
			if err != nil {
				t.Fatal(err)
			}
			var got []Status
			var said bytes.Buffer
			for _, result := range report.Tests {
				got = append(got, result.Status)
				fmt.Fprintf(&said, "%s: %s %v\n", result.Name, result.Message, result.Failures)
			}
			if !slices.Equal(got, tc.status) || !strings.Contains(said.String(), tc.says) {
				t.Errorf("got %v\n%s\nwant %v, with %q", got, said.String(), tc.status, tc.says)
			}
		})
	}
}
