package agreement

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/warning"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/bench/internal/sides"
)

const defaultPolicyCases = 500

var policyCases = flag.Int("policy-cases", defaultPolicyCases, "how many `cases` of admission policies to compare: a seed makes five")

// policyWorld is the test environment generated from a seed: policies, bindings, params, and requests.
type policyWorld struct {
	sides.PolicyOptions
	requests []*request
	// live reads the namespaces that no watch has delivered yet.
	live func(string) (*corev1.Namespace, error)
	// asked is the request that is being evaluated.
	asked *request
}

// withStored is live for upstream. If the Namespace that a request is about does not exist any more, withStored
// returns its stored object, as Gatehouse does; upstream itself does not use it (D34).
func (w *policyWorld) withStored(name string) (*corev1.Namespace, error) {
	found, err := w.live(name)
	if apierrors.IsNotFound(err) {
		if n := storedNamespace(w.asked); n != nil && n.Name == name {
			return n, nil
		}
	}
	return found, err
}

var paramKinds = []sides.ParamKind{
	{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Resource: "configmaps", Namespaced: true},
	{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Rule"}, Resource: "rules", Namespaced: true},
	{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Limit"}, Resource: "limits"},
}

// newPolicyWorld generates the world of a seed. It is deterministic.
func newPolicyWorld(seed uint64) *policyWorld {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 16)), endpoints: endpoints()}
	for range 2 {
		g.focus = append(g.focus, g.served())
	}
	w := &policyWorld{}
	w.Kinds, w.Authorizer = paramKinds, authorizer.AuthorizerFunc(rights)
	var live []*corev1.Namespace
	w.Namespaces, live = g.namespaces()
	w.Params = g.params()
	for i := range 1 + g.IntN(2) {
		w.Policies = append(w.Policies, g.policy(i)...)
	}
	for len(w.requests) < requestsPerWorld {
		// TestEngineAgreesWithUpstream covers kinds that have the name of a core kind.
		if r := g.request(); r.resource.Group == "" || r.resource.Resource != namespaces {
			w.requests = append(w.requests, r)
		}
	}
	w.live = readLive(live)
	return w
}

// params generates the objects that bindings refer to.
func (g *generator) params() (all []runtime.Object) {
	for _, ns := range []string{"default", "blue", "red"} {
		for _, name := range []string{"c1", "c2", "c3"} {
			if g.chance(60) {
				c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, Labels: g.labels()}, Data: map[string]string{"name": pick(g, "o1", "o2")}}
				c.SetGroupVersionKind(paramKinds[0].GroupVersionKind)
				all = append(all, c)
			}
			if g.chance(40) {
				all = append(all, customParam(paramKinds[1].GroupVersionKind, ns, name, g.labels(), pick(g, "o1", "o2")))
			}
		}
	}
	for _, name := range []string{"c1", "c2"} {
		if g.chance(60) {
			all = append(all, customParam(paramKinds[2].GroupVersionKind, "", name, g.labels(), pick(g, "o1", "o2")))
		}
	}
	return all
}

func customParam(kind schema.GroupVersionKind, namespace, name string, labels map[string]string, value string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"name": value}}}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetLabels(labels)
	return u
}

