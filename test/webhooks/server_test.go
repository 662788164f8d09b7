package webhooks

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/engine"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// TestRegistrationsComeIntoForce verifies that on a server with default flags, registrations become active
// within about a second (S9.14).
func TestRegistrationsComeIntoForce(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h, ns := s.HTTP(t, nil), s.Namespace(t)
	hooks := harness.NewWebhookServer(t, nil)
	hook := hooks.Hook("/", harness.Deny(nil))
	// within polls until writes are rejected or admitted.
	within := func(what string, refused bool) {
		t.Helper()
		began := time.Now()
		harness.Eventually(t, what, func() error {
			if r := h.Do("POST", configMaps(ns)+"?dryRun=All", configMap("c")); (r.Code >= 400) != refused {
				return fmt.Errorf("%d", r.Code)
			}
			return nil
		})
		// About a second, or more on a busy machine.
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("S9.14 %s took %s", what, took)
		}
	}
	for _, kind := range []string{mutating, validating} {
		w := webhook("deny", ns, hook)
		register(t, s, "v1", kind, w)
		within(kind+" is in force", true)
		path := registrationsPath("v1", kind) + "/deny." + ns
		h.Must(http.StatusOK, "PATCH", path, `[{"op":"replace","path":"/webhooks/0/rules/0/resources","value":["secrets"]}]`, "Content-Type", jsonPatch)
		within("an update of "+kind, false)
		h.Must(http.StatusOK, "PATCH", path, `[{"op":"replace","path":"/webhooks/0/rules/0/resources","value":["configmaps"]}]`, "Content-Type", jsonPatch)
		within("another update of "+kind, true)
		h.Must(http.StatusOK, "DELETE", path, "")
		within("the end of "+kind, false)
	}
}

