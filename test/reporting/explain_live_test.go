package reporting

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/engine"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// steps runs the command explain and returns the steps of webhooks, by name.
func steps(t *testing.T, args ...string) (map[string]*plan.Step, harness.Result) {
	t.Helper()
	r := harness.Run(t, append([]string{"explain", "-o", "json"}, args...)...)
	if r.Out == "" {
		t.Fatal(r.Err)
	}
	found := map[string]*plan.Step{}
	for s := range engine.PlanOf(t, []byte(r.Out)).Each() {
		if s.Entry != nil {
			found[s.Entry.Name] = s
		}
	}
	return found, r
}

// aliceMay returns a server that authenticates alice by a token, with alice's kubeconfig.
func aliceMay(t *testing.T, permissions ...any) (*harness.Server, string) {
	t.Helper()
	s := sole(t)
	grantAlice(t, s.HTTP(t, nil), permissions)
	return s, kubeconfigOf(t, s, "alice-token")
}

// The policies behind the webhooks of Kyverno and Gatekeeper that may apply are named from their custom
// resources, by each way to explain, if the caller may list them.
func TestExplainNamesThePoliciesBehindWebhooks(t *testing.T) {
	t.Parallel()
	s, alice := aliceMay(t,
		permission("list", "admissionregistration.k8s.io", "*"), permission("get", "", "namespaces"),
		permission("list", "kyverno.io", "clusterpolicies"), permission("list", "constraints.gatekeeper.sh", "*"))
	admin := s.HTTP(t, nil)
	ns := s.EmptyNamespace(t)
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for _, d := range []string{
		definition("kyverno.io", "ClusterPolicy", "clusterpolicies", "Cluster", "v1", "v2beta1"),
		definition("kyverno.io", "Policy", "policies", "Namespaced", "v1", "v2beta1"),
		definition("policies.kyverno.io", "ValidatingPolicy", "validatingpolicies", "Cluster", "v1", "v1beta1", "v1alpha1"),
		definition("policies.kyverno.io", "NamespacedValidatingPolicy", "namespacedvalidatingpolicies", "Namespaced", "v1"),
		definition("policies.kyverno.io", "MutatingPolicy", "mutatingpolicies", "Cluster", "v1"),
		definition("policies.kyverno.io", "ImageValidatingPolicy", "imagevalidatingpolicies", "Cluster", "v1"),
		definition("templates.gatekeeper.sh", "ConstraintTemplate", "constrainttemplates", "Cluster", "v1"),
		definition("constraints.gatekeeper.sh", "K8sRequiredLabels", "k8srequiredlabels", "Cluster", "v1beta1"),
		definition("mutations.gatekeeper.sh", "Assign", "assign", "Cluster", "v1"),
		definition("mutations.gatekeeper.sh", "AssignMetadata", "assignmetadata", "Cluster", "v1"),
	} {
		admin.Must(http.StatusCreated, "POST", definitions, d)
	}
	matches := func(kind string) map[string]any {
		return map[string]any{"rules": []any{map[string]any{"name": "r", "match": map[string]any{"any": []any{map[string]any{"resources": map[string]any{"kinds": []any{kind}}}}}}}}
	}
	specs := map[string]map[string]any{"only-pods": matches("Pod"), "require-labels": matches("ConfigMap")}
	for _, o := range []struct{ path, kind, name string }{
		{"/apis/kyverno.io/v1/clusterpolicies", "ClusterPolicy", "require-labels"},
		{"/apis/kyverno.io/v1/clusterpolicies", "ClusterPolicy", "only-pods"},
		{"/apis/kyverno.io/v1/clusterpolicies", "ClusterPolicy", "disallow-latest"},
		{"/apis/kyverno.io/v1/namespaces/" + ns + "/policies", "Policy", "team-rules"},
		{"/apis/policies.kyverno.io/v1/validatingpolicies", "ValidatingPolicy", "check-labels"},
		{"/apis/policies.kyverno.io/v1/namespaces/" + ns + "/namespacedvalidatingpolicies", "NamespacedValidatingPolicy", "own"},
		{"/apis/policies.kyverno.io/v1/mutatingpolicies", "MutatingPolicy", "add-labels"},
		{"/apis/templates.gatekeeper.sh/v1/constrainttemplates", "ConstraintTemplate", "k8srequiredlabels"},
		{"/apis/constraints.gatekeeper.sh/v1beta1/k8srequiredlabels", "K8sRequiredLabels", "must-have-owner"},
		{"/apis/mutations.gatekeeper.sh/v1/assign", "Assign", "always-pull"},
	} {
		group := strings.Split(strings.TrimPrefix(o.path, "/apis/"), "/")
		content := map[string]any{"apiVersion": group[0] + "/" + group[1], "kind": o.kind, "metadata": map[string]any{"name": o.name}}
		if specs[o.name] != nil {
			content["spec"] = specs[o.name]
		}
		body := asJSON(content)
		harness.Eventually(t, o.kind+" is served", func() error {
			if r := admin.Do("POST", o.path, body); r.Code != http.StatusCreated && r.Code != http.StatusConflict {
				return fmt.Errorf("%d %s", r.Code, r.Raw)
			}
			return nil
		})
	}
	engine := func(kind, name string, webhooks ...string) {
		var list []any
		for _, w := range webhooks {
			list = append(list, map[string]any{
				"name": w, "clientConfig": map[string]any{"url": "https://127.0.0.1:1/"}, "failurePolicy": "Ignore", "sideEffects": "None",
				"admissionReviewVersions": []any{"v1"}, "rules": []any{rule("CREATE", "/v1/configmaps")},
			})
		}
		admin.Must(http.StatusCreated, "POST", registrationsPath("v1", kind), configuration(kind, name, list...))
	}
	engine(validating, "kyverno-resource-validating-webhook-cfg", "validate.kyverno.svc-fail", "validate.kyverno.svc-ignore-finegrained-disallow-latest",
		"vpol.validate.kyverno.svc-fail", "ivpol.validate.kyverno.svc-fail")
	engine(mutating, "kyverno-resource-mutating-webhook-cfg", "mutate.kyverno.svc-fail", "mpol.mutate.kyverno.svc-fail")
	engine(validating, "kyverno-policy-validating-webhook-cfg", "validate-policy.kyverno.svc")
	engine(validating, "gatekeeper-validating-webhook-configuration", "validation.gatekeeper.sh", "check-ignore-label.gatekeeper.sh")
	engine(mutating, "gatekeeper-mutating-webhook-configuration", "mutation.gatekeeper.sh")

	const classic = "Kyverno policies: ClusterPolicy disallow-latest, ClusterPolicy require-labels"
	const others = " (1 more cannot apply to this request)"
	all := map[string]string{
		"validate.kyverno.svc-fail":                               classic + ", Policy " + ns + "/team-rules" + others,
		"mutate.kyverno.svc-fail":                                 classic + ", Policy " + ns + "/team-rules" + others,
		"validate.kyverno.svc-ignore-finegrained-disallow-latest": "Kyverno policies: ClusterPolicy disallow-latest",
		"vpol.validate.kyverno.svc-fail":                          "Kyverno policies: NamespacedValidatingPolicy " + ns + "/own, ValidatingPolicy check-labels",
		"ivpol.validate.kyverno.svc-fail":                         "Kyverno policies: none",
		"mpol.mutate.kyverno.svc-fail":                            "Kyverno policies: MutatingPolicy add-labels",
		"validate-policy.kyverno.svc":                             "",
		"validation.gatekeeper.sh":                                "Gatekeeper constraints: K8sRequiredLabels must-have-owner",
		"check-ignore-label.gatekeeper.sh":                        "",
		"mutation.gatekeeper.sh":                                  "Gatekeeper mutators: Assign always-pull",
	}
	some := map[string]string{
		"validate.kyverno.svc-fail":                               classic + others + " (unknown: policies.kyverno.io: may not list them)",
		"mutate.kyverno.svc-fail":                                 classic + others + " (unknown: policies.kyverno.io: may not list them)",
		"validate.kyverno.svc-ignore-finegrained-disallow-latest": all["validate.kyverno.svc-ignore-finegrained-disallow-latest"],
		"vpol.validate.kyverno.svc-fail": "Kyverno policies: (unknown: namespacedvalidatingpolicies.policies.kyverno.io: may not list them; " +
			"validatingpolicies.policies.kyverno.io: may not list them)",
		"ivpol.validate.kyverno.svc-fail":  "Kyverno policies: (unknown: imagevalidatingpolicies.policies.kyverno.io: may not list them)",
		"mpol.mutate.kyverno.svc-fail":     "Kyverno policies: (unknown: mutatingpolicies.policies.kyverno.io: may not list them)",
		"validate-policy.kyverno.svc":      "",
		"validation.gatekeeper.sh":         all["validation.gatekeeper.sh"],
		"check-ignore-label.gatekeeper.sh": "",
		"mutation.gatekeeper.sh":           "Gatekeeper mutators: (unknown: assign.mutations.gatekeeper.sh: may not list them; assignmetadata.mutations.gatekeeper.sh: may not list them)",
	}
	file := writeFile(t, t.TempDir()+"/new.json", asJSON(configMapNamed("new", ns)))
	for _, c := range []struct {
		name, kubeconfig string
		want             map[string]string
	}{{"the server explains", s.Kubeconfig, all}, {"the command reads what alice may read", alice, some}} {
		t.Run(c.name, func(t *testing.T) {
			found, r := steps(t, "-f", file, "--kubeconfig", c.kubeconfig)
			got := map[string]string{}
			for name, s := range found {
				got[name] = strings.Join(s.Notes, "; ")
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s%s", diff, r.Err)
			}
		})
	}
}

