package manifests

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/engine"
)

const (
	reloads = "apiserver_manifest_admission_config_controller_automatic_reloads_total"
)

// manifestDirs are the directories of all plugins with manifest files.
type manifestDirs struct {
	// The manifest directories of the plugins.
	MutatingPolicies, MutatingHooks, ValidatingPolicies, ValidatingHooks string
	// Config is the path of the AdmissionConfiguration that names the directories.
	Config string
}

// newManifestDirs creates empty directories and the AdmissionConfiguration.
func newManifestDirs(t *testing.T) *manifestDirs {
	t.Helper()
	dir := t.TempDir()
	d := &manifestDirs{Config: filepath.Join(dir, "admission.yaml")}
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, one := range []struct {
		dir          *string
		plugin, kind string
	}{
		{&d.MutatingPolicies, "MutatingAdmissionPolicy", "MutatingAdmissionPolicyConfiguration"},
		{&d.MutatingHooks, "MutatingAdmissionWebhook", "WebhookAdmissionConfiguration"},
		{&d.ValidatingPolicies, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration"},
		{&d.ValidatingHooks, "ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration"},
	} {
		*one.dir = filepath.Join(dir, one.plugin)
		if err := os.Mkdir(*one.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		content += fmt.Sprintf("- name: %s\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: %s, staticManifestsDir: %s}\n", one.plugin, one.kind, *one.dir)
	}
	writeFile(t, d.Config, content)
	return d
}

// put replaces a file atomically, as S21.24 requires of writers.
func put(t *testing.T, dir, name, content string) {
	t.Helper()
	whole := filepath.Join(dir, "."+name+".tmp")
	writeFile(t, whole, content)
	if err := os.Rename(whole, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// staticPolicy returns a ValidatingAdmissionPolicy of a manifest file that denies requests matched by rule if
// expression is false, and its binding.
func staticPolicy(name, rule, expression, message string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [%[2]s]}
  validations: [{expression: %[3]q, message: %[4]q}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s.static.k8s.io}
spec: {policyName: %[1]s.static.k8s.io, validationActions: [Deny]}
`, name, rule, expression, message)
}

// ruleFor returns a rule for all operations on some resources of a group.
func ruleFor(group string, resources string) string {
	return fmt.Sprintf(`{apiGroups: [%q], apiVersions: ["*"], operations: ["*"], resources: [%s]}`, group, resources)
}

// staticHooks returns a configuration of a manifest file with one webhook.
func staticHooks(kind, name, rule string, hook *harness.Hook) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: %s
metadata: {name: %s.static.k8s.io}
webhooks:
- name: %[2]s.example.com
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: {url: %q, caBundle: %s}
  rules: [%s]
`, kind, name, hook.URL(), hook.CABundle(), rule)
}

// staticLabel returns a MutatingAdmissionPolicy of a manifest file that sets a label of ConfigMaps, and its
// binding.
func staticLabel(name, value string) string { return labelPolicy(name+".static.k8s.io", value) }

func labelPolicy(name, value string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  reinvocationPolicy: Never
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"set": "%[2]s"}}}'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, name, value)
}

// createAll creates the objects of a YAML text.
func createAll(h *harness.HTTP, path func(kind string) string, documents string) {
	for _, document := range strings.Split(documents, "---\n") {
		_, rest, _ := strings.Cut(document, "kind: ")
		kind, _, _ := strings.Cut(rest, "\n")
		h.Must(http.StatusCreated, "POST", path(kind), toJSON(strings.ReplaceAll(document, "%", "%%")))
	}
}

func pathOfKind(kind string) string {
	for _, k := range policyKinds {
		if k.Kind == kind {
			return k.Path
		}
	}
	return registrationsPath("v1", kind)
}

