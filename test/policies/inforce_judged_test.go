package policies

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// A request that begins after the response to a write is evaluated with the written object, for every kind of
// object that admission reads, in the default mode. S15.13, S20.8.
func TestWhatAVerdictReadsIsInForceForWhoeverWroteIt(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--enable-admission-plugins", "PodNodeSelector")
	h, rounds := s.HTTP(t, nil), speed.Of(10, 30)
	h.Must(http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", toJSON(`
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: limits.example.com},
 spec: {group: example.com, scope: Cluster, names: {plural: limits, singular: limit, kind: Limit, listKind: LimitList},
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {allowed: {type: string}}}}}]}}`))
	harness.Eventually(t, "the custom kind is served", func() error {
		if r := h.Do("GET", "/apis/example.com/v1/limits", ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
	const merge = "application/merge-patch+json"
	const rbac = "/apis/rbac.authorization.k8s.io/v1"
	const pod = `{"metadata":{"name":"judged"},"spec":{"containers":[{"name":"c","image":"x"%s}]}}`
	for _, c := range []struct {
		name string
		// The policy evaluates ConfigMaps of the namespace; kind is empty if a built-in admission plugin
		// decides.
		kind, ref, expression string
		// write writes the resource so that the requests are allowed or rejected.
		first func(ns string)
		write func(ns string, allowed bool)
		// resource, body and caller describe the evaluated request; the default is a ConfigMap by the
		// administrator.
		resource, body string
		caller         string
	}{
		{
			name: "a param by name", kind: "{apiVersion: v1, kind: ConfigMap}", ref: "{name: limits, parameterNotFoundAction: Deny}",
			expression: "params.data.allowed == 'true'",
			first: func(ns string) {
				h.Must(201, "POST", "/api/v1/namespaces/kube-public/configmaps", `{"metadata":{"name":"limits"},"data":{"allowed":"x"}}`)
				h.Must(201, "POST", configMaps(ns), `{"metadata":{"name":"limits"},"data":{"allowed":"x"}}`)
			},
			write: func(ns string, allowed bool) {
				h.Must(200, "PATCH", configMaps(ns)+"/limits", fmt.Sprintf(`{"data":{"allowed":"%t"}}`, allowed), "Content-Type", merge)
			},
		},
		{
			name: "a param that comes and goes", kind: "{apiVersion: v1, kind: Secret}", ref: "{name: limits, parameterNotFoundAction: Deny}",
			expression: "true",
			write: func(ns string, allowed bool) {
				if allowed {
					h.Must(201, "POST", "/api/v1/namespaces/"+ns+"/secrets", `{"metadata":{"name":"limits"}}`)
				} else {
					h.Must(200, "DELETE", "/api/v1/namespaces/"+ns+"/secrets/limits", "")
				}
			},
		},
		{
			name: "custom params by a selector", kind: "{apiVersion: example.com/v1, kind: Limit}", ref: "{selector: {matchLabels: {for: all}}, parameterNotFoundAction: Deny}",
			expression: "params.allowed == 'true'",
			first: func(string) {
				h.Must(201, "POST", "/apis/example.com/v1/limits", `{"apiVersion":"example.com/v1","kind":"Limit","metadata":{"name":"one","labels":{"for":"all"}},"allowed":"x"}`)
			},
			write: func(_ string, allowed bool) {
				h.Must(200, "PATCH", "/apis/example.com/v1/limits/one", fmt.Sprintf(`{"allowed":"%t"}`, allowed), "Content-Type", merge)
			},
		},
		{
			name: "the labels of the namespace", expression: "namespaceObject.metadata.labels['allowed'] == 'true'",
			write: func(ns string, allowed bool) {
				h.Must(200, "PATCH", "/api/v1/namespaces/"+ns, fmt.Sprintf(`{"metadata":{"labels":{"allowed":"%t"}}}`, allowed), "Content-Type", merge)
			},
		},
		{
			name: "rights of the caller", expression: "authorizer.group('').resource('secrets').namespace(request.namespace).check('get').allowed()", caller: "bob",
			first: func(ns string) {
				h.Must(201, "POST", rbac+"/namespaces/"+ns+"/rolebindings", `{"metadata":{"name":"writes"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"writes"},"subjects":[{"kind":"User","name":"bob"}]}`)
				h.Must(201, "POST", rbac+"/namespaces/"+ns+"/roles", `{"metadata":{"name":"writes"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["create"]}]}`)
			},
			write: func(ns string, allowed bool) {
				resources := map[bool]string{true: `"configmaps","secrets"`, false: `"configmaps"`}[allowed]
				h.Must(200, "PATCH", rbac+"/namespaces/"+ns+"/roles/writes", fmt.Sprintf(`{"rules":[{"apiGroups":[""],"resources":[%s],"verbs":["create","get"]}]}`, resources), "Content-Type", merge)
			},
		},
		{
			name: "the level of a namespace, for PodSecurity", resource: "pods", body: fmt.Sprintf(pod, `,"securityContext":{"privileged":true}`),
			write: func(ns string, allowed bool) {
				level := map[bool]string{true: "privileged", false: "baseline"}[allowed]
				h.Must(200, "PATCH", "/api/v1/namespaces/"+ns, fmt.Sprintf(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":%q}}}`, level), "Content-Type", merge)
			},
		},
		{
			name: "a LimitRange", resource: "pods", body: fmt.Sprintf(pod, `,"resources":{"limits":{"memory":"2Gi"}}`),
			write: func(ns string, allowed bool) {
				if allowed {
					h.Do("DELETE", "/api/v1/namespaces/"+ns+"/limitranges/small", "")
				} else {
					h.Must(201, "POST", "/api/v1/namespaces/"+ns+"/limitranges", `{"metadata":{"name":"small"},"spec":{"limits":[{"type":"Container","max":{"memory":"1Gi"}}]}}`)
				}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns := s.Namespace(t)
			if c.first != nil {
				c.first(ns)
			}
			if c.expression != "" {
				applyPolicy(t, s, ns, c.kind, c.ref, c.expression)
			}
			resource, body, by := "configmaps", configMap("judged"), h
			if c.resource != "" {
				resource, body = c.resource, c.body
			}
			if c.caller != "" {
				by = s.HTTP(t, s.As(c.caller))
			}
			late := 0
			for i := range rounds {
				allowed := i%2 == 0
				c.write(ns, allowed)
				r := by.Do("POST", "/api/v1/namespaces/"+ns+"/"+resource+"?dryRun=All", body)
				switch {
				case (r.Code == http.StatusCreated) == allowed:
				case r.Code >= 500:
					t.Fatalf("round %d: %d %s", i, r.Code, r.Raw)
				default:
					late++
					t.Logf("round %d, allowed %t: %d %s", i, allowed, r.Code, r.Text("message"))
				}
			}
			if late > 0 {
				t.Errorf("S20.8 %d of %d requests were judged by what was before the answered write", late, rounds)
			}
		})
	}
}

