package webhooks

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// calls returns the operations of a hook's reviews since the last Forget, each with the name of the resource
// unless that is configmaps. A repeated call is listed once: an update based on an outdated object is
// evaluated again (S3.16).
func calls(h *harness.Hook) []string {
	list := []string{}
	for _, r := range h.Reviews() {
		call := r.Text("operation")
		if resource := r.Text("resource", "resource"); resource != "configmaps" {
			call += " " + resource
		}
		if sub := r.Text("subResource"); sub != "" {
			call += "/" + sub
		}
		list = append(list, call)
	}
	h.Forget()
	return slices.Compact(list)
}

// awaitCache waits until the server's cache contains the result of a write. Until then, the next write may
// first be evaluated with the old object and then again (S3.16), so that webhooks may be called for removed
// labels.
func awaitCache(t *testing.T, h *harness.HTTP, path string, written *harness.Response) {
	t.Helper()
	version := written.Text("metadata", "resourceVersion")
	harness.Eventually(t, "the cache has "+path, func() error {
		if r := h.Do("GET", path+"?resourceVersion=0", ""); r.Text("metadata", "resourceVersion") != version {
			return fmt.Errorf("%d, version %q, want %q", r.Code, r.Text("metadata", "resourceVersion"), version)
		}
		return nil
	})
}

