package reporting

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/engine"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// traceNames returns the names of the objects in a list.
func traceNames(list *harness.Response) []string {
	found := []string{}
	for _, item := range list.At("items").([]any) {
		found = append(found, harness.At(item, "metadata", "name").(string))
	}
	return found
}

// grant permits a user verbs on a resource in a namespace, or everywhere if the namespace is empty.
func grant(admin *harness.HTTP, user, ns, group, resource, verbs string) {
	kind, path := "Role", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/role"
	if ns == "" {
		kind, path = "ClusterRole", "/apis/rbac.authorization.k8s.io/v1/clusterrole"
	}
	name := user + "-" + resource
	admin.Must(http.StatusCreated, "POST", path+"s", fmt.Sprintf(
		`{"metadata":{"name":%q},"rules":[{"apiGroups":[%q],"resources":[%q],"verbs":%s}]}`, name, group, resource, verbs))
	admin.Must(http.StatusCreated, "POST", path+"bindings", fmt.Sprintf(
		`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},"subjects":[{"kind":"User","name":%q}]}`, name, kind, name, user))
}

// TestTraces verifies the contents of traces, and which users may read them.
func TestTraces(t *testing.T) {
	t.Parallel()
	// No controller writes anything between the requests of the test.
	s := harness.Start(t, "--admission-consistency", "strict", "--controllers", "namespace-controller",
		"--token-auth-file", writeFile(t, t.TempDir()+"/tokens.csv", "alice-token,alice,alice\nroot-token,root,root\n"))
	admin := s.HTTP(t, nil)
	hooks := harness.NewWebhookServer(t, nil)
	shop, other := s.EmptyNamespace(t), s.EmptyNamespace(t)
	anyOf := rules(rule("*", "/v1/configmaps", "/v1/secrets", "/v1/pods"))

	label := hooks.Hook("/label", harness.Respond(map[string]any{"allowed": true, "patchType": "JSONPatch",
		"patch":    []byte(`[{"op":"add","path":"/metadata/labels","value":{"team":"red"}},{"op":"add","path":"/data","value":{"top":"c2VjcmV0"}}]`),
		"warnings": []any{"the value is c2VjcmV0"}, "auditAnnotations": map[string]any{"saw": "c2VjcmV0"}}))
	judge := hooks.Hook("/judge", harness.Allow)
	register(t, s, "v1", mutating, webhook("label", shop, label, anyOf, `reinvocationPolicy: Never`))
	register(t, s, "v1", validating, webhook("judge", shop, judge, anyOf))

	created := traceOf(t, admin, admin.Must(http.StatusCreated, "POST", configMaps(shop), `{"metadata":{"generateName":"plain-"}}`))
	judge.Answer(harness.Deny(map[string]any{"code": 403, "message": "no c2VjcmV0 here"}))
	denied := traceOf(t, admin, admin.Must(http.StatusForbidden, "POST", configMaps(shop), `{"metadata":{"name":"denied"}}`))
	secret := traceOf(t, admin, admin.Must(http.StatusForbidden, "POST", "/api/v1/namespaces/"+shop+"/secrets", `{"metadata":{"name":"s"}}`))
	elsewhere := traceOf(t, admin, admin.Must(http.StatusCreated, "POST", configMaps(other), `{"metadata":{"name":"o"}}`))
	namespace := traceOf(t, admin, admin.Must(http.StatusOK, "PATCH", "/api/v1/namespaces/"+shop, `{"metadata":{"labels":{"a":"b"}}}`,
		"Content-Type", "application/merge-patch+json"))

	t.Run("a trace tells what happened", func(t *testing.T) {
		want(t, "outcome", created.Text("outcome"), "Allowed")
		want(t, "operation", created.Text("request", "operation"), "CREATE")
		want(t, "user", created.Text("request", "user"), "gatehouse-admin")
		if name := created.Text("request", "name"); !strings.HasPrefix(name, "plain-") || len(name) == len("plain-") {
			t.Errorf("the name is %q, which the server has generated", name)
		}
		stored := admin.Get(configMaps(shop) + "/" + created.Text("request", "name"))
		want(t, "uid", created.Text("request", "uid"), stored.Text("metadata", "uid"))
		want(t, "namespace", created.Text("metadata", "namespace"), shop)
		var plugins, paths []string
		record := engine.RecordOf(t, created)
		for step := range record.Each() {
			plugins = append(plugins, step.Pass+" "+step.Plugin)
		}
		for call := range record.Calls() {
			for _, p := range call.Patch {
				paths = append(paths, p.Path)
			}
		}
		want(t, "steps", plugins, []string{
			"mutating NamespaceLifecycle", "mutating MutatingAdmissionWebhook",
			"mutating NamespaceLifecycle", "mutating MutatingAdmissionWebhook",
			"validating ValidatingAdmissionWebhook", "validating ResourceQuota",
		})
		want(t, "patched", paths, []string{"/metadata/labels", "/data"})
		want(t, "outcome of what was denied", denied.Text("outcome"), "Denied")
		if text := string(denied.Raw); !strings.Contains(text, "no c2VjcmV0 here") {
			t.Errorf("what the webhook said is missing: %s", text)
		}
	})

	t.Run("a trace has the response of a request that is refused after admission", func(t *testing.T) {
		path := configMaps(other) + "/o"
		want(t, "code of what was created", created.At("response", "code"), any(float64(http.StatusCreated)))
		want(t, "code of what was denied", denied.At("response", "code"), any(float64(http.StatusForbidden)))
		admin.Must(http.StatusCreated, "POST", configMaps(other), `{"metadata":{"name":"fixed"},"immutable":true}`)
		commanded := speed.Some(t, 1, []string{"Invalid", "AlreadyExists", "Conflict"})
		// The second object of "Invalid" is immutable.
		for reason, responses := range map[string][]*harness.Response{
			"Invalid": {
				admin.Must(http.StatusUnprocessableEntity, "POST", configMaps(other), `{"metadata":{"name":"invalid"},"data":{"a key":"x"}}`),
				admin.Must(http.StatusUnprocessableEntity, "PATCH", configMaps(other)+"/fixed", `{"data":{"a":"x"}}`, "Content-Type", "application/merge-patch+json"),
			},
			"AlreadyExists": {admin.Must(http.StatusConflict, "POST", configMaps(other), `{"metadata":{"name":"o"}}`)},
			"Conflict":      {admin.Must(http.StatusConflict, "PUT", path, `{"metadata":{"name":"o","resourceVersion":"1"}}`)},
		} {
			for _, r := range responses {
				refused := traceOf(t, admin, r)
				want(t, "outcome", refused.Text("outcome"), "Allowed")
				want(t, "code", refused.At("response", "code"), any(float64(r.Code)))
				want(t, "reason", refused.Text("response", "reason"), reason)
				want(t, "message", refused.Text("response", "message"), r.Text("message"))
				if !slices.Contains(commanded, reason) {
					continue
				}
				shown := harness.Run(t, "trace", "--kubeconfig", s.Kubeconfig, refused.Text("id"))
				harness.Contains(t, "gatehouse trace", shown.Out, "Allowed, then "+fmt.Sprint(r.Code)+" "+reason)
				listed := harness.Run(t, "trace", "--kubeconfig", s.Kubeconfig, "-n", other, "--outcome", "allowed", "--response", reason)
				harness.Contains(t, "gatehouse trace --response", listed.Out, refused.Text("id"), "Allowed, then "+fmt.Sprint(r.Code)+" "+reason)
			}
		}
	})

	t.Run("what is read has no trace, and what is asked for on trial has one", func(t *testing.T) {
		want(t, "header of a read", admin.Get(configMaps(shop)).Header.Get("Gatehouse-Trace"), "")
		trial := traceOf(t, admin, admin.Must(http.StatusCreated, "POST", configMaps(other)+"?dryRun=All", `{"metadata":{"name":"trial"}}`))
		want(t, "dryRun", trial.At("request", "dryRun"), any(true))
	})

	t.Run("nobody sees what is in a secret", func(t *testing.T) {
		if text := string(secret.Raw); strings.Contains(text, "c2VjcmV0") || strings.Contains(text, `/data/`) {
			t.Errorf("the trace shows the secret: %s", text)
		}
		want(t, "redacted", secret.At("redacted"), any(true))
	})

	t.Run("field selectors", func(t *testing.T) {
		for selector, ids := range map[string][]*harness.Response{
			"webhook=judge." + shop + ".example.com":       {created, denied, secret},
			"configuration=judge." + shop:                  {created, denied, secret},
			"outcome=Denied":                               {denied, secret},
			"response=403":                                 {denied, secret},
			"response=4xx,outcome=Allowed":                 {},
			"outcome!=Allowed":                             {denied, secret},
			"resource=secrets":                             {secret},
			"resource=configmaps,operation=CREATE":         {created, denied},
			"name=denied":                                  {denied},
			"user=nobody":                                  {},
			"metadata.name=" + denied.Text("id"):           {denied},
			"plugin=ValidatingAdmissionWebhook,name=s":     {secret},
			"metadata.namespace=" + shop + ",name!=denied": {created, secret},
		} {
			wanted := []string{}
			for _, r := range ids {
				wanted = append(wanted, r.Text("id"))
			}
			want(t, selector, traceNames(admin.Get(tracesIn(shop)+"?fieldSelector="+selector)), wanted)
		}
		admin.Refused(http.StatusBadRequest, metav1.StatusReasonBadRequest, "GET", tracesPath+"?fieldSelector=colour=red", "")
	})

	t.Run("rights", func(t *testing.T) {
		grant(admin, "alice", shop, "gatehouse.dev", "admissiontraces", `["get","list","watch"]`)
		grant(admin, "root", "", "gatehouse.dev", "admissiontraces", `["get","list","watch"]`)
		alice, root := s.HTTP(t, s.WithToken("alice-token")), s.HTTP(t, s.WithToken("root-token"))
		harness.Eventually(t, "the roles", func() error {
			if alice.Do("GET", tracesIn(shop), "").Code == http.StatusOK && root.Do("GET", tracesPath, "").Code == http.StatusOK {
				return nil
			}
			return errors.New("forbidden")
		})
		want(t, "what alice sees of her namespace", traceNames(alice.Get(tracesIn(shop)+"?fieldSelector=resource!=roles,resource!=rolebindings")),
			[]string{created.Text("id"), denied.Text("id"), secret.Text("id")})
		alice.Get(tracesIn(shop) + "/" + denied.Text("id"))
		for _, path := range []string{
			tracesPath, tracesPath + "/" + denied.Text("id"), tracesIn(other), tracesIn(other) + "/" + elsewhere.Text("id"),
			tracesPath + "?watch=1", tracesIn(other) + "?watch=1",
		} {
			alice.Refused(http.StatusForbidden, metav1.StatusReasonForbidden, "GET", path, "")
		}
		for _, r := range []*harness.Response{elsewhere, namespace} {
			alice.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "GET", tracesIn(shop)+"/"+r.Text("id"), "")
		}
		all := traceNames(root.Get(tracesPath))
		for _, r := range []*harness.Response{created, denied, secret, elsewhere, namespace} {
			root.Get(tracesPath + "/" + r.Text("id"))
			if !slices.Contains(all, r.Text("id")) {
				t.Errorf("who may read all is not shown %s", r.Raw)
			}
		}
		if text := string(root.Get(tracesPath + "?fieldSelector=resource=secrets").Raw); strings.Contains(text, "c2VjcmV0") {
			t.Errorf("the list shows the secret: %s", text)
		}
	})

	t.Run("traces are read only", func(t *testing.T) {
		admin.Refused(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "DELETE", tracesIn(shop)+"/"+denied.Text("id"), "")
		admin.Refused(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "POST", tracesIn(shop), `{}`)
	})

	t.Run("watch", func(t *testing.T) {
		version := admin.Get(tracesPath).Text("metadata", "resourceVersion")
		w := admin.Watch(tracesIn(shop) + "?watch=1&fieldSelector=outcome=Denied&resourceVersion=" + version)
		admin.Must(http.StatusCreated, "POST", configMaps(other), `{"metadata":{"name":"unseen"}}`)
		id := admin.Must(http.StatusForbidden, "POST", configMaps(shop), `{"metadata":{"name":"seen"}}`).Header.Get("Gatehouse-Trace")
		e := w.Next()
		want(t, "event", e.Type, "ADDED")
		want(t, "id", harness.At(e.Object, "metadata", "name"), any(id))
		initial := admin.Watch(tracesIn(shop) + "?watch=1&fieldSelector=name=denied&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
		want(t, "first event", initial.Next().Type, "ADDED")
		want(t, "second event", initial.Next().Type, "BOOKMARK")
		admin.Refused(http.StatusGone, metav1.StatusReasonExpired, "GET", tracesPath+"?watch=1&resourceVersion=5", "")
	})

	t.Run("discovery, table and OpenAPI", func(t *testing.T) {
		k := s.Kubectl(t, shop)
		if out := k.Must("get", "admissiontraces"); !strings.Contains(out, "configmaps denied") {
			t.Errorf("kubectl get printed:\n%s", out)
		}
		if out := k.Must("explain", "admissiontraces.steps.calls.verdict"); !strings.Contains(out, "allowed, denied, failed, refused or unknown") {
			t.Errorf("kubectl explain printed:\n%s", out)
		}
	})

	t.Run("commands", func(t *testing.T) {
		command := func(args ...string) harness.Result {
			return harness.Run(t, append(args, "--kubeconfig", s.Kubeconfig, "-n", shop)...)
		}
		for _, c := range speed.Some(t, 3, []struct {
			args, out string
		}{
			{"trace " + denied.Text("id"), "no c2VjcmV0 here"},
			{"trace --webhook judge." + shop + ".example.com", denied.Text("id")},
			{"trace --slowest 1 -A", "TOTAL"},
			{"trace --outcome Denied", "configmaps denied"},
			{"trace -A", elsewhere.Text("id")},
			{"trace " + created.Text("id") + " -o yaml", "kind: AdmissionTrace"},
			{"blame configmap/" + created.Text("request", "name"), `metadata.labels + {"team":"red"} label.` + shop + "/label." + shop + ".example.com same CREATE by gatehouse-admin"},
			{"blame configmap/" + created.Text("request", "name") + " -o json", `"created": true`},
		}) {
			r := command(strings.Fields(c.args)...)
			if said := strings.Join(strings.Fields(r.Out), " "); r.Code != 0 || !strings.Contains(said, c.out) {
				t.Errorf("%s: %d, %s%s", c.args, r.Code, r.Out, r.Err)
			}
		}
		// A value that was changed later is distinguished from a value that is still set.
		judge.Answer(harness.Allow)
		label.Answer(harness.Allow)
		admin.Must(http.StatusOK, "PATCH", configMaps(shop)+"/"+created.Text("request", "name"), `{"data":{"top":"other"}}`, "Content-Type", "application/merge-patch+json")
		var b struct{ Changes []struct{ Path, Now string } }
		r := command("blame", "configmap/"+created.Text("request", "name"), "-o", "json")
		if err := json.Unmarshal([]byte(r.Out), &b); err != nil {
			t.Fatalf("%v in %s%s", err, r.Out, r.Err)
		}
		want(t, "changes", b.Changes, []struct{ Path, Now string }{{"/metadata/labels", "same"}, {"/data", "changed"}})
	})
}