// A webhook that sees the object in another version is evaluated with the cluster's conversion: a Gatehouse
// server calls the conversion webhook; outside the server, explain reads stored objects in that version.
// Without these, the result is unknown.
func TestExplainConvertsAsTheClusterDoes(t *testing.T) {
	t.Parallel()
	s, alice := aliceMay(t, permission("*", "paint.example.com", "*"), permission("list", "admissionregistration.k8s.io", "*"), permission("get", "apiextensions.k8s.io", "*"))
	admin := s.HTTP(t, nil)
	hook := harness.NewWebhookServer(t, nil).Hook("/convert", convertColor)
	const crds, v1, v2 = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/paint.example.com/v1/pots", "/apis/paint.example.com/v2/pots"
	admin.Must(http.StatusCreated, "POST", crds, toJSON(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pots.paint.example.com}
spec:
  group: paint.example.com
  scope: Cluster
  names: {plural: pots, singular: pot, kind: Pot}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {caBundle: %s, url: %q}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {color: {type: string}}}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {colour: {type: string}}}}}`, hook.CABundle(), hook.URL()))
	harness.Eventually(t, "the definition is served", func() error {
		for _, path := range []string{v1, v2} {
			if r := admin.Do("GET", path, ""); r.Code != http.StatusOK {
				return fmt.Errorf("%d %s", r.Code, r.Raw)
			}
		}
		return nil
	})
	pot := func(name, color string) string {
		return toJSON(`{apiVersion: paint.example.com/v1, kind: Pot, metadata: {name: %s}, color: %s}`, name, color)
	}
	for name, color := range map[string]string{"scarlet": "red", "navy": "blue"} {
		admin.Must(http.StatusCreated, "POST", v1, pot(name, color))
	}
	webhookOn := func(name, expression string) any {
		return map[string]any{
			"name": name, "clientConfig": map[string]any{"url": "https://127.0.0.1:1/"}, "failurePolicy": "Ignore", "sideEffects": "None",
			"admissionReviewVersions": []any{"v1"}, "rules": []any{rule("*", "paint.example.com/v2/pots")},
			"matchConditions": []any{map[string]any{"name": "c", "expression": expression}},
		}
	}
	admin.Must(http.StatusCreated, "POST", registrationsPath("v1", validating), configuration(validating, "c",
		webhookOn("red.example.com", "(object != null ? object : oldObject).colour == 'red'"),
		webhookOn("any.example.com", "request.operation != 'CONNECT'")))

	dir := t.TempDir()
	red := writeFile(t, dir+"/red.json", pot("new", "red"))
	blue := writeFile(t, dir+"/blue.json", pot("new", "blue"))
	repainted := writeFile(t, dir+"/repainted.json", pot("navy", "red"))
	const webhookConverts = "unknown: the object is converted to paint.example.com/v2 by a webhook of the cluster, which only converts stored objects"
	for _, c := range speed.Some(t, 2, []struct {
		name string
		args []string
		// server and outside are the expected outcome of the first webhook.
		server, outside string
	}{
		{"a create of a red one", []string{"-f", red}, "call", webhookConverts},
		{"a create of a blue one", []string{"-f", blue}, "skip", webhookConverts},
		{"an update that changes nothing of a red one", []string{"pots.v1.paint.example.com/scarlet"}, "call", "call"},
		{"an update that changes nothing of a blue one", []string{"pots.v1.paint.example.com/navy"}, "skip", "skip"},
		{"a deletion of a red one", []string{"pots.v1.paint.example.com/scarlet", "--operation", "DELETE"}, "call", "call"},
		{"a deletion of a blue one", []string{"pots.v1.paint.example.com/navy", "--operation", "DELETE"}, "skip", "skip"},
		{"a blue one becomes red", []string{"-f", repainted, "--operation", "UPDATE"}, "call", webhookConverts},
	}) {
		for kubeconfig, want := range map[string]string{s.Kubeconfig: c.server, alice: c.outside} {
			t.Run(fmt.Sprintf("%s/server=%t", c.name, kubeconfig == s.Kubeconfig), func(t *testing.T) {
				args := append(slices.Clone(c.args), "--all", "--kubeconfig", kubeconfig)
				if strings.HasSuffix(repainted, c.args[len(c.args)-1]) || slices.Contains(c.args, repainted) {
					// An update names the resourceVersion of the object.
					version := admin.Get(v1+"/navy").Text("metadata", "resourceVersion")
					writeFile(t, repainted, strings.Replace(pot("navy", "red"), `"name":"navy"`, `"name":"navy","resourceVersion":"`+version+`"`, 1))
				}
				found, r := steps(t, args...)
				got := found["red.example.com"]
				if got == nil || found["any.example.com"] == nil {
					t.Fatalf("a webhook is missing:\n%s%s", r.Out, r.Err)
				}
				text := string(got.Effect)
				if got.Effect == "unknown" && got.Reason != nil {
					text = got.Reason.Message
				}
				if text != want {
					t.Errorf("got %q, want %q\n%s%s", text, want, r.Out, r.Err)
				}
				if got := found["any.example.com"]; got.Effect != "call" || got.As == nil || got.As.APIVersion != "paint.example.com/v2" || !got.As.Equivalent {
					t.Errorf("a condition that does not look at the object: %+v\n%s", got, r.Out)
				}
			})
		}
	}
}

// A user with read access to a single namespace gets a partial answer that says so, and learns nothing about
// other namespaces or the cluster: from the server and from outside, about the plan, about traces and about
// the author of a field.
func TestWhoMayReadTheirNamespaceOnly(t *testing.T) {
	t.Parallel()
	s := sole(t)
	admin := s.HTTP(t, nil)
	own, other := s.EmptyNamespace(t), s.EmptyNamespace(t)
	hook := harness.NewWebhookServer(t, nil).Hook("/label", harness.Patch(`[{"op":"add","path":"/metadata/labels","value":{"team":"red"}}]`))
	for _, ns := range []string{own, other} {
		register(t, s, "v1", mutating, webhook("hush-"+ns, ns, hook, rules(rule("*", "/v1/configmaps"))))
		admin.Must(http.StatusCreated, "POST", configMaps(ns), `{"metadata":{"name":"stored"}}`)
		admin.Must(http.StatusOK, "PATCH", "/api/v1/namespaces/"+ns, `{"metadata":{"labels":{"hush-label":"1"}}}`, "Content-Type", mergePatch)
	}
	for _, user := range []string{"alice", "bob"} {
		admin.Must(http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+own+"/roles",
			`{"metadata":{"name":"`+user+`"},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["get","list","watch"]}]}`)
		admin.Must(http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+own+"/rolebindings",
			`{"metadata":{"name":"`+user+`"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"`+user+`"},"subjects":[{"kind":"User","name":"`+user+`"}]}`)
	}
	grant(admin, "bob", "", "gatehouse.dev", "admissionexplanations", `["create"]`)
	users := map[string]string{"from outside": kubeconfigOf(t, s, "alice-token"), "by the server": kubeconfigOf(t, s, "bob-token")}
	file := writeFile(t, t.TempDir()+"/new.json", asJSON(configMapNamed("new", own)))
	elsewhere := writeFile(t, t.TempDir()+"/new.json", asJSON(configMapNamed("new", other)))
	for who, kubeconfig := range users {
		for _, c := range speed.Some(t, 2, []struct {
			name string
			args []string
			code int
			says []string
		}{
			{"a create in their namespace", []string{"explain", "-f", file, "--all"}, 0, []string{
				"may not list mutatingwebhookconfigurations", "may not list validatingwebhookconfigurations", "may not list initializerconfigurations",
				"may not list externaladmissionhookconfigurations", "may not list validatingadmissionpolicies", "may not list mutatingadmissionpolicies",
			}},
			{"an update in their namespace", []string{"explain", "configmap/stored", "-n", own, "--all"}, 0, []string{"may not list mutatingwebhookconfigurations"}},
			{"a create elsewhere", []string{"explain", "-f", elsewhere, "--all"}, 0, []string{"may not list mutatingwebhookconfigurations"}},
			{"an update elsewhere", []string{"explain", "configmap/stored", "-n", other}, 1, []string{mayNotGet}},
			{"an update of nothing elsewhere", []string{"explain", "configmap/none", "-n", other}, 1, []string{mayNotGet}},
			{"a deletion elsewhere", []string{"explain", "configmap/stored", "-n", other, "--operation", "DELETE"}, 1, []string{mayNotGet}},
			{"an update of their namespace's labels", []string{"explain", "namespace/" + other}, 1, []string{mayNotGet}},
			{"the traces of their namespace", []string{"trace", "-n", own}, 0, []string{"configmaps stored"}},
			{"the traces elsewhere", []string{"trace", "-n", other}, 1, []string{"reading traces needs"}},
			{"all traces", []string{"trace", "-A"}, 1, []string{"reading traces needs"}},
			{"blame elsewhere", []string{"blame", "configmap/stored", "-n", other}, 1, []string{"reading traces needs"}},
		}) {
			if who == "from outside" && slices.Contains(c.says, mayNotGet) {
				// If the user may not send the request either, the answer is the cluster's rejection, which
				// reveals nothing.
				c.code, c.says = 0, []string{`is forbidden: User "alice" cannot`}
			}
			t.Run(c.name+", "+who, func(t *testing.T) {
				args := append(slices.Clone(c.args), "--kubeconfig", kubeconfig)
				harness.Eventually(t, "the right answer", func() error {
					// RBAC rules take effect shortly after they are written.
					r := harness.Run(t, args...)
					text := r.Out + r.Err
					if r.Code != c.code {
						return fmt.Errorf("exit code %d, want %d:\n%s", r.Code, c.code, text)
					}
					for _, say := range c.says {
						if !strings.Contains(text, say) {
							return fmt.Errorf("it does not say %q:\n%s", say, text)
						}
					}
					// Users may read all contents of traces in their namespace.
					if c.args[0] != "trace" && strings.Contains(text, "hush-") {
						return fmt.Errorf("it says what may not be read:\n%s", text)
					}
					if c.args[len(c.args)-1] == "configmap/none" && strings.Contains(text, "not found") {
						return fmt.Errorf("it says what exists elsewhere:\n%s", text)
					}
					return nil
				})
			})
		}
	}
	// Users may learn the author of a field of their object: the traces of the namespace contain it.
	blameOf(t, s, own, "configmap/stored", blamed{"/metadata/labels", "hush-" + own + "." + own + "/hush-" + own + "." + own + ".example.com", "webhook", "same"})
}

// kubectl explain describes every field of a plan.
func TestKubectlExplainsPlans(t *testing.T) {
	t.Parallel()
	k := harness.Shared(t).Kubectl(t, "default")
	described := map[string]string{
		"status.plan":                                  "every step of both passes",
		"status.plan.worstCaseSeconds":                 "each one takes its whole timeout",
		"status.plan.steps.effect":                     "call, evaluate, pend, run, reject, ignore, skip",
		"status.plan.steps.as.equivalent":              "so that the objects are converted",
		"status.plan.steps.evaluations.falseCondition": "match condition",
		"status.plan.request.dryRun":                   "which stores no object",
	}
	for _, field := range speed.Some(t, 1, slices.Sorted(maps.Keys(described))) {
		says := described[field]
		out := strings.Join(strings.Fields(k.Must("explain", "admissionexplanation."+field)), " ")
		if !strings.Contains(out, says) {
			t.Errorf("%s: %q is not in %s", field, says, out)
		}
	}
	if out := k.Must("explain", "admissionexplanation", "--recursive"); !strings.Contains(out, "mayReinvoke") {
		t.Errorf("kubectl explain --recursive printed:\n%s", out)
	}
}

// An unregistered policy is evaluated on a live cluster: by a server that explains, or else by the command
// (S20.10). Nothing is registered.
func TestExplainTriesPolicies(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	ns := s.Namespace(t)
	const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: tried-by-explain}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]}
  validations: [{expression: "object.data.size() > 1", message: "more data, please"}, {expression: "!has(object.dat)", message: never}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: tried-by-explain}
spec: {policyName: tried-by-explain, validationActions: [Deny]}
`
	object := harness.WriteFile(t, filepath.Join(t.TempDir(), "object.yaml"), "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: "+ns+"}, data: {a: b}}")
	with := harness.WriteFile(t, filepath.Join(t.TempDir(), "policy.yaml"), policy)
	explain := func(args ...string) harness.Result {
		return harness.Run(t, append([]string{"explain", "--kubeconfig", s.Kubeconfig, "-f", object}, args...)...)
	}
	if r := explain(); strings.Contains(r.Out, "more data") {
		t.Errorf("without --with: %s", r.Out)
	}
	if r := explain("--with", with, "--exit-code"); r.Code != 3 || !strings.Contains(r.Out, "more data, please") || !strings.Contains(r.Out, "undefined field 'dat'") {
		t.Errorf("by the server: exit %d: %s%s", r.Code, r.Out, r.Err)
	}
	if r := explain("--with", with, "--operation", "UPDATE", "--old", object, "--exit-code"); r.Code != 3 || !strings.Contains(r.Out, "more data, please") {
		t.Errorf("by the command: exit %d: %s%s", r.Code, r.Out, r.Err)
	}
	if r := explain("--with", with, "-o", "html"); r.Code != 0 || !strings.Contains(r.Out, "what if") || !strings.Contains(r.Out, "undefined field") {
		t.Errorf("as a page: exit %d: %s", r.Code, r.Err)
	}
	if r := explain("--with", object); r.Code == 0 || !strings.Contains(r.Err, "object.yaml") || !strings.Contains(r.Err, "is neither a policy nor a binding") {
		t.Errorf("with another object: exit %d: %s", r.Code, r.Err)
	}
	if registered := harness.Names(s.HTTP(t, nil).Get("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")); slices.Contains(registered, "tried-by-explain") {
		t.Errorf("what was tried is registered: %q", registered)
	}
}
