package agreement

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	registrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// world is the test environment generated from a seed.
type world struct {
	configurations []configuration
	answers        map[int]answer
	// namespaces have been delivered by a watch. live are namespaces that no watch has delivered yet.
	namespaces, live []*corev1.Namespace
	// first is the action of a plugin before the webhooks; it is empty if there is no such plugin.
	first    string
	requests []*request
}

// configuration is a webhook configuration of any version and kind. Validating configurations have no
// reinvocationPolicy.
type configuration struct {
	mutating bool
	version  string
	name     string
	webhooks []registrationv1.MutatingWebhook
}

// request is a write.
type request struct {
	*endpoint
	operation admission.Operation
	namespace string
	name      string
	dryRun    bool
	object    runtime.Object
	old       runtime.Object
	options   runtime.Object
	user      user.Info
	timeout   time.Duration
	// gone is the time after which the client disconnects; 0 if it waits for the answer.
	gone time.Duration
}

// requestsPerWorld is the number of requests that are evaluated with the same webhook configurations.
const requestsPerWorld = 5

// newWorld generates the world of a seed. It is deterministic.
func newWorld(seed uint64) *world {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 8)), endpoints: endpoints()}
	for range 3 {
		g.focus = append(g.focus, g.served())
	}
	w := &world{answers: map[int]answer{}}
	w.namespaces, w.live = g.namespaces()
	w.first = pick(g, "", "", "", "once", "always")
	for range 2 + g.IntN(3) {
		w.configurations = append(w.configurations, g.configuration(w))
	}
	for range requestsPerWorld {
		w.requests = append(w.requests, g.request())
	}
	return w
}

// generator generates random values.
type generator struct {
	*rand.Rand
	endpoints []*endpoint
	// focus are the preferred endpoints of rules and requests.
	focus []*endpoint
	hooks int
	// whole reports whether all objects have their defaults.
	whole bool
}

// chance returns true in the given percentage of cases.
func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// pick returns a random element of values.
func pick[T any](g *generator, values ...T) T { return values[g.IntN(len(values))] }

// weighted calls one of the functions at random, by their weights.
func (g *generator) weighted(choices ...choice) {
	sum := 0
	for _, c := range choices {
		sum += c.weight
	}
	at := g.IntN(sum)
	for _, c := range choices {
		if at -= c.weight; at < 0 {
			c.do()
			return
		}
	}
}

type choice struct {
	weight int
	do     func()
}

func (g *generator) word() string { return pick(g, "a", "b", "c") }

// served returns an endpoint that accepts requests.
func (g *generator) served() *endpoint {
	for {
		if e := pick(g, g.endpoints...); !e.mapped {
			return e
		}
	}
}

func (g *generator) endpoint() *endpoint {
	if g.chance(80) {
		return pick(g, g.focus...)
	}
	return g.served()
}

// equivalent returns the same endpoint in another version, or e if there is no other version.
func (g *generator) equivalent(e *endpoint) *endpoint {
	var others []*endpoint
	for _, other := range g.endpoints {
		if other != e && other.resource.Resource == e.resource.Resource && other.subresource == e.subresource && len(other.operations) > 0 {
			others = append(others, other)
		}
	}
	if len(others) == 0 {
		return e
	}
	return pick(g, others...)
}