// applyPolicy writes a policy with one validation for ConfigMaps of a namespace, and its binding.
func applyPolicy(t *testing.T, s *harness.Server, ns, paramKind, paramRef, expression string) {
	t.Helper()
	spec, ref := "", ""
	if paramKind != "" {
		spec, ref = "\n  paramKind: "+paramKind, "\n  paramRef: "+paramRef
	}
	policy, binding, _ := strings.Cut(strings.NewReplacer("NS", ns, "PARAMKIND", spec, "PARAMREF", ref, "EXPRESSION", expression).Replace(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NS.example.com}
spec:PARAMKIND
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations:
  - expression: >-
      EXPRESSION
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NS.example.com}
spec:
  policyName: NS.example.com
  validationActions: [Deny]PARAMREF
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}}
`), "---")
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", validatingPolicies, harness.AsJSON(harness.Parsed(t, policy)))
	h.Must(http.StatusCreated, "POST", validatingBindings, harness.AsJSON(harness.Parsed(t, binding)))
}

// A policy whose paramKind does not exist fails at once with the reason, and delays no other request. Objects
// of a kind that can be listed but not watched can be params. S15.14, S20.9.
func TestParamsOfAKindThatCannotBeWatched(t *testing.T) {
	t.Parallel()
	s := harness.Sole(t)
	h := s.HTTP(t, nil)
	for _, kind := range []string{"{apiVersion: gatehouse.dev/v1alpha1, kind: RegistrationState}", "{apiVersion: authentication.k8s.io/v1, kind: TokenReview}"} {
		t.Run(kind, func(t *testing.T) {
			ns := s.Namespace(t)
			applyPolicy(t, s, ns, kind, "{selector: {}, parameterNotFoundAction: Allow}", "true")
			version, name, _ := strings.Cut(strings.Trim(kind, "{}"), ", ")
			want := fmt.Sprintf("paramKind kind `&ParamKind{APIVersion:%s,Kind:%s,}` not yet synced to use for admission",
				strings.TrimPrefix(version, "apiVersion: "), strings.TrimPrefix(name, "kind: "))
			r := h.Do("POST", configMaps(ns), configMap("judged"))
			if r.Code != http.StatusUnprocessableEntity && r.Code != http.StatusForbidden || !strings.Contains(r.Text("message"), want) {
				t.Errorf("S15.14 %d %s", r.Code, r.Raw)
			}
			for _, of := range []string{"validatingadmissionpolicies.", "validatingadmissionpolicybindings."} {
				state := h.Get("/apis/gatehouse.dev/v1alpha1/registrationstates/" + of + ns + ".example.com")
				if got := state.Text("problems", "0", "code"); got != "ParamKindNotWatched" {
					t.Errorf("S20.9 the state of %s says %q: %s", of, got, state.Raw)
				}
			}
		})
	}
	t.Run("listed and not watched", func(t *testing.T) {
		ns := s.Namespace(t)
		applyPolicy(t, s, ns, "{apiVersion: v1, kind: ComponentStatus}", "{selector: {}, parameterNotFoundAction: Deny}", "params.metadata.name != 'etcd-0'")
		want := "failed expression: params.metadata.name != 'etcd-0'"
		if r := h.Do("POST", configMaps(ns), configMap("judged")); r.Code != http.StatusUnprocessableEntity || !strings.Contains(r.Text("message"), want) {
			t.Errorf("S15.14 %d %s", r.Code, r.Raw)
		}
		if state := h.Get("/apis/gatehouse.dev/v1alpha1/registrationstates/validatingadmissionpolicies." + ns + ".example.com"); state.Text("problems", "0", "code") != "" {
			t.Errorf("S20.9 %s", state.Raw)
		}
	})
	if slow := s.HTTP(t, nil).Metrics().Value("gatehouse_admission_slow_reads_total", `what="params"`); slow > 0 {
		t.Errorf("%v reads of params took longer than a second", slow)
	}
}

// A policy whose expression produces gigabytes within its cost limit rejects its requests at once, and the
// server keeps running. S16.23.
func TestAnExpressionThatMakesGigabytes(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	s := harness.Sole(t)
	h := s.HTTP(t, nil)
	ns := s.Namespace(t)
	applyPolicy(t, s, ns, "", "", "object.data.key.replace('', object.data.key).replace('', object.data.key).replace('', object.data.key).size() > 0")
	body := fmt.Sprintf(`{"metadata":{"name":"judged"},"data":{"key":%q}}`, strings.Repeat("x", 200))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			r := h.Do("POST", configMaps(ns), body)
			if r.Code != http.StatusUnprocessableEntity || !strings.Contains(r.Text("message"), "actual cost limit exceeded") {
				t.Errorf("S16.23 %d %s", r.Code, r.Raw)
			}
		})
	}
	all.Wait()
	const most = 1 << 30
	if resident := h.Metrics().Value("process_resident_memory_bytes"); resident > most {
		t.Errorf("S16.23 the server holds %v MiB", resident/(1<<20))
	}
}