// TestOwnersAreTold verifies that events on an owner explain why its objects are missing.
func TestOwnersAreTold(t *testing.T) {
	t.Parallel()
	s := sole(t)
	admin := s.HTTP(t, nil)
	hooks := harness.NewWebhookServer(t, nil)
	ns := s.Namespace(t)
	judge := hooks.Hook("/judge", harness.Deny(map[string]any{"code": 403, "message": "too big"}))
	register(t, s, "v1", validating, webhook("judge", ns, judge, rules(rule("*", "/v1/secrets", "/v1/pods"))))
	owner := admin.Must(http.StatusCreated, "POST", configMaps(ns), `{"metadata":{"name":"owner"}}`)
	owned := func(kind, uid, name string) string {
		return fmt.Sprintf(`{"metadata":{"generateName":%q,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q,"controller":true}]},`+
			`"spec":{"containers":[{"name":"c","image":"i"}]}}`, name, uid)
	}
	pods := "/api/v1/namespaces/" + ns + "/pods"
	uid := owner.Text("metadata", "uid")
	// None of these creates an event.
	admin.Must(http.StatusForbidden, "POST", pods+"?dryRun=All", owned("Pod", uid, "trial-"))
	admin.Must(http.StatusForbidden, "POST", pods, owned("Pod", "00000000-0000-0000-0000-000000000000", "impostor-"))
	admin.Must(http.StatusForbidden, "POST", pods, `{"metadata":{"name":"orphan"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	for range 3 {
		admin.Must(http.StatusForbidden, "POST", pods, owned("Pod", uid, "web-"))
	}
	judge.Answer(harness.Raw(http.StatusInternalServerError, "text/plain", "broken"))
	admin.Must(http.StatusInternalServerError, "POST", pods, owned("Pod", uid, "web-"))
	events := map[string]any{}
	harness.Eventually(t, "the events", func() error {
		clear(events)
		for _, e := range admin.Get("/api/v1/namespaces/" + ns + "/events").At("items").([]any) {
			if harness.At(e, "reason") == "FailedAdmission" {
				events[fmt.Sprint(harness.At(e, "message"))] = harness.At(e, "count")
				want(t, "owner", harness.At(e, "involvedObject", "uid"), any(uid))
			}
		}
		if fmt.Sprint(events[denial(ns)]) != "3" || len(events) < 2 {
			return fmt.Errorf("got %v", events)
		}
		return nil
	})
	for message := range events {
		if strings.Contains(message, "trial") || strings.Contains(message, "impostor") || strings.Contains(message, "orphan") {
			t.Errorf("there is an event %q", message)
		}
		if !strings.Contains(message, "judge."+ns+".example.com") {
			t.Errorf("the event %q names no webhook", message)
		}
	}
	want(t, "events", len(events), 2)
}

// TestRejectionsOfOneCauseAreOneEvent verifies that retries with random names cause only one event, and that
// rejections which a controller reports itself are not reported twice.
func TestRejectionsOfOneCauseAreOneEvent(t *testing.T) {
	t.Parallel()
	s := sole(t)
	admin := s.HTTP(t, nil)
	admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"secure","labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`)
	set := admin.Must(http.StatusCreated, "POST", "/apis/apps/v1/namespaces/secure/replicasets", `{"metadata":{"name":"web"},"spec":{"replicas":0,`+
		`"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	pod := fmt.Sprintf(`{"metadata":{"generateName":"web-","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":%q,"controller":true}]},`+
		`"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}`, set.Text("metadata", "uid"))
	controller := s.HTTP(t, s.As("system:serviceaccount:kube-system:replicaset-controller"))
	const pods = "/api/v1/namespaces/secure/pods"
	controller.Must(http.StatusForbidden, "POST", pods, pod)
	for range 3 {
		admin.Must(http.StatusForbidden, "POST", pods, pod)
	}
	harness.Eventually(t, "one event, counted", func() error {
		events := admin.Get("/api/v1/namespaces/secure/events").At("items").([]any)
		if len(events) != 1 || fmt.Sprint(harness.At(events[0], "count")) != "3" {
			return fmt.Errorf("got %v", events)
		}
		want(t, "reason", harness.At(events[0], "reason"), any("FailedAdmission"))
		if message := fmt.Sprint(harness.At(events[0], "message")); !strings.Contains(message, `pods "web-*" is forbidden: violates PodSecurity "baseline:latest"`) {
			t.Errorf("the message is %q", message)
		}
		return nil
	})
}