func (g *generator) labels() map[string]string {
	labels := map[string]string{}
	for key, values := range map[string][]string{"team": {"red", "blue"}, "env": {"prod", "dev"}, "app": {"a", "b"}} {
		labels[key] = values[0]
	}
	// Sorted, because the order of a map is random.
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		switch {
		case g.chance(50):
			delete(labels, key)
		case g.chance(50):
			labels[key] = map[string]string{"team": "blue", "env": "dev", "app": "b"}[key]
		}
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// selector returns a label selector. Most of them select everything.
func (g *generator) selector() *metav1.LabelSelector {
	switch n := g.IntN(400); {
	case n < 220:
		return nil
	case n < 300:
		return &metav1.LabelSelector{}
	case n < 302:
		return &metav1.LabelSelector{MatchLabels: map[string]string{nothing: nothing}}
	case n < 304:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Like", Values: []string{"red"}}}}
	case n < 306:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": "no label value!"}}
	case n < 340:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": pick(g, "red", "blue")}}
	}
	r := metav1.LabelSelectorRequirement{Key: pick(g, "team", "env", "app"), Operator: pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
	if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
		r.Values = []string{pick(g, "red", "prod", "a")}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
}

// nothing marks a field that is absent even after defaulting. Objects of a server never have such fields.
const nothing = "nothing"

func (g *generator) configuration(w *world) configuration {
	c := configuration{
		mutating: g.chance(65), version: pick(g, "v1", "v1", "v1beta1"),
		name: fmt.Sprintf("%s%d", pick(g, "a", "b-c", "b", "z"), len(w.configurations)),
	}
	for range 1 + g.IntN(4) {
		id := g.hooks
		g.hooks++
		c.webhooks = append(c.webhooks, g.webhook(id, &c))
		w.answers[id] = g.answer(c.mutating)
	}
	return c
}

// label returns the part of a webhook's address that identifies the webhook.
func label(id int, mutating bool) string {
	if mutating {
		return fmt.Sprintf("mh%d", id)
	}
	return fmt.Sprintf("vh%d", id)
}

func (g *generator) webhook(id int, c *configuration) registrationv1.MutatingWebhook {
	h := registrationv1.MutatingWebhook{
		Name:                    label(id, c.mutating) + ".example.com",
		NamespaceSelector:       g.selector(),
		ObjectSelector:          g.selector(),
		AdmissionReviewVersions: g.reviewVersions(),
	}
	if len(c.webhooks) > 0 && c.version == "v1beta1" && g.chance(20) {
		h.Name = c.webhooks[0].Name
	}
	g.address(&h.ClientConfig, label(id, c.mutating))
	for range 1 + g.IntN(2) {
		h.Rules = append(h.Rules, g.rule())
	}
	if g.chance(75) {
		h.FailurePolicy = ptr(pick(g, registrationv1.Ignore, registrationv1.Fail))
	}
	if g.chance(60) {
		h.MatchPolicy = ptr(pick(g, registrationv1.Exact, registrationv1.Equivalent))
	}
	effects := []registrationv1.SideEffectClass{registrationv1.SideEffectClassNone, registrationv1.SideEffectClassNone, registrationv1.SideEffectClassNoneOnDryRun}
	if c.version == "v1beta1" || g.chance(10) {
		effects = append(effects, registrationv1.SideEffectClassSome, registrationv1.SideEffectClassUnknown)
	}
	h.SideEffects = ptr(pick(g, effects...))
	switch {
	case g.chance(3):
		h.SideEffects = ptr(registrationv1.SideEffectClass(nothing))
	case c.version == "v1beta1" && g.chance(20):
		h.SideEffects = nil
	}
	if g.chance(60) {
		h.TimeoutSeconds = ptr(pick[int32](g, 1, 2, 5, 10, 20, 30))
	}
	if g.chance(60) {
		h.ReinvocationPolicy = ptr(pick(g, registrationv1.IfNeededReinvocationPolicy, registrationv1.IfNeededReinvocationPolicy, registrationv1.NeverReinvocationPolicy))
	}
	h.MatchConditions = g.conditions()
	return h
}

func ptr[T any](v T) *T { return &v }

func (g *generator) reviewVersions() (versions []string) {
	is := func(v ...string) func() { return func() { versions = v } }
	g.weighted(
		choice{50, is("v1")}, choice{20, is("v1beta1")}, choice{10, is("v1", "v1beta1")}, choice{6, is("v1beta1", "v1")},
		choice{4, is("v2", "v1")}, choice{4, is("v1alpha1", "v1")}, choice{3, is("v1alpha1", "v1beta1")},
		choice{2, is("v1alpha1")}, choice{1, is("v0")},
	)
	return versions
}

// expressions are match conditions.
var expressions = []string{
	"true", "true", "true", "false",
	"object != null",
	"oldObject == null",
	"object.metadata.labels['team'] == 'red'",
	"has(object.metadata.labels) && 'team' in object.metadata.labels",
	"object.spec.replicas > 1",
	"object.spec.size > 1",
	"oldObject.metadata.name.startsWith('o')",
	"request.operation == 'CREATE'",
	"request.kind.version == 'v1'",
	"request.resource.version == 'v1'",
	"request.requestKind.version == 'v1' && request.requestResource.group != 'apps'",
	"request.subResource == ''",
	"!request.dryRun",
	"has(request.namespace) && request.namespace == 'blue'",
	"request.name != 'o1'",
	"request.userInfo.username == 'alice' || 'admins' in request.userInfo.groups",
	"request.userInfo.extra['scope'][0] == 'x'",
	"request.options.kind == 'CreateOptions'",
	"has(request.options.propagationPolicy)",
	"namespaceObject == null",
	"authorizer.group('').resource('pods').check('get').allowed()",
	"authorizer.requestResource.check('delete').allowed()",
	"authorizer.path('/healthz').check('get').reason() == 'because'",
	"authorizer.group('').resource('pods').check('get').errored()",
	"authorizer.group('').resource('a').check('get').allowed() || authorizer.group('').resource('b').check('get').allowed() || authorizer.group('').resource('c').check('get').allowed()",
	"1 / (size(request.name) - 2) == 0",
	"params == null",
	"variables.a == 1",
	"object.metadata.",
	"'not a bool'",
}

const (
	// costly is below the cost limit of one expression; four times its cost are above the limit of a webhook. It uses
	// the authorizer, whose checks have a high cost and take little time.
	costly = "authorizer.group('').resource('a').check('get').allowed() || authorizer.group('').resource('b').check('list').allowed() || true"
	// endless is above the cost limit of one expression.
	endless = "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a + b + c + d + e > 0)))))"
)

func (g *generator) conditions() (all []registrationv1.MatchCondition) {
	add := func(expression string) {
		all = append(all, registrationv1.MatchCondition{Name: fmt.Sprintf("c%d", len(all)), Expression: expression})
	}
	g.weighted(
		choice{300, func() {}},
		choice{95, func() {
			for range 1 + g.IntN(3) {
				add(pick(g, expressions...))
			}
		}},
		choice{1, func() { add(endless) }},
		choice{4, func() {
			for range 3 + g.IntN(3) {
				add(costly)
			}
		}},
	)
	return all
}

// address sets a random address of a webhook.
func (g *generator) address(c *registrationv1.WebhookClientConfig, label string) {
	c.CABundle = pki.ca
	switch n := g.IntN(100); {
	case n < 2:
		c.CABundle = pki.other
	case n < 3:
		c.CABundle = []byte("no certificate")
	case n < 4:
		c.CABundle = nil
	}
	paths := []string{"/" + label, "/" + label, "/x/" + label, "//" + label, "/x//" + label, "/" + label + "/", "/./" + label, "/x/../" + label, "/a%20b/" + label, "/a%2Fb/" + label, "/" + label + "//"}
	if g.chance(25) {
		s := &registrationv1.ServiceReference{Namespace: "hooks", Name: label}
		switch n := g.IntN(100); {
		case n < 30:
		case n < 40:
			s.Path = ptr("")
		case n < 50:
			s.Path = ptr(label)
		case n < 55:
			s.Path = ptr("/")
		case n < 60:
			s.Path = ptr("/x/" + label + "/")
		default:
			s.Path = ptr("/" + label)
		}
		if g.chance(30) {
			s.Port = ptr(pick[int32](g, 443, 8443))
		}
		if g.chance(4) {
			s.Name = unresolved + label
		}
		c.Service = s
		return
	}
	host := label + ".hooks.example"
	switch n := g.IntN(100); {
	case n < 8:
		host = "127.0.0.1"
	case n < 12:
		host = "[::1]:9443"
	case n < 14:
		host = label + ".elsewhere.example"
	case n < 17:
		host = refused + label + ".hooks.example"
	case n < 25:
		host += ":8443"
	}
	if strings.Contains(host, label) {
		paths = append(paths, "", "/", "//", "/x/..")
	}
	c.URL = ptr("https://" + host + pick(g, paths...))
}

// unresolved is the prefix of the names of services without endpoints.
const unresolved = "unresolved-"

func (g *generator) rule() registrationv1.RuleWithOperations {
	e := g.endpoint()
	if g.chance(40) {
		e = g.equivalent(e)
	}
	r := registrationv1.RuleWithOperations{}
	switch {
	case g.chance(50):
		r.Operations = []registrationv1.OperationType{registrationv1.OperationAll}
	default:
		r.Operations = []registrationv1.OperationType{registrationv1.OperationType(pick(g, e.operations...))}
		if g.chance(50) {
			r.Operations = append(r.Operations, pick(g, registrationv1.Create, registrationv1.Update, registrationv1.Delete, registrationv1.Connect))
		}
	}
	either := func(exact string, others ...string) []string {
		switch {
		case g.chance(50):
			return []string{"*"}
		case g.chance(15):
			return []string{pick(g, others...), exact}
		case g.chance(10):
			return []string{pick(g, others...)}
		}
		return []string{exact}
	}
	r.APIGroups = either(e.resource.Group, "", "apps", "events.k8s.io")
	r.APIVersions = either(e.resource.Version, "v1", "v1beta1", "v1beta2", "v2", "v3")
	name := e.resource.Resource
	full := name
	if e.subresource != "" {
		full += "/" + e.subresource
	}
	switch n := g.IntN(100); {
	case n < 15:
		r.Resources = []string{"*/*"}
	case n < 30:
		r.Resources = []string{"*"}
	case n < 38:
		r.Resources = []string{name + "/*"}
	case n < 44:
		r.Resources = []string{"*/" + pick(g, "status", "scale", "exec")}
	case n < 48:
		r.Resources = []string{"*", "*/status"}
	case n < 55:
		r.Resources = []string{"pods", full}
	default:
		r.Resources = []string{full}
	}
	if g.chance(50) {
		r.Scope = ptr(pick(g, registrationv1.AllScopes, registrationv1.NamespacedScope, registrationv1.ClusterScope))
	}
	return r
}

// answer generates the answer of a webhook. Half of the answers only allow.
func (g *generator) answer(mutating bool) (a answer) {
	a.Allowed = true
	patched := 6
	if mutating {
		patched = 60
	}
	g.weighted(
		choice{40, func() {}},
		choice{patched, func() { g.patch(&a) }},
		choice{9, func() {
			a.Allowed = pick[any](g, false, false, false, nil, "true", 1)
			a.Result = g.denial()
		}},
		choice{5, func() { g.failure(&a) }},
		choice{5, func() { g.malformed(&a) }},
		choice{11, func() {
			a.Wire = pick(g, "hang", "hang", "hang", "hang", "hang", "hang", "reset", "garbage", "truncated")
		}},
	)
	if g.chance(15) {
		a.Warnings = pick(g, []string{"careful"}, []string{"careful", "careful"}, []string{"", "ünï"}, []string{"second", "first"})
	}
	if g.chance(15) {
		a.AuditAnnotations = pick(g, map[string]string{"seen": "yes"}, map[string]string{"seen": "yes", "other": ""}, map[string]string{"a/b": "x", "ok": "y"}, map[string]string{"not valid!": "x"})
	}
	if g.chance(5) {
		a.Gzip = true
	}
	if g.chance(3) {
		// A status in an answer that allows is ignored.
		a.Result = g.denial()
	}
	return a
}

func (g *generator) denial() *metav1.Status {
	s := &metav1.Status{}
	if g.chance(60) {
		s.Message = pick(g, "no", "not on Sundays", " ")
	}
	if g.chance(50) {
		s.Code = pick[int32](g, 200, 403, 403, 422, 500, 599, 999, 1000, 70000, 1, -1)
	}
	if g.chance(40) {
		s.Reason = pick(g, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, "Custom")
	}
	if g.chance(20) {
		s.Status = pick(g, metav1.StatusSuccess, metav1.StatusFailure, "Odd")
	}
	if g.chance(20) {
		s.Details = &metav1.StatusDetails{Name: "x", RetryAfterSeconds: 3, Causes: []metav1.StatusCause{{Type: "T", Message: "m", Field: "f"}}}
	}
	switch {
	case g.chance(15):
		return nil
	case g.chance(10):
		s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	}
	return s
}

func (g *generator) patch(a *answer) {
	a.PatchType = ptr("JSONPatch")
	a.Patch = []string{}
	for range 1 + g.IntN(2) {
		r := pick(g, recipes...)
		if (r.fails || r.make == nil || r.name == rename) && g.chance(60) {
			r = recipes[1]
		}
		a.Patch = append(a.Patch, r.name)
	}
	switch n := g.IntN(100); {
	case n < 3:
		a.PatchType = nil
	case n < 5:
		a.PatchType = ptr("")
	case n < 8:
		a.PatchType = ptr("MergePatch")
	case n < 10:
		a.Patch = nil
	}
}

// failure generates an answer with an HTTP status.
func (g *generator) failure(a *answer) {
	a.Status = pick(g, 201, 204, 206, 207, 301, 302, 307, 308, 400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 502, 503, 504, 599)
	a.Header = map[string]string{}
	if a.Status >= 300 && a.Status < 400 {
		a.Header["Location"] = "/elsewhere"
	}
	if g.chance(50) {
		a.Body = ptr(pick(g, "", "it is broken", strings.Repeat("x", 5000), `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a status","reason":"Conflict","code":409}`,
			`{"kind":"Status","apiVersion":"v1","status":"Success"}`, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Gone"}`))
		a.Header["Content-Type"] = pick(g, "text/plain", "text/plain; charset=utf-8", "application/json", "application/octet-stream", "")
	}
	if g.chance(25) {
		a.Header["Retry-After"] = pick(g, "1", "0", "soon")
	}
	if g.chance(20) {
		a.Header["Warning"] = `299 - "from the webhook"`
	}
}

// malformed generates an answer that is not a valid review.
func (g *generator) malformed(a *answer) {
	switch g.IntN(8) {
	case 0:
		// No YAML: upstream accepts it, too.
		a.Body = ptr(pick(g, "", "null", "[]", "{}", `"text"`, "{", `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"a status","code":418}`,
			`{"kind":"Status","apiVersion":"v1","status":"Success"}`, `{"kind":"Pod","apiVersion":"v1"}`, "AdmissionReview", "<html>"))
	case 1:
		a.Version = pick(g, "none", "admission.k8s.io/v1", "admission.k8s.io/v1beta1", "admission.k8s.io/v1alpha1", "admission.k8s.io/v7", "v1", "a/b/c")
	case 2:
		a.Kind = pick(g, "none", "Pod", "AdmissionRequest")
	case 3:
		a.UID = pick(g, "absent", "wrong")
	case 4:
		a.Absent = true
	case 5:
		a.Header = map[string]string{"Content-Type": pick(g, "text/plain", "", "application/json; charset=", "nonsense;;;", "application/vnd.kubernetes.protobuf")}
	case 6:
		a.Version, a.Kind = "none", "none"
	case 7:
		a.PatchType = ptr(pick(g, "", "JSONPatch"))
	}
}

func (g *generator) namespaces() (seen, live []*corev1.Namespace) {
	for _, name := range []string{"default", "blue", "red"} {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: g.labels()}}
		seen = append(seen, n)
	}
	return seen, []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "live", Labels: g.labels()}}}
}

