package aggregation

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// register registers the sample server with main, as in its own example.
func (s *sample) register(t *testing.T, kubectl *harness.Kubectl) {
	t.Helper()
	manifest := `
apiVersion: v1
kind: Namespace
metadata: {name: wardle}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: wardle}
spec: {ports: [{port: 443}]}
`
	for version, priority := range map[string]int{"v1alpha1": 15, "v1beta1": 20} {
		manifest += fmt.Sprintf(`---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %[1]s.wardle.example.com}
spec:
  group: wardle.example.com
  version: %[1]s
  groupPriorityMinimum: 1000
  versionPriority: %[2]d
  caBundle: %[3]s
  service: {name: api, namespace: wardle}
`, version, priority, base64.StdEncoding.EncodeToString(s.bundle))
	}
	kubectl.MustWith(manifest, "apply", "-f", "-")
}

// available waits until an APIService is available or not, as kubectl get shows it: "True" or "False (REASON)".
func available(t *testing.T, admin *harness.HTTP, name, want string) {
	t.Helper()
	harness.Eventually(t, name+" "+want, func() error {
		conditions, _ := admin.Get("/apis/apiregistration.k8s.io/v1/apiservices/"+name).At("status", "conditions").([]any)
		for _, c := range conditions {
			if harness.At(c, "type") == "Available" && strings.HasPrefix(fmt.Sprintf("%v (%v)", harness.At(c, "status"), harness.At(c, "reason")), want) {
				return nil
			}
		}
		return fmt.Errorf("%v", conditions)
	})
}

// touch changes an APIService, so that the server checks it at once.
func touch(admin *harness.HTTP, version, value string) {
	admin.Must(http.StatusOK, "PATCH", "/apis/apiregistration.k8s.io/v1/apiservices/"+version+".wardle.example.com",
		fmt.Sprintf(`{"metadata":{"annotations":{"touched":%q}}}`, value), "Content-Type", "application/merge-patch+json")
}

const flunders = "/apis/wardle.example.com/v1alpha1/namespaces/wardle/flunders"

func flunder(name string) string {
	return fmt.Sprintf(`{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder","metadata":{"name":%q}}`, name)
}