// judgements are expressions of validations, with any outcome for any object.
var judgements = []string{
	"true", "true", "true", "false", "1 == 2",
	"object != null", "oldObject == null", "object.metadata.name != 'o1'", "object.metadata.name == 'o1'",
	"has(object.metadata) && has(object.metadata.labels)", "'note' in object.metadata.annotations",
	"request.operation == 'CREATE'", "request.operation != 'DELETE'", "request.userInfo.username == 'alice'", "'admins' in request.userInfo.groups",
	"request.kind.version == 'v1'", "request.resource.version == request.requestResource.version", "request.name != 'o2'", "request.namespace == 'blue'",
	"request.dryRun != true", "!has(request.subResource)", "has(request.options) && request.options.kind == 'CreateOptions'",
	"namespaceObject != null", "namespaceObject.metadata.name == 'blue'", "has(namespaceObject.metadata.labels)",
	"authorizer.group('').resource('a').check('get').allowed()", "authorizer.requestResource.check('get').allowed()",
	"variables.name == 'o1'", "variables.broken", "variables.small", "variables.none",
	"params.data.name == 'o1'", "params == null", "params.metadata.name != 'c1'", "has(params.kind) && params.kind != 'ConfigMap'",
	"object.spec.replicas > 1", "object.nothing.at.all == 1", "1 +", "'not a bool'", endless,
	"\n  object.kind == 'Pod'\n  ",
}

var texts = []string{
	"'a text'", "'  trimmed  '", "''", "' '", "'two\\nlines'", "object.metadata.name + ' is bad'", "string(object.nothing)", "variables.name", "string(params.data.name)",
	"request.userInfo.username", "1", "namespaceObject.metadata.name", "string(variables.allowed)", "request.kind.kind + '/' + request.resource.version",
}

func (g *generator) namedRule() registrationv1.NamedRuleWithOperations {
	r := registrationv1.NamedRuleWithOperations{RuleWithOperations: g.rule()}
	if r.Scope == nil {
		r.Scope = ptr(registrationv1.AllScopes)
	}
	if g.chance(15) {
		r.ResourceNames = []string{pick(g, "o1", "o2", "two")}
	}
	return r
}

func (g *generator) matchResources(required bool) *registrationv1.MatchResources {
	m := &registrationv1.MatchResources{
		MatchPolicy: ptr(pick(g, registrationv1.Equivalent, registrationv1.Equivalent, registrationv1.Exact)), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
	}
	if required || g.chance(50) {
		for range 1 + g.IntN(2) {
			m.ResourceRules = append(m.ResourceRules, g.namedRule())
		}
	}
	if g.chance(15) {
		m.ExcludeResourceRules = append(m.ExcludeResourceRules, g.namedRule())
	}
	if g.chance(15) {
		m.NamespaceSelector = g.validSelector()
	}
	if g.chance(15) {
		m.ObjectSelector = g.validSelector()
	}
	return m
}

// validSelector returns a selector that is valid in a policy (S13.25).
func (g *generator) validSelector() *metav1.LabelSelector {
	for {
		if s := g.selector(); s != nil {
			if _, err := metav1.LabelSelectorAsSelector(s); err == nil {
				return s
			}
		}
	}
}