// broken is a namespace whose reads fail.
const broken = "broken"

// namespace returns the name of a namespace, which may not exist.
func (g *generator) namespace() string {
	if g.chance(85) {
		return pick(g, "default", "blue", "red")
	}
	return pick(g, "live", "live", "gone", broken)
}

var users = []user.Info{
	&user.DefaultInfo{Name: "alice", UID: "u1", Groups: []string{"admins", "system:authenticated"}, Extra: map[string][]string{"scope": {"x", "y"}, "example.com/o": {}}},
	&user.DefaultInfo{Name: "bob"},
	&user.DefaultInfo{},
}

func (g *generator) request() *request {
	e := g.endpoint()
	r := &request{endpoint: e, operation: pick(g, e.operations...), name: pick(g, "o1", "o2", "two"), user: pick(g, users...)}
	isNamespace := e.resource == corev1.SchemeGroupVersion.WithResource(namespaces)
	switch {
	case isNamespace:
		r.name = g.namespace()
		r.namespace = r.name
	case e.namespaced:
		r.namespace = g.namespace()
	}
	meta := metav1.ObjectMeta{Name: r.name, Labels: g.labels()}
	if !isNamespace {
		meta.Namespace = r.namespace
	}
	if g.chance(30) {
		meta.Annotations = map[string]string{"note": g.word()}
	}
	if g.chance(10) {
		meta.Annotations = map[string]string{unconvertible: "yes"}
	}
	defaulted := g.chance(80) || g.whole
	object := func(m metav1.ObjectMeta) runtime.Object { return hub(e.make(g, m), defaulted) }
	stored := func() runtime.Object {
		m := meta
		m.UID, m.ResourceVersion, m.CreationTimestamp = "5a4ee4cc-0000-4000-8000-000000000001", "41", metav1.Unix(1e9, 0)
		m.Labels = g.labels()
		return object(m)
	}
	r.dryRun = g.chance(15) && r.operation != joined
	var dryRun []string
	if r.dryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	switch r.operation {
	case create:
		if g.chance(20) && e.subresource == "" {
			meta.Name, meta.GenerateName, r.name = "", "g-", ""
			if isNamespace {
				r.namespace = ""
			}
		}
		r.object = object(meta)
		r.options = options(&metav1.CreateOptions{DryRun: dryRun, FieldManager: pick(g, "", "tool")}, "CreateOptions")
	case update:
		r.old = stored()
		meta.UID, meta.ResourceVersion, meta.CreationTimestamp = "5a4ee4cc-0000-4000-8000-000000000001", "41", metav1.Unix(1e9, 0)
		r.object = object(meta)
		r.options = options(&metav1.UpdateOptions{DryRun: dryRun, FieldValidation: pick(g, "", "Strict")}, "UpdateOptions")
	case remove:
		r.old = stored()
		if g.chance(20) {
			// Deletes a collection.
			r.name = ""
		}
		o := &metav1.DeleteOptions{DryRun: dryRun}
		if g.chance(50) {
			o.PropagationPolicy = ptr(metav1.DeletePropagationForeground)
		}
		r.options = options(o, "DeleteOptions")
	case joined:
		r.object = object(metav1.ObjectMeta{})
	}
	g.weighted(
		choice{40, func() {}},
		choice{25, func() { r.timeout = 34 * time.Second }},
		choice{15, func() { r.timeout = 10 * time.Second }},
		choice{20, func() { r.timeout = 2500 * time.Millisecond }},
	)
	if g.chance(3) {
		r.gone = pick(g, time.Microsecond, 3500*time.Microsecond, 8500*time.Microsecond)
	}
	return r
}