func testNamespaceSelectors(t *testing.T, j *judged) {
	h := j.HTTP(t, nil)
	id := j.Namespace(t)
	hook := j.hooks.Hook("/"+id, harness.Allow)
	register(t, j.Server, "v1", validating, webhook("selected", id, hook, `namespaceSelector: {matchLabels: {team: `+id+`}}`,
		rules(rule("*", "/v1/configmaps", "/v1/namespaces", "/v1/namespaces/status"), rule("*", "storage.k8s.io/v1/storageclasses"))))
	namespace := func(name, team string) string {
		return toJSON(`{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {team: %s}}}`, name, team)
	}
	in, out := id+"-in", id+"-out"
	const path = "/api/v1/namespaces"
	for _, step := range []struct {
		name, method, path, body string
		want                     []string
	}{
		{"S2.12 create of a namespace, by its own labels", "POST", path, namespace(in, id), []string{"CREATE namespaces"}},
		{"S2.12 create of another namespace", "POST", path, namespace(out, "other"), nil},
		{"S2.14 create in a selected namespace", "POST", configMaps(in), configMap("c"), []string{"CREATE"}},
		{"S2.14 create in another namespace", "POST", configMaps(out), configMap("c"), nil},
		{"S2.10 a cluster-scoped resource", "POST", "/apis/storage.k8s.io/v1/storageclasses", toJSON(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: p}`, id), []string{"CREATE storageclasses"}},
		{"S2.13 status of a selected namespace", "PATCH", path + "/" + in + "/status", `{"status":{"phase":"Active"}}`, []string{"UPDATE namespaces/status"}},
		{"S2.13 status of another namespace", "PATCH", path + "/" + out + "/status", `{"status":{"phase":"Active"}}`, nil},
		{"S2.12 update of a namespace that loses the label", "PATCH", path + "/" + in, `{"metadata":{"labels":{"team":"other"}}}`, nil},
		{"S2.12 update of a namespace that gets the label", "PATCH", path + "/" + out, `{"metadata":{"labels":{"team":"` + id + `"}}}`, []string{"UPDATE namespaces"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			h := j.HTTP(t, nil)
			var headers []string
			if step.method == "PATCH" {
				headers = []string{"Content-Type", mergePatch}
			}
			if r := h.Do(step.method, step.path, step.body, headers...); r.Code >= 300 {
				t.Fatalf("%d %s", r.Code, r.Raw)
			}
			want(t, "calls", calls(hook), append([]string{}, step.want...))
		})
	}
	// From here on, the labels in the cache matter.
	heard := func(namespace, what string, called bool) {
		harness.Eventually(t, what, func() error {
			hook.Forget()
			h.Must(http.StatusOK, "PATCH", configMaps(namespace)+"/c?dryRun=All", `{"data":{"a":"b"}}`, "Content-Type", mergePatch)
			if n := len(hook.Reviews()); (n > 0) != called {
				return fmt.Errorf("%d calls", n)
			}
			return nil
		})
		hook.Forget()
	}
	heard(out, "S2.14 the label that the namespace got", true)
	heard(in, "S2.14 the label that the namespace lost", false)
	h.Must(http.StatusOK, "DELETE", path+"/"+out, "")
	want(t, "S2.13 S2.9 delete of a selected namespace", hook.Last(t).Text("operation")+" "+hook.Last(t).Text("namespace"), "DELETE "+out)
	hook.Forget()
	h.Must(http.StatusOK, "DELETE", path+"/"+in, "")
	for _, r := range hook.Reviews() {
		if r.Text("namespace") == in {
			t.Errorf("S2.13 called for the delete of another namespace: %s", r.Raw)
		}
	}
	h.Refused(http.StatusNotFound, "NotFound", "POST", configMaps(id+"-none"), configMap("c"))
	h.Must(http.StatusOK, "DELETE", "/apis/storage.k8s.io/v1/storageclasses/"+id, "")
}

// A DeploymentRollback cannot have labels: an object selector never matches it, not even a selector for the
// absence of a label (S2.18).
func testRollbacks(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	hook, not := j.hooks.Hook("/"+ns, harness.Allow), j.hooks.Hook("/not"+ns, harness.Allow)
	creates := rules(rule("CREATE", "extensions/v1beta1/deployments/rollback"))
	register(t, j.Server, "v1", validating,
		webhook("all", ns, hook, creates),
		webhook("unlabelled", ns, not, `objectSelector: {matchExpressions: [{key: color, operator: DoesNotExist}]}`, creates))
	h := j.HTTP(t, nil)
	path := "/apis/extensions/v1beta1/namespaces/" + ns + "/deployments"
	h.Must(http.StatusCreated, "POST", path, deployment("extensions/v1beta1", "d"))
	h.Must(http.StatusCreated, "POST", path+"/d/rollback", `{"kind":"DeploymentRollback","apiVersion":"extensions/v1beta1","name":"d","rollbackTo":{"revision":3}}`)
	reviews := hook.Reviews()
	if len(reviews) != 1 || len(not.Reviews()) != 0 {
		t.Fatalf("the webhooks were called %d and %d times", len(reviews), len(not.Reviews()))
	}
	want(t, "object", reviews[0].Text("object", "kind")+" "+reviews[0].Text("object", "name"), "DeploymentRollback d")
	want(t, "subresource", reviews[0].Text("subResource"), "rollback")
}

func testObjectSelectors(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	hook, not := j.hooks.Hook("/"+ns, harness.Allow), j.hooks.Hook("/not"+ns, harness.Allow)
	all := rules(rule("*", "/v1/configmaps", "/v1/pods/exec"))
	register(t, j.Server, "v1", validating,
		webhook("in", ns, hook, `objectSelector: {matchLabels: {color: red}}`, all),
		webhook("not", ns, not, `objectSelector: {matchExpressions: [{key: color, operator: NotIn, values: [red]}]}`, all))
	j.HTTP(t, nil).Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/pods", pod("p"))
	color := func(c string) string { return `{"metadata":{"labels":{"color":` + c + `}}}` }
	for _, step := range []struct {
		name, method, path, body string
		in, not                  []string
	}{
		{"S2.18 create with the label", "POST", "", configMap("red", "color", "red"), []string{"CREATE"}, nil},
		{"S2.18 create with another label", "POST", "", configMap("blue", "color", "blue"), nil, []string{"CREATE"}},
		{"S2.19 create without labels", "POST", "", toJSON(`{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}}`), nil, []string{"CREATE"}},
		{"S2.18 update, only the old object", "PATCH", "/red", color(`null`), []string{"UPDATE"}, []string{"UPDATE"}},
		{"S2.18 update, neither", "PATCH", "/red", color(`"green"`), nil, []string{"UPDATE"}},
		{"S2.18 update, only the new object", "PATCH", "/red", color(`"red"`), []string{"UPDATE"}, []string{"UPDATE"}},
		{"S2.18 update, both", "PATCH", "/red", `{"data":{"x":"y"}}`, []string{"UPDATE"}, nil},
		{"S2.18 delete, the old object", "DELETE", "/red", "", []string{"DELETE"}, nil},
		{"S2.18 delete of another", "DELETE", "/blue", "", nil, []string{"DELETE"}},
		{"S2.18 connect", "CONNECT", "", "", nil, nil},
	} {
		t.Run(step.name, func(t *testing.T) {
			h := j.HTTP(t, nil)
			hook.Forget()
			not.Forget()
			switch step.method {
			case "CONNECT":
				h.Do("POST", "/api/v1/namespaces/"+ns+"/pods/p/exec?command=ls&stdout=true", "")
			case "PATCH":
				awaitCache(t, h, configMaps(ns)+step.path, h.Must(http.StatusOK, "PATCH", configMaps(ns)+step.path, step.body, "Content-Type", mergePatch))
			case "POST":
				r := h.Must(http.StatusCreated, "POST", configMaps(ns), step.body)
				awaitCache(t, h, configMaps(ns)+"/"+r.Text("metadata", "name"), r)
			default:
				h.Must(http.StatusOK, step.method, configMaps(ns)+step.path, "")
			}
			want(t, "calls of color=red", calls(hook), append([]string{}, step.in...))
			want(t, "calls of color!=red", calls(not), append([]string{}, step.not...))
		})
	}
}

func testEquivalentMatches(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	equivalent, exact := j.hooks.Hook("/"+ns, harness.Allow), j.hooks.Hook("/exact"+ns, harness.Allow)
	both := rules(rule("CREATE,UPDATE", "apps/v1/deployments", "apps/v1/deployments/scale", "apps/v1/deployments/status"))
	register(t, j.Server, "v1", validating,
		webhook("equivalent", ns, equivalent, both, "matchPolicy: Equivalent"), webhook("exact", ns, exact, both, "matchPolicy: Exact"))
	gvk := func(r *harness.Review, field, last string) string {
		v := func(name string) string { return r.Text(field, name) }
		return strings.TrimPrefix(v("group")+"/"+v("version"), "/") + " " + v(last)
	}
	for _, c := range []struct{ version, scale string }{
		{"extensions/v1beta1", "extensions/v1beta1"},
		{"apps/v1beta1", "apps/v1beta1"},
		{"apps/v1beta2", "apps/v1beta2"},
		{"apps/v1", "autoscaling/v1"},
	} {
		t.Run("S2.22 S2.23 S2.24 S2.25 through "+c.version, func(t *testing.T) {
			h := j.HTTP(t, nil)
			path := "/apis/" + c.version + "/namespaces/" + ns + "/deployments"
			name := strings.NewReplacer("/", "-", ".", "-").Replace(c.version)
			for _, step := range []struct {
				sub, kind, requestKind string
				write                  func()
			}{
				{"", "apps/v1 Deployment", c.version + " Deployment", func() {
					h.Must(http.StatusCreated, "POST", path, deployment(c.version, name))
				}},
				{"", "apps/v1 Deployment", c.version + " Deployment", func() {
					h.Must(http.StatusOK, "PATCH", path+"/"+name, `{"spec":{"replicas":4}}`, "Content-Type", mergePatch)
				}},
				{"status", "apps/v1 Deployment", c.version + " Deployment", func() {
					h.Must(http.StatusOK, "PATCH", path+"/"+name+"/status", `{"status":{"replicas":4}}`, "Content-Type", mergePatch)
				}},
				{"scale", "autoscaling/v1 Scale", c.scale + " Scale", func() {
					h.Must(http.StatusOK, "PATCH", path+"/"+name+"/scale", `{"spec":{"replicas":5}}`, "Content-Type", mergePatch)
				}},
			} {
				equivalent.Forget()
				exact.Forget()
				step.write()
				r := equivalent.Last(t)
				want(t, "S2.24 kind", gvk(r, "kind", "kind"), step.kind)
				want(t, "S2.24 resource", gvk(r, "resource", "resource"), "apps/v1 deployments")
				want(t, "S2.24 requestKind", gvk(r, "requestKind", "kind"), step.requestKind)
				want(t, "S2.24 requestResource", gvk(r, "requestResource", "resource"), c.version+" deployments")
				want(t, "S2.24 subResource", r.Text("subResource")+" "+r.Text("requestSubResource"), step.sub+" "+step.sub)
				want(t, "S2.27 object", r.Text("object", "apiVersion")+" "+r.Text("object", "kind"), step.kind)
				if r.Text("operation") == "UPDATE" {
					want(t, "S2.27 oldObject", r.Text("oldObject", "apiVersion")+" "+r.Text("oldObject", "kind"), step.kind)
				}
				want(t, "S2.22 called with Exact", len(exact.Reviews()) > 0, c.version == "apps/v1")
			}
		})
	}
}

func testMatchConditions(t *testing.T, j *judged) {
	h := j.HTTP(t, nil)
	ns := j.Namespace(t)
	h.Must(http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/rolebindings", toJSON(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: alice}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]}`))
	alice := j.HTTP(t, j.WithToken("alice-token"))
	harness.Eventually(t, "the binding is heard of", func() error {
		if r := alice.Do("GET", configMaps(ns), ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})
	const broken = "object.data.nothing == 'x'"
	check := func(verb string) string {
		return fmt.Sprintf("authorizer.group('').resource('secrets').namespace('%s').check('%s').allowed()", ns, verb)
	}
	type count struct {
		title, webhook     string
		exclusions, errors float64
		cannotCount        bool
	}
	var counted []count
	for i, c := range []struct {
		name        string
		conditions  []string
		alice       bool
		calls       int
		refusal     string // with failurePolicy Fail; with Ignore, the webhook is skipped
		errors      float64
		exclusions  float64
		cannotCount bool
	}{
		{name: "S2.32 all are true", conditions: []string{"true", "object.data.key == 'value'", "oldObject == null", "request.operation == 'CREATE'"}, calls: 1},
		{name: "S2.32 one is false", conditions: []string{"true", "false"}, exclusions: 1},
		{name: "S2.32 an error before false", conditions: []string{broken, "false"}, errors: 1, exclusions: 1},
		{name: "S2.32 false before an error", conditions: []string{"false", broken}, exclusions: 1, cannotCount: true},
		{name: "S2.32 S2.33 an error and true", conditions: []string{"true", broken}, refusal: "expression 'object.data.nothing == 'x'' resulted in error: no such key: nothing", errors: 1},
		{name: "S2.30 request", conditions: []string{"request.resource.resource == 'configmaps' && request.kind.kind == 'ConfigMap' && !request.dryRun && request.namespace == '" + ns + "'"}, calls: 1},
		{name: "S2.30 the user", conditions: []string{"request.userInfo.username == 'alice' && 'devs' in request.userInfo.groups"}, alice: true, calls: 1},
		{name: "S2.30 namespaceObject is null", conditions: []string{"namespaceObject == null"}, calls: 1},
		{name: "S2.30 options", conditions: []string{"request.options.kind == 'CreateOptions' && request.options.apiVersion == 'meta.k8s.io/v1'"}, calls: 1},
		{name: "S2.30 the authorizer, allowed", conditions: []string{"authorizer.requestResource.check('create').allowed()"}, alice: true, calls: 1},
		{name: "S2.30 the authorizer, not allowed", conditions: []string{"authorizer.group('rbac.authorization.k8s.io').resource('clusterroles').check('create').allowed()"}, alice: true, exclusions: 1},
		{name: "S2.34 S2.35 the limit of an expression", conditions: []string{"!(" + check("x") + ") && !(" + check("y") + ") && !(" + check("z") + ")"}, alice: true, refusal: "operation cancelled: actual cost limit exceeded", errors: 1},
		{name: "S2.34 the limit of a webhook", conditions: []string{
			"!(" + check("q") + " || " + check("r") + ")", "!(" + check("s") + " || " + check("t") + ")", "!(" + check("u") + " || " + check("v") + ")", "!(" + check("w") + " || " + check("x") + ")"}, alice: true,
			refusal: "validation failed due to running out of cost budget, no further validation rules will be run"},
	} {
		for _, policy := range []string{"Fail", "Ignore"} {
			t.Run(c.name+", "+policy, func(t *testing.T) {
				h, label := j.HTTP(t, nil), fmt.Sprintf("m%d.%s", i, strings.ToLower(policy))
				if c.alice {
					h = j.HTTP(t, j.WithToken("alice-token"))
				}
				hook := j.hooks.Hook("/"+label+ns, harness.Allow)
				w := webhook(label, ns, hook, "failurePolicy: "+policy, "objectSelector: {matchLabels: {case: "+label+"}}")
				var conditions []any
				for n, expression := range c.conditions {
					conditions = append(conditions, map[string]any{"name": fmt.Sprintf("c%d", n), "expression": expression})
				}
				w["matchConditions"] = conditions
				register(t, j.Server, "v1", validating, w)
				r := h.Do("POST", configMaps(ns), configMap(label, "case", label))
				if c.refusal != "" && policy == "Fail" {
					status := r.Refusal(http.StatusForbidden, "Forbidden")
					if !strings.HasPrefix(status.Message, fmt.Sprintf(`configmaps %q is forbidden: `, label)) || !strings.Contains(status.Message, c.refusal) {
						t.Errorf("S2.32 message is %q", status.Message)
					}
				} else if r.Code != http.StatusCreated {
					t.Errorf("%d %s", r.Code, r.Raw)
				}
				want(t, "calls", len(hook.Reviews()), c.calls)
			})
			exclusions := c.exclusions
			if c.refusal != "" && policy == "Ignore" {
				exclusions = 1
			}
			counted = append(counted, count{c.name + ", " + policy, fmt.Sprintf(`name="m%d.%s.%s.example.com"`, i, strings.ToLower(policy), ns), exclusions, c.errors, c.cannotCount})
		}
	}
	metrics := h.Metrics()
	for _, c := range counted {
		const metric, kind = "apiserver_admission_match_condition_", `kind="webhook"`
		want(t, c.title+": S10 exclusions", metrics.Value(metric+"exclusions_total", c.webhook, `type="validate"`, kind), c.exclusions)
		if !c.cannotCount {
			want(t, c.title+": S10 errors", metrics.Value(metric+"evaluation_errors_total", c.webhook, `type="validating"`, kind), c.errors)
		}
		want(t, c.title+": S10 evaluations", metrics.Value(metric+"evaluation_seconds_count", c.webhook, `type="validating"`, kind), 1.0)
	}
	t.Run("S2.31 the original resource and the converted kind", func(t *testing.T) {
		hook := j.hooks.Hook("/eq"+ns, harness.Allow)
		w := webhook("eq", ns, hook, rules(rule("CREATE", "apps/v1/deployments")), "matchPolicy: Equivalent")
		w["matchConditions"] = []any{map[string]any{"name": "c", "expression": "request.resource.group == 'extensions' && request.kind.group == 'apps' && request.requestKind.group == 'extensions' && object.apiVersion == 'apps/v1'"}}
		register(t, j.Server, "v1", validating, w)
		j.HTTP(t, nil).Must(http.StatusCreated, "POST", "/apis/extensions/v1beta1/namespaces/"+ns+"/deployments", deployment("extensions/v1beta1", "d"))
		want(t, "calls", len(hook.Reviews()), 1)
	})
}