// policy generates a policy and its bindings.
func (g *generator) policy(i int) []runtime.Object {
	p := &registrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i), UID: "u", ResourceVersion: "1"},
		Spec: registrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr(pick(g, registrationv1.Fail, registrationv1.Fail, registrationv1.Ignore)), MatchConstraints: g.matchResources(true),
			// Validation rejects policies with match conditions that read variables.
			MatchConditions: slices.DeleteFunc(g.conditions(), func(c registrationv1.MatchCondition) bool { return strings.Contains(c.Expression, "variables.") }),
		},
	}
	if g.chance(50) {
		kind := pick(g, paramKinds...).GroupVersionKind
		if g.chance(5) {
			kind.Kind = "Nothing"
		}
		p.Spec.ParamKind = &registrationv1.ParamKind{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}
	}
	if g.chance(60) {
		p.Spec.Variables = []registrationv1.Variable{
			{Name: "name", Expression: "object.metadata.name"}, {Name: "broken", Expression: "object.no.such.field == 1"},
			{Name: "small", Expression: "size(variables.name) < 3"}, {Name: "allowed", Expression: "authorizer.group('').resource('a').check('get').allowed()"},
		}
	}
	for range 1 + g.IntN(3) {
		v := registrationv1.Validation{Expression: pick(g, judgements...)}
		if g.chance(50) {
			v.Message = pick(g, "no", " a message ", "not like this")
		}
		if g.chance(40) {
			v.MessageExpression = pick(g, texts...)
		}
		if g.chance(40) {
			v.Reason = ptr(pick(g, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonUnauthorized))
		}
		p.Spec.Validations = append(p.Spec.Validations, v)
	}
	for k := range g.IntN(3) {
		p.Spec.AuditAnnotations = append(p.Spec.AuditAnnotations, registrationv1.AuditAnnotation{Key: fmt.Sprintf("k%d", k), ValueExpression: pick(g, append(texts, "null", "authorizer.path('/x').check('get').reason()")...)})
	}
	all := []runtime.Object{p}
	for j := range 1 + g.IntN(2)*g.IntN(3) {
		b := &registrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("b%d-%d", i, j), UID: "u", ResourceVersion: "1"},
			Spec: registrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: p.Name, ValidationActions: pick(g,
				[]registrationv1.ValidationAction{registrationv1.Deny}, []registrationv1.ValidationAction{registrationv1.Deny, registrationv1.Audit},
				[]registrationv1.ValidationAction{registrationv1.Warn}, []registrationv1.ValidationAction{registrationv1.Audit, registrationv1.Warn}, []registrationv1.ValidationAction{registrationv1.Audit})},
		}
		if g.chance(5) {
			b.Spec.PolicyName = "none"
		}
		if g.chance(30) {
			b.Spec.MatchResources = g.matchResources(false)
		}
		if (p.Spec.ParamKind != nil && g.chance(90)) || g.chance(5) {
			b.Spec.ParamRef = g.paramRef()
		}
		all = append(all, b)
	}
	return all
}

func (g *generator) paramRef() *registrationv1.ParamRef {
	r := &registrationv1.ParamRef{ParameterNotFoundAction: ptr(pick(g, registrationv1.AllowAction, registrationv1.DenyAction))}
	if g.chance(40) {
		r.Namespace = pick(g, "default", "blue")
	}
	if r.Name = pick(g, "c1", "c2", "c3"); g.chance(30) {
		r.Name, r.Selector = "", g.validSelector()
	}
	return r
}

// judged is the observed result of a request.
type judged struct {
	err         error
	annotations map[string]annotation
	warnings    []string
}

func judgePolicies(plugin admission.ValidationInterface, r *request) judged {
	if !plugin.Handles(r.operation) {
		return judged{}
	}
	a := admission.NewAttributesRecord(copied(r.object), copied(r.old), r.kind, r.namespace, r.name, r.resource, r.subresource,
		r.operation, copied(r.options), r.dryRun, r.user)
	noted := &attributes{Attributes: a, notes: map[string]annotation{}}
	err, warnings := warned(func(ctx context.Context) error { return plugin.Validate(ctx, noted, interfaces(r.custom())) })
	return judged{err, noted.notes, warnings}
}

// warned calls f with a context that records warnings.
func warned(f func(context.Context) error) (err error, warnings []string) {
	r := &recorder{}
	err = f(warning.WithWarningRecorder(context.Background(), r))
	return err, r.list
}

// statusOf returns an error as clients receive it.
func statusOf(err error) *metav1.Status {
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		s := status.Status()
		return &s
	}
	return &metav1.Status{Message: err.Error()}
}

// comparePolicies lists the differences between two sides. Gatehouse lists all violations (D48), first the violation that
// upstream reports.
func comparePolicies(upstream, gatehouse *judged) (all []difference) {
	differ := func(at, u, g string) {
		if u != g {
			all = append(all, difference{at: at, upstream: u, gatehouse: g})
		}
	}
	u, g := statusOf(upstream.err), statusOf(gatehouse.err)
	if u != nil && g != nil && u.Details != nil && len(u.Details.Causes) == 1 && g.Details != nil && len(g.Details.Causes) > 1 {
		tally.count("policies: several violations")
		g.Details = g.Details.DeepCopy()
		g.Details.Causes = g.Details.Causes[:1]
	}
	differ("status", jsonText(u), jsonText(g))
	differ("warnings", strings.Join(upstream.warnings, "\n"), strings.Join(gatehouse.warnings, "\n"))
	differ("annotations", annotationText(upstream.annotations), annotationText(gatehouse.annotations))
	return all
}