func options(o runtime.Object, kind string) runtime.Object {
	o.GetObjectKind().SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind(kind))
	return o
}

// custom reports whether the request is about a custom resource.
func (r *request) custom() bool {
	for _, o := range []runtime.Object{r.object, r.old} {
		if _, ok := o.(*unstructured.Unstructured); ok {
			return true
		}
	}
	return false
}

// registered returns the configurations as a server would have stored them.
func (w *world) registered() []runtime.Object {
	var all []runtime.Object
	for i := range w.configurations {
		all = append(all, w.configurations[i].object(i))
	}
	return all
}

func (c *configuration) object(i int) runtime.Object {
	content := must(json.Marshal(map[string]any{
		"metadata": metav1.ObjectMeta{
			Name: c.name, UID: "5a4ee4cc-0000-4000-8000-000000000000", ResourceVersion: fmt.Sprint(i + 1), Generation: 1,
		},
		"webhooks": c.webhooks,
	}))
	kind := schema.GroupVersionKind{Group: registrationv1.GroupName, Version: c.version, Kind: "ValidatingWebhookConfiguration"}
	if c.mutating {
		kind.Kind = "MutatingWebhookConfiguration"
	}
	o := must(legacyscheme.Scheme.New(kind))
	if err := json.Unmarshal(content, o); err != nil {
		panic(err)
	}
	legacyscheme.Scheme.Default(o)
	o.GetObjectKind().SetGroupVersionKind(kind)
	switch o := o.(type) {
	case *registrationv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			w := &o.Webhooks[i]
			erase(&w.NamespaceSelector, &w.ObjectSelector, &w.SideEffects)
		}
	case *registrationv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			w := &o.Webhooks[i]
			erase(&w.NamespaceSelector, &w.ObjectSelector, &w.SideEffects)
		}
	case *registrationv1beta1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			w := &o.Webhooks[i]
			erase(&w.NamespaceSelector, &w.ObjectSelector, &w.SideEffects)
		}
	case *registrationv1beta1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			w := &o.Webhooks[i]
			erase(&w.NamespaceSelector, &w.ObjectSelector, &w.SideEffects)
		}
	}
	return o
}

// erase removes the fields that are marked with nothing.
func erase[S ~string](namespaces, objects **metav1.LabelSelector, effects **S) {
	for _, s := range []**metav1.LabelSelector{namespaces, objects} {
		if (*s).MatchLabels[nothing] != "" {
			*s = nil
		}
	}
	if *effects != nil && **effects == nothing {
		*effects = nil
	}
}