// The sample API server of Kubernetes runs behind gatehouse as behind kube-apiserver (S22.8 to S22.15,
// S22.18).
func TestTheSampleServerRunsBehindGatehouse(t *testing.T) {
	t.Parallel()
	port := harness.FreePort(t)
	main := harness.Start(t, "--service-address", "wardle/api=127.0.0.1:"+port, "--controllers", "*")
	kubectl := main.Kubectl(t, "wardle")
	admin := main.HTTP(t, main.Admin)
	s := newSample(t, main, port)
	s.register(t, kubectl)

	t.Run("S22.12 while it is down", func(t *testing.T) {
		defer kubectl.For(t)()
		available(t, admin, "v1alpha1.wardle.example.com", "False (FailedDiscoveryCheck)")
		// The server learns of a status that it wrote a moment later.
		harness.Eventually(t, "the refusal says why", func() error {
			status := admin.Refused(http.StatusServiceUnavailable, "ServiceUnavailable", "GET", flunders, "")
			if !strings.HasPrefix(status.Message, `service wardle/api:443 of APIService "v1alpha1.wardle.example.com" is not available: failing or missing response from https://127.0.0.1:`) {
				return errors.New(status.Message)
			}
			return nil
		})
		// All other groups work.
		kubectl.Must("get", "configmaps")
		if groups := admin.Get("/apis").Raw; !strings.Contains(string(groups), `"name":"wardle.example.com"`) {
			t.Errorf("the group is not in the list: %s", groups)
		}
	})

	s.start(t)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		available(t, admin, version+".wardle.example.com", "True")
	}

	t.Run("S22.14 discovery", func(t *testing.T) {
		defer kubectl.For(t)()
		harness.Eventually(t, "flunders are discovered", func() error {
			if code, err := admin.Try(t.Context(), "GET", "/apis/wardle.example.com/v1alpha1", ""); code != http.StatusOK {
				return fmt.Errorf("%d, %v", code, err)
			}
			return nil
		})
		if out := kubectl.Must("api-resources", "--api-group", "wardle.example.com"); !strings.Contains(out, "flunders") || !strings.Contains(out, "fischers") {
			t.Errorf("api-resources: %s", out)
		}
		group := admin.Get("/apis/wardle.example.com")
		if v := group.Text("preferredVersion", "version"); v != "v1beta1" {
			t.Errorf("preferred version %s, want that of the higher priority", v)
		}
		if list := admin.Get("/apis/wardle.example.com/v1alpha1"); list.Text("kind") != "APIResourceList" {
			t.Errorf("resources: %v", list.Body)
		}
	})
	t.Run("S22.15 OpenAPI", func(t *testing.T) {
		defer kubectl.For(t)()
		harness.Eventually(t, "the documents are merged", func() error {
			var list struct{ Paths map[string]any }
			if err := json.Unmarshal(admin.Get("/openapi/v3").Raw, &list); err != nil {
				return err
			}
			if list.Paths["apis/wardle.example.com/v1alpha1"] == nil || list.Paths["apis/apps/v1"] == nil {
				return fmt.Errorf("v3 has %d documents", len(list.Paths))
			}
			if out := string(admin.Get("/openapi/v2").Raw); !strings.Contains(out, `"/apis/wardle.example.com/v1alpha1/flunders"`) || !strings.Contains(out, `"/apis/apps/v1/deployments"`) {
				return errors.New("v2 lacks flunders or deployments")
			}
			return nil
		})
		if out := kubectl.Must("explain", "flunder.spec", "--api-version", "wardle.example.com/v1alpha1"); !strings.Contains(out, "reference\t<string>") {
			t.Errorf("explain: %s", out)
		}
	})
	t.Run("S22.9 objects", func(t *testing.T) {
		defer kubectl.For(t)()
		const manifest = "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: mine, labels: {color: %s}}\n"
		for _, step := range []struct{ color, want string }{{"red", "created"}, {"red", "unchanged"}, {"blue", "configured"}} {
			if out := kubectl.MustWith(fmt.Sprintf(manifest, step.color), "apply", "-f", "-"); !strings.Contains(out, step.want) {
				t.Errorf("apply of %s: %s, want %s", step.color, out, step.want)
			}
		}
		if out := kubectl.MustWith(fmt.Sprintf(manifest, "green"), "apply", "--server-side", "--force-conflicts", "-f", "-"); !strings.Contains(out, "serverside-applied") {
			t.Errorf("server-side apply: %s", out)
		}
		if out := kubectl.Must("get", "flunders.v1beta1.wardle.example.com", "mine", "-o", "jsonpath={.metadata.labels.color}"); out != "green" {
			t.Errorf("color %q in the other version", out)
		}
		watch := admin.Watch(flunders + "?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dmine")
		if e := watch.Next(); e.Type != "ADDED" {
			t.Errorf("first event: %+v", e)
		}
		kubectl.Must("label", "flunder", "mine", "color-")
		if e := watch.Next(); e.Type != "MODIFIED" {
			t.Errorf("second event: %+v", e)
		}
		kubectl.Must("delete", "flunder", "mine")
		for e := watch.Next(); e.Type != "DELETED"; e = watch.Next() {
		}
	})
	t.Run("S22.9 rights of callers", func(t *testing.T) {
		defer kubectl.For(t)()
		const list = "get flunders --as alice --as-group devs"
		if r := kubectl.Run("", strings.Fields(list)...); r.Code == 0 || !strings.Contains(r.Err, `User "alice" cannot list resource "flunders" in API group "wardle.example.com" in the namespace "wardle"`) {
			t.Errorf("without a role: %+v", r)
		}
		kubectl.Must("create", "role", "flunders", "--verb=list,get,create", "--resource=flunders.wardle.example.com")
		kubectl.Must("create", "rolebinding", "flunders", "--role=flunders", "--group=devs")
		alice := main.HTTP(t, main.As("alice", "devs"))
		harness.Eventually(t, "the role counts", func() error {
			if r := alice.Do("GET", flunders, ""); r.Code != http.StatusOK {
				return fmt.Errorf("%d %s", r.Code, r.Raw)
			}
			return nil
		})
		// The sample server asks the main server, which denies.
		kubectl.MustWith(flunder("kept"), "create", "--as", "alice", "--as-group", "devs", "-f", "-")
		if r := kubectl.Run("", "delete", "flunder", "kept", "--as", "alice", "--as-group", "devs"); !strings.Contains(r.Err, `User "alice" cannot delete resource "flunders"`) {
			t.Errorf("alice deleted: %+v", r)
		}
	})
	t.Run("S22.11 its own admission plugin", func(t *testing.T) {
		defer kubectl.For(t)()
		kubectl.MustWith(`{"apiVersion":"wardle.example.com/v1alpha1","kind":"Fischer","metadata":{"name":"angry"},"disallowedFlunders":["banned"]}`, "create", "-f", "-")
		harness.Eventually(t, "the plugin knows the fischer", func() error {
			if code, _ := admin.Try(t.Context(), "POST", flunders+"?dryRun=All", flunder("banned")); code != http.StatusForbidden {
				return fmt.Errorf("code %d", code)
			}
			return nil
		})
	})
	t.Run("S22.11 webhooks of the main server", func(t *testing.T) {
		defer kubectl.For(t)()
		hooks := harness.NewWebhookServer(t, nil)
		hook := hooks.Hook("/judge", harness.Deny(map[string]any{"code": 403, "reason": "Forbidden", "message": "no flunders today"}))
		kubectl.MustWith(fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"flunders"},
			"webhooks":[{"name":"flunders.example.com","clientConfig":{"url":%q,"caBundle":%q},"sideEffects":"None","admissionReviewVersions":["v1"],
			"rules":[{"operations":["CREATE"],"apiGroups":["wardle.example.com"],"apiVersions":["*"],"resources":["flunders"]}]}]}`, hook.URL(), hook.CABundle()), "create", "-f", "-")
		harness.Eventually(t, "the webhook judges flunders", func() error {
			if code, _ := admin.Try(t.Context(), "POST", flunders+"?dryRun=All", flunder("judged")); code != http.StatusForbidden {
				return fmt.Errorf("code %d", code)
			}
			return nil
		})
		hook.Forget()
		if r := admin.Must(http.StatusForbidden, "POST", flunders, flunder("judged")); !strings.Contains(r.Text("message"), "no flunders today") {
			t.Errorf("message: %s", r.Text("message"))
		}
		// Only the server that serves the group runs admission for the request.
		if n := len(hook.Reviews()); n != 1 {
			t.Errorf("%d reviews of one request", n)
		}
		kubectl.Must("delete", "validatingwebhookconfiguration", "flunders")
	})
	t.Run("S22.11 gatehouse explain says who judges", func(t *testing.T) {
		dir := t.TempDir()
		for name, c := range map[string]struct{ object, want string }{
			"flunder": {flunder("mine"), `it is passed on to service wardle/api:443 of APIService "v1alpha1.wardle.example.com", with its own plugins`},
			"service": {
				`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v2.wardle.example.com"},"spec":{"group":"wardle.example.com","version":"v2","groupPriorityMinimum":1,"versionPriority":1}}`,
				"CREATE APIService v2.wardle.example.com (apiregistration.k8s.io/v1 apiservices), by gatehouse-admin",
			},
		} {
			file := filepath.Join(dir, name+".json")
			if err := os.WriteFile(file, []byte(c.object), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := harness.Run(t, "explain", "-f", file, "--kubeconfig", main.Kubeconfig); r.Code != 0 || !strings.Contains(r.Out, c.want) {
				t.Errorf("%s: %+v", name, r)
			}
		}
	})
	t.Run("S22.16 garbage collection to and from its objects", func(t *testing.T) {
		defer kubectl.For(t)()
		collectGarbage(t, main, s)
	})
	t.Run("S22.16 a namespace waits for what the server has in it", func(t *testing.T) {
		defer kubectl.For(t)()
		kubectl.Must("create", "namespace", "pond")
		kubectl.MustWith(flunder("fish"), "create", "--namespace", "pond", "-f", "-")
		s.stop(t)
		// No endpoint changes, so only the check every 30 seconds notices (S22.6). A change of the APIService
		// triggers the check earlier.
		touch(admin, "v1alpha1", "stopped")
		available(t, admin, "v1alpha1.wardle.example.com", "False")
		kubectl.Must("delete", "namespace", "pond", "--wait=false")
		harness.Eventually(t, "the namespace says what it waits for", func() error {
			conditions, _ := admin.Get("/api/v1/namespaces/pond").At("status", "conditions").([]any)
			for _, c := range conditions {
				if harness.At(c, "type") == "NamespaceDeletionDiscoveryFailure" && strings.Contains(fmt.Sprint(harness.At(c, "message")), "wardle.example.com/v1alpha1") {
					return nil
				}
			}
			return fmt.Errorf("conditions: %v", conditions)
		})
		s.start(t)
		available(t, admin, "v1alpha1.wardle.example.com", "True")
		harness.Eventually(t, "the namespace goes", func() error {
			if r := admin.Do("GET", "/api/v1/namespaces/pond", ""); r.Code != http.StatusNotFound {
				return fmt.Errorf("%d %s", r.Code, r.Raw)
			}
			return nil
		})
	})
	t.Run("S22.8 without its APIServices it is gone", func(t *testing.T) {
		defer kubectl.For(t)()
		kubectl.Must("delete", "apiservice", "v1alpha1.wardle.example.com", "v1beta1.wardle.example.com")
		harness.Eventually(t, "the group goes", func() error {
			if code, _ := admin.Try(t.Context(), "GET", flunders, ""); code != http.StatusNotFound {
				return fmt.Errorf("code %d", code)
			}
			if strings.Contains(string(admin.Get("/apis").Raw), "wardle") {
				return errors.New("the group is still in the list")
			}
			return nil
		})
	})
}