func testBadMatchConditions(t *testing.T, j *judged) {
	ns := j.Namespace(t)
	hook := j.hooks.Hook("/"+ns, harness.Allow)
	many := strings.Repeat(`{name: a, expression: "true"}, `, 65)
	for _, c := range []struct{ name, conditions, field, reason, message string }{
		{"S1.23 does not compile", `[{name: a, expression: "object.x +"}]`, "webhooks[0].matchConditions[0].expression", "FieldValueInvalid", "compilation failed:"},
		{"S1.23 an unknown variable", `[{name: a, expression: "params.x"}]`, "webhooks[0].matchConditions[0].expression", "FieldValueInvalid", "compilation failed:"},
		{"S1.23 no bool", `[{name: a, expression: "1 + 1"}]`, "webhooks[0].matchConditions[0].expression", "FieldValueInvalid", "must evaluate to bool"},
		{"S1.23 blank", `[{name: a, expression: "  "}]`, "webhooks[0].matchConditions[0].expression", "FieldValueRequired", ""},
		{"S1.23 no name", `[{expression: "true"}]`, "webhooks[0].matchConditions[0].name", "FieldValueRequired", ""},
		{"S1.23 a bad name", `[{name: "a b", expression: "true"}]`, "webhooks[0].matchConditions[0].name", "FieldValueInvalid", ""},
		{"S1.23 a repeated name", `[{name: a, expression: "true"}, {name: a, expression: "true"}]`, "webhooks[0].matchConditions[1].name", "FieldValueDuplicate", ""},
		{"S1.23 too many", "[" + many + "]", "webhooks[0].matchConditions", "FieldValueTooMany", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := webhook("bad", ns, hook, "matchConditions: "+c.conditions)
			status := j.HTTP(t, nil).Refused(http.StatusUnprocessableEntity, "Invalid", "POST", registrationsPath("v1", validating), asJSON(map[string]any{
				"apiVersion": "admissionregistration.k8s.io/v1", "kind": validating, "metadata": map[string]any{"name": "bad"}, "webhooks": []any{w}}))
			for _, cause := range status.Details.Causes {
				if cause.Field == c.field && string(cause.Type) == c.reason && strings.Contains(cause.Message, c.message) {
					return
				}
			}
			t.Errorf("causes are %v", status.Details.Causes)
		})
	}
}