// TestStaticManifests verifies the rules of section S21 about registrations in manifest files that need a
// server.
func TestStaticManifests(t *testing.T) {
	t.Parallel()
	d := newManifestDirs(t)
	hooks := harness.NewWebhookServer(t, nil)
	first, later := hooks.Hook("/static", harness.Allow), hooks.Hook("/api", harness.Allow)
	judge := hooks.Hook("/judge", harness.Allow)
	both := `{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}, ` + ruleFor("admissionregistration.k8s.io", `"*"`) + `, ` + ruleFor("authorization.k8s.io", `"*"`) + `, ` + ruleFor("gatehouse.dev", `"*"`)
	writeFile(t, filepath.Join(d.MutatingHooks, "a.yaml"), staticHooks("MutatingWebhookConfiguration", "zz", both, first))
	writeFile(t, filepath.Join(d.ValidatingHooks, "a.yaml"), staticHooks("ValidatingWebhookConfiguration", "judge", both, judge))
	writeFile(t, filepath.Join(d.MutatingPolicies, "a.yaml"), staticLabel("label", "static"))
	protected := ruleFor("admissionregistration.k8s.io", `"*"`) + ", " + ruleFor("authorization.k8s.io", `"*"`)
	writeFile(t, filepath.Join(d.ValidatingPolicies, "a.yaml"),
		staticPolicy("no-secrets", ruleFor("", "secrets"), "request.operation == 'DELETE'", "no secrets")+"---\n"+
			staticPolicy("own", ruleFor("gatehouse.dev", `"*"`), "false", "never")+"---\n"+
			staticPolicy("protect", protected, "request.operation != 'DELETE' || !oldObject.metadata.name.startsWith('keep')", "it is protected")+"---\n"+
			// S21.19: a policy without a binding is never evaluated.
			strings.SplitN(staticPolicy("unbound", ruleFor("", "configmaps"), "false", "unbound"), "---\n", 2)[0])
	s := harness.Start(t, "--admission-control-config-file", d.Config)
	h := s.HTTP(t, nil)
	secret := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q}}`, name)
	}

	t.Run("S21.18 S21.12 in force at the first request, under their names", func(t *testing.T) {
		status := h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", "/api/v1/namespaces/default/secrets", secret("a"))
		const want = "ValidatingAdmissionPolicy 'no-secrets.static.k8s.io' with binding 'no-secrets.static.k8s.io' denied request: no secrets"
		if !strings.HasSuffix(status.Message, want) {
			t.Errorf("got %s", status.Message)
		}
	})
	t.Run("S21.12 not in the API", func(t *testing.T) {
		h.Must(http.StatusNotFound, "GET", validatingPolicies+"/no-secrets.static.k8s.io", "")
		if items := h.Get(validatingPolicies).At("items").([]any); len(items) != 0 {
			t.Errorf("listed: %v", items)
		}
		status := h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", validatingPolicies, policyObject("no-secrets.static.k8s.io", onNothing+", "+alwaysTrue))
		if !strings.Contains(status.Message, "are reserved for static manifest-based configurations") {
			t.Errorf("got %s", status.Message)
		}
	})
	t.Run("S21.13 before those of the API, and S21.14 not the last", func(t *testing.T) {
		hook := webhook("aa", "default", later)
		h.Must(http.StatusCreated, "POST", registrationsPath("v1", "MutatingWebhookConfiguration"), asJSON(map[string]any{
			"metadata": map[string]any{"name": "aa"}, "webhooks": []any{hook},
		}))
		createAll(h, pathOfKind, labelPolicy("aa.example.com", "api"))
		first.Forget()
		got := h.Must(http.StatusCreated, "POST", configMaps("default"), configMap("ordered"))
		if one, other := first.Last(t).At, later.Last(t).At; !one.Before(other) {
			t.Errorf("the webhook of the file was called at %s, that of the API at %s", one, other)
		}
		if label := got.Text("metadata", "labels", "set"); label != "api" {
			t.Errorf("the label is %q: the policy of the API does not come last", label)
		}
	})
	t.Run("S21.15 a binding of the API does not bind a policy of a file", func(t *testing.T) {
		r := h.Must(http.StatusCreated, "POST", validatingBindings, policyObject("binds-nothing", "policyName: unbound.static.k8s.io, validationActions: [Deny]"))
		if warnings := fmt.Sprint(r.Header.Values("Warning")); !strings.Contains(warnings, "unbound.static.k8s.io") {
			t.Errorf("D68: warnings %s", warnings)
		}
		h.Must(http.StatusCreated, "POST", configMaps("default"), configMap("unbound"))
	})
	t.Run("S21.16 S21.20 they protect registrations", func(t *testing.T) {
		// A policy of the API does not evaluate policies (S21.17).
		createAll(h, pathOfKind, strings.ReplaceAll(staticPolicy("api", ruleFor("admissionregistration.k8s.io", "validatingadmissionpolicies"), "false", "never"), ".static.k8s.io", ".example.com"))
		for _, k := range []struct{ path, object string }{
			{validatingPolicies, policyObject("keep", onNothing+", "+alwaysTrue)},
			{registrationsPath("v1", validating), `{"metadata":{"name":"keep"}}`},
		} {
			judge.Forget()
			h.Must(http.StatusCreated, "POST", k.path, k.object)
			if got := judge.Last(t).Text("name"); got != "keep" {
				t.Errorf("the webhook was asked about %q", got)
			}
			status := h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "DELETE", k.path+"/keep", "")
			if !strings.HasSuffix(status.Message, "it is protected") {
				t.Errorf("got %s", status.Message)
			}
		}
	})
	t.Run("S21.16 virtual resources stay exempt", func(t *testing.T) {
		judge.Forget()
		h.Must(http.StatusCreated, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`)
		engine.VirtualWrites(t, h)
		if got := judge.Reviews(); len(got) != 0 {
			t.Errorf("the webhook was asked: %s", got[0].Raw)
		}
	})
	t.Run("S20.9 S21.25 the state has the hash of the server's files", func(t *testing.T) {
		state := h.Get(statesPath + "/validatingadmissionpolicies.no-secrets.static.k8s.io")
		replicas := state.At("replicas").([]any)
		if state.Text("registration", "source") != "static" || state.At("inForce") != true || len(replicas) != 1 ||
			!strings.HasPrefix(fmt.Sprint(harness.At(replicas[0], "manifestsHash")), "sha256:") {
			t.Errorf("got %s", state.Raw)
		}
		out := harness.Run(t, "wait-in-force", "--kubeconfig", s.Kubeconfig, "validatingadmissionpolicy/no-secrets.static.k8s.io")
		if want := "validatingadmissionpolicies.no-secrets.static.k8s.io is active on 1 server, from manifest files\n"; out.Out != want {
			t.Errorf("got %+v", out)
		}
	})
	t.Run("explanations have the file and the line", func(t *testing.T) {
		for _, c := range []struct {
			resource, object, configuration, at string
		}{
			{"secrets", secret("a"), "no-secrets.static.k8s.io", "ValidatingAdmissionPolicy/a.yaml:5: spec.matchConstraints.resourceRules[0]"},
			{"configmaps", configMap("a"), "zz.static.k8s.io", "MutatingAdmissionWebhook/a.yaml:9: webhooks[0].rules[0]"},
		} {
			r := h.Must(http.StatusCreated, "POST", "/apis/gatehouse.dev/v1alpha1/admissionexplanations", fmt.Sprintf(
				`{"apiVersion":"gatehouse.dev/v1alpha1","kind":"AdmissionExplanation","spec":{"resource":{"version":"v1","resource":%q},"namespace":"default","object":%s}}`, c.resource, c.object))
			found := false
			for step := range engine.PlanOf(t, r.Raw).Each() {
				if step.Entry == nil || step.Entry.Configuration != c.configuration {
					continue
				}
				found = true
				if at := step.Location; at == nil || step.Entry.Source != "static" || !strings.HasSuffix(at.String(), c.at) {
					t.Errorf("%+v at %v, want %s", step.Entry, at, c.at)
				}
			}
			if !found {
				t.Errorf("%s is not explained: %s", c.configuration, r.Raw)
			}
		}
	})
	t.Run("D64 S21.27 the trace says where they come from", func(t *testing.T) {
		h.Refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "POST", "/api/v1/namespaces/default/secrets", secret("traced"))
		harness.Eventually(t, "the trace", func() error {
			if list := h.Get(tracesIn("default")).Raw; !strings.Contains(string(list), `"configuration":"no-secrets.static.k8s.io","index":0,"name":"","source":"static"`) {
				return fmt.Errorf("no trace of it in %s", list)
			}
			return nil
		})
	})
}