// TestEventsOfControllersAreCounted verifies that a controller of this server writes one event for each
// cause, however often it retries.
func TestEventsOfControllersAreCounted(t *testing.T) {
	t.Parallel()
	s := sole(t)
	admin := s.HTTP(t, nil)
	admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"secure","labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`)
	admin.Must(http.StatusCreated, "POST", "/apis/apps/v1/namespaces/secure/replicasets", `{"metadata":{"name":"web"},"spec":{"replicas":1,`+
		`"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}}}`)
	harness.Eventually(t, "one event, counted", func() error {
		events := admin.Get("/api/v1/namespaces/secure/events").At("items").([]any)
		if len(events) == 0 {
			return errors.New("there is no event")
		}
		for _, e := range events {
			message := fmt.Sprint(harness.At(e, "message"))
			if len(events) != 1 || harness.At(e, "reason") != "FailedCreate" || !strings.Contains(message, `pods "web-*" is forbidden: violates PodSecurity "baseline:latest"`) {
				t.Fatalf("there is an event %v: %s, of %d", harness.At(e, "reason"), message, len(events))
			}
		}
		if n, err := strconv.Atoi(fmt.Sprint(harness.At(events[0], "count"))); err != nil || n < 4 {
			return fmt.Errorf("counted %d, %v", n, err)
		}
		return nil
	})
}

func denial(ns string) string {
	return `Create of Pod "web-*" was rejected: admission webhook "judge.` + ns + `.example.com" denied the request: too big`
}
