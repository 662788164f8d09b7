package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// The program of a server is replaced under load: this program, then the latest release, then this program
// again. Each continues with the data of the previous one: no acknowledged write is lost, whether the server
// ends in order or is killed, credentials stay valid, and every kind of registration evaluates the first
// request (S11.9, S12.9, S20.7).
func TestNoAcknowledgedWriteIsLostByAnUpgrade(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	released := harness.Previous(t)
	hooks := harness.NewWebhookServer(t, []string{"external.default.svc"})
	s := harness.StartProgram(t, released, t.TempDir(), "--service-address", "default/external="+hooks.Address())
	judged := registerAllKinds(t, s, hooks)
	s.HTTP(t, nil).Must(http.StatusCreated, "POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`)
	token := s.HTTP(t, nil).Must(http.StatusCreated, "POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", `{"spec":{}}`).Text("status", "token")
	admin := s.Admin
	l := newLedger()
	for i, next := range []struct {
		program string
		end     func(testing.TB)
	}{
		{"", s.Stop}, {released, s.Stop}, {"", s.Kill}, {released, s.Kill}, {"", s.Stop},
	} {
		stop := begin(t, l, s, fmt.Sprintf("u%d", i), nil)
		progress(t, l, 200)
		next.end(t)
		stop()
		s.Become(t, next.program)
		judged(i)
		l.check(t, s)
		s.Admin = admin
		s.HTTP(t, nil).Get("/api/v1/namespaces/default/serviceaccounts/robot")
		if got := harness.WhoIs(t, s, token); got != "system:serviceaccount:default:robot" {
			t.Errorf("after change %d the token is that of %q", i, got)
		}
	}
	t.Logf("%d writes were acknowledged, and are there", l.count())
}

// registerAllKinds creates a registration of every kind, and returns a function that checks that all of them
// are active.
func registerAllKinds(t *testing.T, s *harness.Server, hooks *harness.WebhookServer) (judged func(i int)) {
	t.Helper()
	h := s.HTTP(t, nil)
	label := func(key string) harness.Answer {
		return harness.Patch(fmt.Sprintf(`[{"op":"add","path":"/metadata/labels","value":{%q:"yes"}}]`, key))
	}
	external := hooks.Hook("/", func(w http.ResponseWriter, _ *harness.Review) {
		harness.WriteJSON(w, http.StatusOK, map[string]any{"status": map[string]any{"allowed": false, "status": map[string]any{"message": "denied by the external hook"}}})
	})
	// Each registration matches the ConfigMaps of its own namespace, except initializers, which have no
	// namespace selector.
	in := func(name string) string {
		h.Must(http.StatusCreated, "POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		return fmt.Sprintf(`"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}`, name)
	}
	const rule = `{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}`
	webhook := func(name string, hook *harness.Hook) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"webhooks":[{"name":"%s.example.com","clientConfig":%s,"rules":[%s],"sideEffects":"None","admissionReviewVersions":["v1"],%s}]}`,
			name, name, harness.AsJSON(hook.ClientConfig()), rule, in(name))
	}
	const v1, alpha = harness.RegistrationGroup + "v1/", harness.RegistrationGroup + "v1alpha1/"
	for _, one := range []struct{ path, object string }{
		{v1 + "mutatingwebhookconfigurations", webhook("mutating", hooks.Hook("/mutating", label("webhook")))},
		{v1 + "validatingwebhookconfigurations", webhook("validating", hooks.Hook("/validating", harness.Deny(map[string]any{"message": "denied by the webhook"})))},
		{alpha + "externaladmissionhookconfigurations", fmt.Sprintf(`{"metadata":{"name":"external"},"externalAdmissionHooks":[{"name":"external.example.com","failurePolicy":"Ignore","rules":[%s],%s,
			"clientConfig":{"caBundle":%q,"service":{"namespace":"default","name":"external"}}}]}`, rule, in("external"), external.CABundle())},
		{alpha + "initializerconfigurations", `{"metadata":{"name":"initialized"},"initializers":[{"name":"one.initialized.example.com","rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["secrets"]}]}]}`},
		{v1 + "validatingadmissionpolicies", fmt.Sprintf(`{"metadata":{"name":"policy"},"spec":{"matchConstraints":{"resourceRules":[%s],%s},"validations":[{"expression":"false","message":"denied by the policy"}]}}`, rule, in("policy"))},
		{v1 + "validatingadmissionpolicybindings", `{"metadata":{"name":"policy"},"spec":{"policyName":"policy","validationActions":["Deny"]}}`},
		{v1 + "mutatingadmissionpolicies", fmt.Sprintf(`{"metadata":{"name":"label"},"spec":{"matchConstraints":{"resourceRules":[%s],%s},"reinvocationPolicy":"Never",
			"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'policy': 'yes'}}}"}}]}}`, rule, in("label"))},
		{v1 + "mutatingadmissionpolicybindings", `{"metadata":{"name":"label"},"spec":{"policyName":"label"}}`},
	} {
		h.Must(http.StatusCreated, "POST", one.path, one.object)
	}
	judged = func(i int) {
		t.Helper()
		h := s.HTTP(t, nil)
		for _, one := range []struct {
			namespace, kind, want string
			code                  int
		}{
			{"mutating", "configmaps", `"labels":{"webhook":"yes"}`, http.StatusCreated},
			{"validating", "configmaps", "denied by the webhook", http.StatusBadRequest},
			{"external", "configmaps", "denied by the external hook", http.StatusBadRequest},
			{"default", "secrets", `"pending":[{"name":"one.initialized.example.com"}]`, http.StatusAccepted},
			{"policy", "configmaps", "denied by the policy", http.StatusUnprocessableEntity},
			{"label", "configmaps", `"labels":{"policy":"yes"}`, http.StatusCreated},
		} {
			r := h.Do("POST", "/api/v1/namespaces/"+one.namespace+"/"+one.kind+harness.Including, fmt.Sprintf(`{"metadata":{"name":"judged-%d"}}`, i))
			if r.Code != one.code || !strings.Contains(string(r.Raw), one.want) {
				t.Errorf("change %d, %s: %d %s, want %d with %s", i, one.namespace, r.Code, r.Raw, one.code, one.want)
			}
		}
	}
	judged(-1)
	return judged
}