func jsonText(v any) string { return string(must(json.Marshal(v))) }

// annotationText prints annotations.
func annotationText(annotations map[string]annotation) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		fmt.Fprintf(&b, "%v %s: %s\n", annotations[key].level, key, annotations[key].value)
	}
	return b.String()
}

// TestValidatingPoliciesAgreeWithUpstream compares verdicts, warnings and annotations of both sides on random
// policies, bindings, params and requests.
func TestValidatingPoliciesAgreeWithUpstream(t *testing.T) {
	t.Run("worlds", func(t *testing.T) {
		for i := range (*policyCases + requestsPerWorld - 1) / requestsPerWorld {
			seed := *seed + uint64(i)
			t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
				t.Parallel()
				w := newPolicyWorld(seed)
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					w.Live = w.withStored
					upstream, err := sides.UpstreamValidatingPolicies(ctx, w.PolicyOptions)
					if err != nil {
						t.Fatal(err)
					}
					w.Live = w.live
					gatehouse, err := sides.GatehouseValidatingPolicies(ctx, w.PolicyOptions)
					if err != nil {
						t.Fatal(err)
					}
					// Upstream polls the policies every second.
					time.Sleep(3 * time.Second)
					for i, r := range w.requests {
						w.asked = r
						u, g := judgePolicies(upstream, r), judgePolicies(gatehouse, r)
						tally.count("policies: requests")
						if u.err != nil {
							tally.count("policies: rejected")
						}
						if len(u.warnings) > 0 {
							tally.count("policies: warned")
						}
						if len(u.annotations) > 0 {
							tally.count("policies: annotated")
						}
						if differences := comparePolicies(&u, &g); len(differences) > 0 {
							t.Errorf("request %d of seed %d: the sides differ. To see it again: go test ./agreement -run ValidatingPolicies -seed %d -policy-cases %d\n\n%s\n%s",
								i, seed, seed, requestsPerWorld, show(differences), w.yaml(r))
						}
					}
					cancel()
					time.Sleep(time.Minute)
				})
			})
		}
	})
	showTally(t, "policies: ")
	if t.Failed() || *seed != firstSeed || *policyCases < defaultPolicyCases {
		return
	}
	// An outcome that never happens is not compared.
	for what, percent := range map[string]int{"rejected": 10, "warned": 5, "annotated": 5, "several violations": 1} {
		if got, want := tally.seen["policies: "+what], *policyCases*percent/100; got < want {
			t.Errorf("%d cases are %s, want %d or more", got, what, want)
		}
	}
}

// yaml returns the policies and a request in YAML.
func (w *policyWorld) yaml(r *request) string {
	var b strings.Builder
	document := func(title string, v any) { fmt.Fprintf(&b, "--- # %s\n%s", title, must(yaml.Marshal(v))) }
	for _, p := range w.Policies {
		document("policy or binding", p)
	}
	for _, p := range w.Params {
		document("param", p)
	}
	for _, n := range w.Namespaces {
		document("namespace", n)
	}
	document("request", map[string]any{
		"operation": r.operation, "resource": r.resource.String(), "subresource": r.subresource, "kind": r.kind.String(),
		"namespace": r.namespace, "name": r.name, "dryRun": r.dryRun, "user": r.user, "options": r.options,
	})
	for title, object := range map[string]runtime.Object{"object": r.object, "old object": r.old} {
		if object == nil {
			continue
		}
		if shown, err := versioned(object, r.kind); err == nil {
			document(title, shown)
		}
	}
	return b.String()
}