// TestManifestsAreReadAgain verifies S21.22 to S21.26 with D66 and D67: the effect of changed files.
func TestManifestsAreReadAgain(t *testing.T) {
	t.Parallel()
	d := newManifestDirs(t)
	dir := d.ValidatingPolicies
	deny := func(message string) string {
		return staticPolicy("reload", ruleFor("", "configmaps"), "false", message)
	}
	put(t, dir, "a.yaml", deny("one"))
	s := harness.StartTest(t, "--admission-control-config-file", d.Config)
	h := s.HTTP(t, nil)
	judged := func() string {
		r := h.Do("POST", configMaps("default")+"?dryRun=All", configMap("a"))
		if r.Code == http.StatusCreated {
			return ""
		}
		text := r.Text("message")
		return text[strings.LastIndex(text, ": ")+2:]
	}
	await := func(message string) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("requests are judged by %q", message), func() error {
			if got := judged(); got != message {
				return fmt.Errorf("judged by %q", got)
			}
			return nil
		})
	}
	count := func(status string) float64 {
		return h.Metrics().Value(reloads, fmt.Sprintf("status=%q", status), `plugin="ValidatingAdmissionPolicy"`)
	}
	awaitCount := func(status string, more float64) {
		t.Helper()
		harness.Eventually(t, status+" is counted", func() error {
			if got := count(status); got < more {
				return fmt.Errorf("%v, want at least %v", got, more)
			}
			return nil
		})
	}
	if got := judged(); got != "one" {
		t.Fatalf("judged by %q", got)
	}
	// S21.26: the first load is counted.
	if got := count("success"); got != 1 {
		t.Errorf("S21.26 %v successes", got)
	}
	t.Run("S21.22 another set is taken", func(t *testing.T) {
		put(t, dir, "a.yaml", deny("two"))
		await("two")
		awaitCount("success", 2)
		m := h.Metrics()
		if got := m.Value("apiserver_manifest_admission_config_controller_last_config_info", `plugin="ValidatingAdmissionPolicy"`); got != 1 {
			t.Errorf("S21.26 %v infos", got)
		}
		if got := m.Value("apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds", `status="success"`, `plugin="ValidatingAdmissionPolicy"`); time.Since(time.Unix(int64(got), 0)) > time.Hour {
			t.Errorf("S21.26 the last one was at %v", got)
		}
	})
	t.Run("S21.22 a bad set is not, and is counted", func(t *testing.T) {
		before := count("failure")
		put(t, dir, "a.yaml", strings.Replace(deny("three"), `"false"`, `"1"`, 1))
		awaitCount("failure", before+1)
		if got := judged(); got != "two" {
			t.Errorf("judged by %q", got)
		}
		if log := s.Log(); !strings.Contains(log, "the earlier files stay active") || !strings.Contains(log, "must evaluate to bool") {
			t.Error("the log does not say so")
		}
		put(t, dir, "a.yaml", deny("four"))
		await("four")
	})
	t.Run("S21.23 another name changes nothing", func(t *testing.T) {
		before := count("success")
		if err := os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")); err != nil {
			t.Fatal(err)
		}
		put(t, d.MutatingPolicies, "a.yaml", staticLabel("later", "x"))
		harness.Eventually(t, "another directory is read", func() error {
			if h.Metrics().Value(reloads, `status="success"`, `plugin="MutatingAdmissionPolicy"`) < 2 {
				return fmt.Errorf("not yet")
			}
			return nil
		})
		if got := count("success"); got != before {
			t.Errorf("%v reloads, then %v", before, got)
		}
	})
	t.Run("S21.23 S21.26 a directory that is gone keeps the old set", func(t *testing.T) {
		before := count("failure")
		if err := os.Rename(dir, dir+".away"); err != nil {
			t.Fatal(err)
		}
		// Every attempt is counted.
		awaitCount("failure", before+2)
		if got := judged(); got != "four" {
			t.Errorf("judged by %q", got)
		}
		if err := os.Rename(dir+".away", dir); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("S21.23 an empty directory is a valid set", func(t *testing.T) {
		if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
			t.Fatal(err)
		}
		await("")
	})
	t.Run("S21.24 half a file is not taken", func(t *testing.T) { notTakenHalfWritten(t, h, d) })
}