// TestExemptKinds verifies that registrations can be repaired although webhooks reject everything.
func TestExemptKinds(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--admission-consistency", "strict", "--controllers", "namespace-controller")
	h := s.HTTP(t, nil)
	hooks := harness.NewWebhookServer(t, nil)
	hook := hooks.Hook("/", harness.Deny(nil))
	// A configuration of every kind, created before everything is rejected.
	objects := map[string]string{}
	for _, kind := range []string{mutating, validating} {
		objects[registrationsPath("v1", kind)] = toJSON(`{apiVersion: admissionregistration.k8s.io/v1, kind: %s, metadata: {name: NAME}, webhooks: []}`, kind)
		objects[registrationsPath("v1beta1", kind)] = toJSON(`{apiVersion: admissionregistration.k8s.io/v1beta1, kind: %s, metadata: {name: NAME}, webhooks: []}`, kind)
	}
	objects[registrationsPath("v1alpha1", "ExternalAdmissionHookConfiguration")] = toJSON(`{apiVersion: admissionregistration.k8s.io/v1alpha1, kind: ExternalAdmissionHookConfiguration, metadata: {name: NAME}, externalAdmissionHooks: []}`)
	objects[registrationsPath("v1alpha1", "InitializerConfiguration")] = toJSON(`{apiVersion: admissionregistration.k8s.io/v1alpha1, kind: InitializerConfiguration, metadata: {name: NAME}, initializers: []}`)
	everything := "rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}]"
	for _, kind := range []string{mutating, validating} {
		register(t, s, "v1", kind, webhook("everything", "default", hook, everything, "namespaceSelector: {}"))
	}
	h.Refused(http.StatusBadRequest, "", "POST", configMaps("default"), configMap("c"))
	hook.Forget()
	i := 0
	for path, object := range objects {
		i++
		name := fmt.Sprintf("n%d", i)
		t.Run("S2.38 S2.39 "+path, func(t *testing.T) {
			h := s.HTTP(t, nil)
			h.Must(http.StatusCreated, "POST", path, strings.Replace(object, "NAME", name, 1))
			h.Must(http.StatusOK, "PATCH", path+"/"+name, `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", mergePatch)
			h.Must(http.StatusOK, "DELETE", path+"/"+name, "")
		})
	}
	t.Run("S2.41 reviews of access", func(t *testing.T) {
		s.HTTP(t, nil).Must(http.StatusCreated, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			toJSON(`{apiVersion: authorization.k8s.io/v1, kind: SelfSubjectAccessReview, spec: {resourceAttributes: {verb: get, resource: pods}}}`))
	})
	// The requests of a subtest's client end before its cleanup.
	outer := s.HTTP(t, nil)
	t.Run("S2.41 S14.15 S11.4 resources of gatehouse.dev", func(t *testing.T) {
		h := s.HTTP(t, nil)
		const all = "resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE, UPDATE], resources: ['*/*']}]"
		// Policies are last: they deny every other object.
		for _, one := range []struct{ path, object string }{
			{"v1alpha1/initializerconfigurations", `{apiVersion: admissionregistration.k8s.io/v1alpha1, kind: InitializerConfiguration, metadata: {name: all}, initializers: [{name: all.example.com, rules: [{apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}]}`},
			{"v1/mutatingadmissionpolicies", `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {name: all}, spec: {reinvocationPolicy: Never, matchConstraints: {` + all + `}, mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'remove', path: '/none'}]"}}]}}`},
			{"v1/mutatingadmissionpolicybindings", `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: all}, spec: {policyName: all}}`},
			{"v1/validatingadmissionpolicies", `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: all}, spec: {matchConstraints: {` + all + `}, validations: [{expression: "false"}]}}`},
			{"v1/validatingadmissionpolicybindings", `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: all}, spec: {policyName: all, validationActions: [Deny]}}`},
		} {
			path := "/apis/admissionregistration.k8s.io/" + one.path
			h.Must(http.StatusCreated, "POST", path, toJSON("%s", one.object))
			t.Cleanup(func() { outer.Must(http.StatusOK, "DELETE", path+"/all", "") })
		}
		engine.VirtualWrites(t, h)
		plan := engine.PlanOf(t, h.Must(http.StatusCreated, "POST", "/apis/gatehouse.dev/v1alpha1/admissionexplanations", toJSON(
			`{spec: {all: true, resource: {group: gatehouse.dev, version: v1alpha1, resource: admissionexplanations}, object: {apiVersion: gatehouse.dev/v1alpha1, kind: AdmissionExplanation, metadata: {name: e}, spec: {resource: {version: v1, resource: pods}}}}}`)).Raw)
		reasons := map[string]string{}
		for step := range plan.Each() {
			if step.Entry != nil && step.Reason != nil {
				reasons[step.Plugin] = step.Reason.Code + ": " + step.Reason.Message
			}
		}
		const resource = " for gatehouse.dev/v1alpha1 admissionexplanations, a virtual resource"
		called, evaluated := "NotAsked: webhooks are never called"+resource, "NotAsked: policies are never evaluated"+resource
		want(t, "reasons", reasons, map[string]string{
			"MutatingAdmissionWebhook": called, "ValidatingAdmissionWebhook": called, "Initializers": "NotAsked: initializers are never set" + resource,
			"MutatingAdmissionPolicy": evaluated, "ValidatingAdmissionPolicy": evaluated,
		})
	})
	for _, review := range hook.Reviews() {
		t.Errorf("S2.38 called for %v by %v", review.Request("resource"), review.Request("userInfo", "username"))
	}
}

// TestAdmissionControl changes the order of plugins: webhooks run before initializers, and no plugin checks
// that namespaces exist.
func TestAdmissionControl(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--admission-consistency", "strict", "--admission-control", "MutatingAdmissionWebhook,Initializers,ValidatingAdmissionWebhook")
	h := s.HTTP(t, nil)
	hooks := harness.NewWebhookServer(t, nil)
	before, after := hooks.Hook("/m", harness.Allow), hooks.Hook("/v", harness.Allow)
	const all, selected = "namespaceSelector: {}", "namespaceSelector: {matchLabels: {a: b}}"
	h.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations", toJSON(`
{apiVersion: admissionregistration.k8s.io/v1alpha1, kind: InitializerConfiguration, metadata: {name: c}, initializers: [
 {name: a.example.com, rules: [{apiGroups: [apps], apiVersions: ["*"], resources: [deployments]}]}]}`))
	register(t, s, "v1", mutating, webhook("m", "default", before, all, rules(rule("*", "apps/v1/deployments"))))
	register(t, s, "v1", validating, webhook("v", "default", after, all, rules(rule("*", "apps/v1/deployments"))))
	r := h.Must(http.StatusAccepted, "POST", "/apis/apps/v1/namespaces/default/deployments"+including, deployment("apps/v1", "d"))
	want(t, "stored", pending(r.Body), "a")
	want(t, "S9.6 the mutating webhook comes before the initializers", pending(before.Last(t).Request("object")), "none")
	want(t, "S9.1 the validating pass comes after both", pending(after.Last(t).Request("object")), "a")

	for _, policy := range []string{"Fail", "Ignore"} {
		t.Run("S2.15 a namespace that does not exist, "+policy, func(t *testing.T) {
			register(t, s, "v1", validating, webhook("selected", "default", after, selected, "failurePolicy: "+policy))
			h := s.HTTP(t, nil)
			status := h.Refused(http.StatusNotFound, metav1.StatusReasonNotFound, "POST", configMaps("nowhere"), configMap("c"))
			want(t, "message", status.Message, `namespaces "nowhere" not found`)
			h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/nowhere/secrets", toJSON(`{apiVersion: v1, kind: Secret, metadata: {name: %s}}`, strings.ToLower(policy)))
		})
	}
	t.Run("S2.11 an empty selector needs no namespace", func(t *testing.T) {
		after.Forget()
		register(t, s, "v1", validating, webhook("empty", "default", after, all))
		s.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps("nowhere"), configMap("c"))
		want(t, "calls", len(after.Reviews()), 1)
	})
}

// TestPositions verifies the indices in audit annotations and messages: indices of mutating webhooks count
// all webhooks, indices of validating webhooks only the matching ones. No other test registers webhooks meanwhile.
func TestPositions(t *testing.T) {
	j := newJudged(t)
	down := "clientConfig: {url: 'https://" + harness.Refused(t) + "'}"
	hook := j.hooks.Hook("/", harness.Allow)
	const never, ignore = "objectSelector: {matchLabels: {nothing: here}}", "failurePolicy: Ignore"
	for _, kind := range []string{mutating, validating} {
		registerAs(t, j.Server, "v1", kind, "b", webhook("b0", "default", hook, never), webhook("b1", "default", hook))
		registerAs(t, j.Server, "v1", kind, "a", webhook("a0", "default", hook, never), webhook("a1", "default", hook, down, ignore))
	}
	r := j.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps("default"), configMap("c"))
	found := map[string]string{}
	for k, v := range j.annotations(t, r) {
		if strings.Contains(k, "webhook.admission.k8s.io/") {
			found[k] = v
		}
	}
	want(t, "S5.25 S5.27 S6.7 annotations", found, map[string]string{
		"mutation.webhook.admission.k8s.io/round_0_index_1":               `{"configuration":"a","webhook":"a1.default.example.com","mutated":false}`,
		"failed-open.mutation.webhook.admission.k8s.io/round_0_index_1":   "a1.default.example.com",
		"mutation.webhook.admission.k8s.io/round_0_index_3":               `{"configuration":"b","webhook":"b1.default.example.com","mutated":false}`,
		"failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "a1.default.example.com",
	})
	t.Run("S5.1 the order of calls", func(t *testing.T) {
		seen := map[string]int{}
		var order []string
		record := func(name string) harness.Answer {
			return harness.Answer(func(w http.ResponseWriter, r *harness.Review) {
				order = append(order, name)
				seen[name]++
				harness.Allow(w, r)
			})
		}
		const serial = "sideEffects: NoneOnDryRun"
		of := func(name string) map[string]any {
			return webhook(name, "default", j.hooks.Hook("/"+name, record(name)), serial)
		}
		registerAs(t, j.Server, "v1", mutating, "d.b", of("d0"))
		registerAs(t, j.Server, "v1beta1", mutating, "d-b", of("d1"), of("d2"))
		registerAs(t, j.Server, "v1", mutating, "c10", of("c1"))
		registerAs(t, j.Server, "v1", mutating, "c2", of("c2"))
		j.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps("default"), configMap("d"))
		want(t, "order", order, []string{"c1", "c2", "d1", "d2", "d0"})
	})
}

// TestRegistrationsCannotBeRead disconnects etcd for longer than a server may use its known registrations.
func TestRegistrationsCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, c := range speed.Some(t, 1, []struct {
		name        string
		leave, back func(*harness.Etcd)
		disabled    []string
		// The error: the operation, the cause, and the beginning of the message.
		operation, cause, message string
	}{
		{"S11.10 S11.11 reads hang, the gate of initializers", func(e *harness.Etcd) { e.Pause(t) }, func(e *harness.Etcd) { e.Resume(t) }, []string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"},
			"create", "InitializerConfigurationFailure", "Unable to refresh the initializer configuration: "},
		{"S11.10 S11.11 reads fail, the gate of webhooks", func(e *harness.Etcd) { e.Kill(t) }, func(e *harness.Etcd) { e.Start(t) }, []string{"Initializers", "MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"},
			"CREATE", "MutatingWebhookConfigurationFailure", "Unable to refresh the Webhook configuration: "},
	}) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			etcd := harness.StartEtcd(t)
			s := harness.Start(t, "--etcd-servers", etcd.URL, "--disable-admission-plugins", strings.Join(c.disabled, ","))
			h := s.HTTP(t, nil)
			// On a busy machine, the registrations may be some seconds old.
			began := time.Now().Add(-time.Duration(h.Metrics().Single("gatehouse_admission_registrations_age_seconds") * float64(time.Second)))
			c.leave(etcd)
			gone := true
			t.Cleanup(func() {
				if gone {
					c.back(etcd)
				}
			})
			harness.Eventually(t, "the gate", func() error {
				// Before admission closes, the write reaches its timeout while it waits for a late read
				// (S11.9) or for the storage.
				age := time.Since(began)
				code, err := h.Try(harness.Context(t), "POST", configMaps("default")+"?timeout=1s", configMap("c"))
				if err != nil || code != http.StatusInternalServerError && code != http.StatusGatewayTimeout {
					t.Errorf("S11.9 S11.10 a write while there is no store: %d, %v", code, err)
				}
				if age <= 5*time.Second || code != http.StatusInternalServerError {
					return fmt.Errorf("%d when the registrations were %s old", code, age)
				}
				return nil
			})
			asked := time.Now()
			refused := h.Do("POST", configMaps("default")+"?timeout=2s", configMap("c"))
			if waited := time.Since(asked); waited < time.Second {
				t.Errorf("S11.13 refused after %s, with 2s to wait", waited)
			}
			status := refused.Refusal(http.StatusInternalServerError, "LoadingConfiguration")
			want(t, "S11.11 Retry-After", refused.Header.Get("Retry-After"), "1")
			want(t, "S11.11 details", []string{status.Details.Name, status.Details.Kind, fmt.Sprint(status.Details.RetryAfterSeconds), string(status.Details.Causes[0].Type)},
				[]string{c.operation, "configmaps", "1", c.cause})
			if !strings.HasPrefix(status.Message, c.message) {
				t.Errorf("S11.11 message is %q", status.Message)
			}
			// It cannot be stored, but not because of missing registrations.
			code, err := h.Try(harness.Context(t), "POST", registrationsPath("v1", validating)+"?timeout=1s", toJSON(
				`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: v}, webhooks: []}`))
			if err != nil || code != http.StatusGatewayTimeout {
				t.Errorf("S2.40 an exempt kind: %d, %v, want no gate and no time left", code, err)
			}

			c.back(etcd)
			gone = false
			began = time.Now()
			harness.Eventually(t, "writes", func() error {
				code, err := h.Try(harness.Context(t), "POST", configMaps("default")+"?timeout=1s", configMap("after"))
				if err != nil || code != http.StatusCreated && code != http.StatusConflict {
					return fmt.Errorf("%d, %v", code, err)
				}
				return nil
			})
			took := time.Since(began).Round(time.Millisecond)
			t.Logf("writes work again after %s", took)
			if took > harness.Patience/2 {
				t.Errorf("scenario 15: recovered after %s only", took)
			}
		})
	}
}

// TestHooksComeAndGo creates and deletes webhooks and their servers, and checks that the server keeps nothing
// of them.
func TestHooksComeAndGo(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t, "--admission-consistency", "strict")
	h := s.HTTP(t, nil)
	measure := func() (goroutines, files float64) {
		m := h.Metrics()
		return m.Single("go_goroutines"), m.Single("process_open_fds")
	}
	round := func() {
		const servers = 10
		var hooks []*harness.WebhookServer
		var webhooks []map[string]any
		for i := range servers {
			w := harness.NewWebhookServer(t, nil)
			hooks = append(hooks, w)
			webhooks = append(webhooks, webhook(fmt.Sprintf("w%d", i), "default", w.Hook("/", harness.Allow)))
		}
		for _, kind := range []string{mutating, validating} {
			register(t, s, "v1", kind, webhooks...)
			h.Must(http.StatusCreated, "POST", configMaps("default")+"?dryRun=All", configMap("c"))
			// Another CA bundle causes another HTTP client, which is also released.
			slices.Reverse(webhooks)
			webhooks[0]["clientConfig"] = map[string]any{"url": hooks[0].URL, "caBundle": append(slices.Clone(hooks[0].Authority.Bundle), hooks[1].Authority.Bundle...)}
			h.Must(http.StatusOK, "PATCH", registrationsPath("v1", kind)+"/w0.default", asJSON(map[string]any{"webhooks": webhooks}), "Content-Type", mergePatch)
			h.Must(http.StatusCreated, "POST", configMaps("default")+"?dryRun=All", configMap("c"))
			h.Must(http.StatusOK, "DELETE", registrationsPath("v1", kind)+"/w0.default", "")
			slices.Reverse(webhooks)
		}
		for _, w := range hooks {
			w.CloseClientConnections()
			w.Close()
		}
	}
	round()
	goroutines, files := measure()
	for range speed.Of(3, 5) {
		round()
	}
	harness.Eventually(t, "S8.7 nothing is left", func() error {
		g, f := measure()
		if g > goroutines+20 || f > files+10 {
			return fmt.Errorf("%v goroutines after the first round, %v now; %v files, %v now", goroutines, g, files, f)
		}
		return nil
	})
}

// TestIgnoredFailuresAreLogged verifies that a server logs ignored failures without any logging flag (S7.3).
func TestIgnoredFailuresAreLogged(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	h, ns := s.HTTP(t, nil), s.Namespace(t)
	w := webhook("down", ns, harness.NewWebhookServer(t, nil).Hook("/", harness.Abort), "failurePolicy: Ignore")
	register(t, s, "v1", validating, w)
	line := fmt.Sprintf("webhook=%q configuration=%q operation=\"CREATE\"", w["name"], "down."+ns)
	harness.Eventually(t, "the failure is in the log", func() error {
		h.Must(http.StatusCreated, "POST", configMaps(ns)+"?dryRun=All", configMap("c"))
		for l := range strings.Lines(s.Log()) {
			if strings.Contains(l, "Webhook call failed; ignoring it because failurePolicy is Ignore") && strings.Contains(l, line) {
				return nil
			}
		}
		return errors.New("it is not")
	})
}