// notTakenHalfWritten verifies S21.24 and D66: a file that is still being written has no effect, even if its current
// content is valid. There are no other files.
func notTakenHalfWritten(t *testing.T, h *harness.HTTP, d *manifestDirs) {
	t.Helper()
	file := filepath.Join(d.ValidatingPolicies, "a.yaml")
	half := staticPolicy("half", ruleFor("", "configmaps"), "false", "half")
	whole := half + "---\n" + staticPolicy("whole", ruleFor("", "secrets"), "false", "whole")
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan struct{})
	go func() {
		defer close(written)
		// Every write is a valid set, and each is replaced before the next two reads.
		for i := 0; ctx.Err() == nil; i++ {
			if err := os.WriteFile(file, []byte(half+strings.Repeat("# more\n", i%50)), 0o600); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	until := time.Now().Add(2500 * time.Millisecond)
	for time.Now().Before(until) {
		h.Must(http.StatusCreated, "POST", configMaps("default")+"?dryRun=All", configMap("a"))
	}
	cancel()
	<-written
	put(t, d.ValidatingPolicies, "a.yaml", whole)
	harness.Eventually(t, "the whole file is in force", func() error {
		if r := h.Do("POST", configMaps("default")+"?dryRun=All", configMap("a")); r.Code == http.StatusCreated {
			return fmt.Errorf("it is not")
		}
		return nil
	})
}

// TestServersWithDifferentManifests verifies S21.25 and F24: servers may have different files, and their
// state shows the differences.
func TestServersWithDifferentManifests(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	one, two := newManifestDirs(t), newManifestDirs(t)
	policy := staticPolicy("both", ruleFor("", "configmaps"), "false", "one")
	put(t, one.ValidatingPolicies, "a.yaml", policy)
	put(t, two.ValidatingPolicies, "a.yaml", strings.Replace(policy, `"one"`, `"two"`, 1))
	put(t, two.MutatingPolicies, "a.yaml", staticLabel("only", "x"))
	first := harness.Start(t, "--etcd-servers", etcd.URL, "--admission-control-config-file", one.Config).HTTP(t, nil)
	harness.Start(t, "--etcd-servers", etcd.URL, "--admission-control-config-file", two.Config)
	state := func(name string) (inForce bool, each, hashes map[any]int) {
		r := first.Do("GET", statesPath+"/"+name, "")
		if r.Code != http.StatusOK {
			return false, nil, nil
		}
		each, hashes = map[any]int{}, map[any]int{}
		for _, replica := range r.At("replicas").([]any) {
			each[harness.At(replica, "inForce")]++
			hashes[harness.At(replica, "manifestsHash")]++
		}
		return r.At("inForce").(bool), each, hashes
	}
	harness.Eventually(t, "the files differ", func() error {
		inForce, each, hashes := state("validatingadmissionpolicies.both.static.k8s.io")
		if inForce || each[true] != 2 || len(hashes) != 2 {
			return fmt.Errorf("in force %v, %v, %v", inForce, each, hashes)
		}
		inForce, each, _ = state("mutatingadmissionpolicies.only.static.k8s.io")
		if inForce || each[true] != 1 || each[false] != 1 {
			return fmt.Errorf("in force %v, %v", inForce, each)
		}
		return nil
	})
	put(t, two.ValidatingPolicies, "a.yaml", policy)
	harness.Eventually(t, "the files are alike", func() error {
		if inForce, each, hashes := state("validatingadmissionpolicies.both.static.k8s.io"); !inForce || len(hashes) != 1 {
			return fmt.Errorf("in force %v, %v, %v", inForce, each, hashes)
		}
		return nil
	})
}

// TestBadManifestsStopTheStart verifies S21.21.
func TestBadManifestsStopTheStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, want string }{
		{"ValidatingAdmissionPolicy", "failed to load static policy manifests from"},
		{"ValidatingAdmissionWebhook", "failed to load static webhook manifests from"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newManifestDirs(t)
			file := filepath.Join(filepath.Dir(d.ValidatingPolicies), c.name, "bad.yaml")
			writeFile(t, file, "apiVersion: v1\nkind: ConfigMap\n")
			r := harness.Run(t, "serve", "--data-dir", t.TempDir(), "--secure-port", "0", "--admission-control-config-file", d.Config)
			if r.Code == 0 || !strings.Contains(r.Err, c.want) || !strings.Contains(r.Err, "error loading "+file+": ") {
				t.Errorf("%+v", r)
			}
		})
	}
}
