package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// judgedBy returns a ValidatingAdmissionPolicy for everything, with a binding of the same name.
func judgedBy(name string, edit func(*v1.ValidatingAdmissionPolicySpec), actions ...v1.ValidationAction) []runtime.Object {
	p := &v1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.MatchConstraints = &v1.MatchResources{ResourceRules: []v1.NamedRuleWithOperations{{RuleWithOperations: rule("*", "*", "*", "*/*")[0]}}}
	edit(&p.Spec)
	b := &v1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.PolicyName, b.Spec.ValidationActions = name, actions
	return []runtime.Object{p, b}
}

// demanding adds validations.
func demanding(expressions ...string) func(*v1.ValidatingAdmissionPolicySpec) {
	return func(s *v1.ValidatingAdmissionPolicySpec) {
		for _, e := range expressions {
			s.Validations = append(s.Validations, v1.Validation{Expression: e, Message: "no: " + e})
		}
	}
}

// engineOf returns an engine with the given registrations, and one namespace.
func engineOf(t *testing.T, o Options, objects ...runtime.Object) *Engine {
	t.Helper()
	o.Snapshots, o.Schemas = register(objects...), catalogueSchemas
	o.Namespaces = scenarioNamespaces{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}
	if o.Authorizer == nil {
		o.Authorizer = alice{}
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// TestWhatPoliciesJudge: policies never apply to reviews that are not stored, and apply to all
// other objects that are not stored.
func TestWhatPoliciesJudge(t *testing.T) {
	e := engineOf(t, Options{}, judgedBy("a", demanding("false"), v1.Deny)...)
	judged := func(resource schema.GroupVersionResource, subresource string, operation admission.Operation) bool {
		t.Helper()
		kind := resource.GroupVersion().WithKind("Any")
		a := admission.NewAttributesRecord(nil, nil, kind, "shop", "web", resource, subresource, operation, nil, false, &user.DefaultInfo{Name: "bob"})
		err := e.ValidatingPolicies().Validate(t.Context(), a, catalogueInterfaces)
		if err != nil && !strings.Contains(err.Error(), "no: false") {
			t.Errorf("%s %s/%s: %v", operation, resource, subresource, err)
		}
		return err != nil
	}
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		for _, resource := range registration.VirtualResources() {
			if judged(resource.WithVersion(version), "", admission.Create) {
				t.Errorf("S14.15 %s of %s are judged", resource, version)
			}
		}
	}
	for _, c := range []struct {
		resource, subresource string
		operation             admission.Operation
	}{
		{"bindings", "", admission.Create}, {"pods", "binding", admission.Create}, {"pods", "eviction", admission.Create},
		{"pods", "attach", admission.Connect}, {"pods", "exec", admission.Connect}, {"pods", "portforward", admission.Connect},
		{"serviceaccounts", "token", admission.Create},
	} {
		if !judged(at("", "v1", c.resource), c.subresource, c.operation) {
			t.Errorf("S14.15 %s/%s are not judged", c.resource, c.subresource)
		}
	}
	for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect} {
		if !judged(at("", "v1", "pods"), "", operation) || !e.ValidatingPolicies().Handles(operation) {
			t.Errorf("S17.1 %s is not judged", operation)
		}
		if got, want := e.MutatingPolicies().Handles(operation), operation != admission.Delete; got != want {
			t.Errorf("S18.1 %s reaches mutating policies: %v", operation, got)
		}
	}
}

// countingAuthorizer allows everything and counts the questions.
type countingAuthorizer map[string]int

func (c countingAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	c[a.GetVerb()+" "+a.GetResource()]++
	return authorizer.DecisionAllow, "", nil
}

// TestEqualQuestionsAreAskedOnce: all policies of a plugin share the authorizer's answers for a
// request. S16.13.
func TestEqualQuestionsAreAskedOnce(t *testing.T) {
	const may = `authorizer.group("").resource("pods").check("get").allowed()`
	rights := countingAuthorizer{}
	objects := append(judgedBy("a", demanding(may, may), v1.Deny), judgedBy("b", func(s *v1.ValidatingAdmissionPolicySpec) {
		demanding(may, `authorizer.group("").resource("pods").check("list").allowed()`)(s)
		s.MatchConditions = []v1.MatchCondition{{Name: "may", Expression: may}}
	}, v1.Deny)...)
	for _, name := range []string{"m", "n"} {
		objects = append(objects, changing{name: name, mutations: []v1.Mutation{labelling("may", "string("+may+")"), labelling("too", "string("+may+")")}}.objects()...)
	}
	e := engineOf(t, Options{Authorizer: rights}, objects...)
	for request := range 3 {
		a := podAttributes(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}, "web")
		if err := e.MutatingPolicies().Admit(t.Context(), a, catalogueInterfaces); err != nil {
			t.Fatal(err)
		}
		if got, want := rights["get pods"], 2*request+1; got != want {
			t.Errorf("S16.13 after the mutating pass of request %d: asked %d times, want %d", request, got, want)
		}
		if err := e.ValidatingPolicies().Validate(t.Context(), a, catalogueInterfaces); err != nil {
			t.Fatal(err)
		}
		if got, want := rights, (countingAuthorizer{"get pods": 2*request + 2, "list pods": request + 1}); cmp.Diff(want, got) != "" {
			t.Errorf("S16.13 after request %d: asked %v, want %v", request, got, want)
		}
	}
}

// podAttributes returns the attributes of the creation of a pod.
func podAttributes(pod *corev1.Pod, name string) admission.Attributes {
	var object runtime.Object
	if pod != nil {
		object = pod
	}
	return admission.NewAttributesRecord(object, nil, is("", "v1", "Pod"), "shop", name, at("", "v1", "pods"), "", admission.Create,
		optionsOf(admission.Create, false), false, &user.DefaultInfo{Name: "bob"})
}

// TestWhatARejectionCallsTheObject: S17.16.
func TestWhatARejectionCallsTheObject(t *testing.T) {
	e := engineOf(t, Options{}, judgedBy("a", demanding("false"), v1.Deny)...)
	for _, tt := range []struct {
		name, request string
		pod           *corev1.Pod
		want          string
	}{
		{"S17.16 the name of the request", "web", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, "web"},
		{"S17.16 the name of the object", "", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", GenerateName: "web-"}}, "web"},
		{"S17.16 what its name is made of", "", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}}, "web-"},
		{"S17.16 no name", "", &corev1.Pod{}, "Unknown"},
		{"S17.16 no object", "", nil, "Unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := e.ValidatingPolicies().Validate(t.Context(), podAttributes(tt.pod, tt.request), catalogueInterfaces)
			if want := fmt.Sprintf("pods %q is forbidden: ValidatingAdmissionPolicy 'a' with binding 'a' denied request: no: false", tt.want); err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// TestWhoeverAnnotatesFirstIsRecorded: S17.20.
func TestWhoeverAnnotatesFirstIsRecorded(t *testing.T) {
	e := engineOf(t, Options{}, judgedBy("a", func(s *v1.ValidatingAdmissionPolicySpec) {
		s.AuditAnnotations = []v1.AuditAnnotation{{Key: "taken", ValueExpression: "'by the policy'"}, {Key: "free", ValueExpression: "'by the policy'"}}
	}, v1.Deny)...)
	a := podAttributes(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, "web")
	if err := a.AddAnnotation("a/taken", "by a webhook"); err != nil {
		t.Fatal(err)
	}
	if err := e.ValidatingPolicies().Validate(t.Context(), a, catalogueInterfaces); err != nil {
		t.Fatalf("S17.20 the request is rejected: %v", err)
	}
	for key, first := range map[string]string{"a/taken": "by a webhook", "a/free": "by the policy"} {
		// An annotation that is set accepts its own value again, and no other.
		if err := a.AddAnnotation(key, first); err != nil {
			t.Errorf("S17.20 %s is not %q: %v", key, first, err)
		}
	}
}

// TestWhatIsCounted: the metrics of validations and match conditions, S17.21 to S17.23, and S17.23
// for mutating policies.
func TestWhatIsCounted(t *testing.T) {
	objects := judgedBy("counted", func(s *v1.ValidatingAdmissionPolicySpec) {
		demanding("true", "false", "1 +", "object.none == 1", `lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))`)(s)
	}, v1.Warn, v1.Audit)
	objects = append(objects, judgedBy("forgiving", func(s *v1.ValidatingAdmissionPolicySpec) {
		s.FailurePolicy = new(v1.Ignore)
		demanding("object.none == 1")(s)
	}, v1.Deny)...)
	condition := []v1.MatchCondition{{Name: "fails", Expression: "object.none == 1"}}
	objects = append(objects, judgedBy("conditional", func(s *v1.ValidatingAdmissionPolicySpec) {
		s.FailurePolicy, s.MatchConditions = new(v1.Ignore), condition
		demanding("false")(s)
	}, v1.Deny)...)
	objects = append(objects, judgedBy("excluding", func(s *v1.ValidatingAdmissionPolicySpec) {
		s.MatchConditions = []v1.MatchCondition{{Name: "no", Expression: "false"}}
		demanding("false")(s)
	}, v1.Deny)...)
	objects = append(objects, changing{name: "changing", ignore: true, conditions: map[string]string{"fails": "object.none == 1"}, mutations: []v1.Mutation{applying("Object{}")}}.objects()...)
	e := engineOf(t, Options{}, objects...)
	const (
		checks     = "apiserver_validating_admission_policy_check_total"
		durations  = "apiserver_validating_admission_policy_check_duration_seconds"
		conditions = "apiserver_admission_match_condition_evaluation_seconds"
		failures   = "apiserver_admission_match_condition_evaluation_errors_total"
		exclusions = "apiserver_admission_match_condition_exclusions_total"
	)
	type metric struct {
		rule, name string
		labels     []string
		want       float64
	}
	check := func(rule, policy, class, action string, want float64) []metric {
		labels := []string{"policy", policy, "policy_binding", policy, "error_type", class, "enforcement_action", action}
		return []metric{{rule, checks, labels, want}, {rule, durations, labels, want}}
	}
	var metrics []metric
	for _, action := range []string{"warn", "audit"} {
		// A true validation counts nothing. False and failed validations are invalid.
		metrics = append(metrics, check("S17.21", "counted", "no_error", action, 0)...)
		metrics = append(metrics, check("S17.22", "counted", "compile_error", action, 1)...)
		metrics = append(metrics, check("S17.22", "counted", "invalid_error", action, 3)...)
	}
	metrics = append(metrics, check("S17.21", "forgiving", "invalid_error", "allow", 1)...)
	for _, policy := range []string{"conditional", "changing"} {
		labels := []string{"name", policy, "kind", "policy", "type", "validate", "operation", "CREATE"}
		metrics = append(metrics, metric{"S17.23", conditions, labels, 1}, metric{"S17.23", failures, labels, 1})
	}
	for _, policy := range []string{"conditional", "excluding", "changing"} {
		metrics = append(metrics, metric{"S17.23", exclusions, []string{"name", policy}, 0})
	}
	before := make([]float64, len(metrics))
	for i, m := range metrics {
		before[i] = sample(t, m.name, m.labels...)
	}
	a := podAttributes(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}, "web")
	if err := e.MutatingPolicies().Admit(t.Context(), a, catalogueInterfaces); err != nil {
		t.Fatal(err)
	}
	if err := e.ValidatingPolicies().Validate(t.Context(), a, catalogueInterfaces); err != nil {
		t.Fatal(err)
	}
	for i, m := range metrics {
		if got := sample(t, m.name, m.labels...) - before[i]; got != m.want {
			t.Errorf("%s %s %v: %v, want %v", m.rule, m.name, m.labels, got, m.want)
		}
	}
}

// TestRejectionsShowValues: the trace of a rejection has the values of the parts that come from the
// object, and only a rejected request is evaluated for them. S17.24.
func TestRejectionsShowValues(t *testing.T) {
	var traces []*trace.Trace
	e := engineOf(t, Options{Observer: func(t *trace.Trace) { traces = append(traces, t) }}, slices.Concat(
		judgedBy("a", demanding("object.metadata.name == 'web' && size(object.metadata.labels) > 2 && namespaceObject.metadata.name == 'shop'"), v1.Deny),
		judgedBy("b", demanding("size(object.metadata.labels) > 3"), v1.Warn))...)
	validate := func(a admission.Attributes) (validations []trace.ValidationRecord) {
		t.Helper()
		traces = nil
		// The verdict is in the trace.
		_ = e.ValidatingPolicies().Validate(t.Context(), a, catalogueInterfaces)
		if len(traces) != 1 {
			t.Fatalf("%d traces", len(traces))
		}
		for _, redact := range []bool{true, false} {
			r := traces[0].Record(trace.RecordOptions{RedactPatches: redact})
			validations = nil
			for _, j := range r.Steps[0].Judgements {
				validations = append(validations, j.Evaluations[0].Validations...)
			}
			for _, v := range validations {
				if redact && (v.Because != "" || v.Values != nil) {
					t.Errorf("a redacted record shows %q, %v", v.Because, v.Values)
				}
			}
		}
		return validations
	}
	pod := func(labels ...string) admission.Attributes {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{}}}
		for _, l := range labels {
			p.Labels[l] = "x"
		}
		return podAttributes(p, "web")
	}
	rejected := validate(pod("a"))
	want := []trace.PartValueRecord{
		{Expression: `object.metadata.name == "web" && size(object.metadata.labels) > 2`, Value: "false"},
		{Expression: "size(object.metadata.labels) > 2", Value: "false"}, {Expression: "size(object.metadata.labels)", Value: "1"}, {Expression: "object.metadata.labels", Value: `{"a":"x"}`},
		{Expression: `object.metadata.name == "web"`, Value: "true"}, {Expression: "object.metadata.name", Value: `"web"`},
	}
	if rejected[0].Because != "size(object.metadata.labels) > 2" {
		t.Errorf("S17.24 false is %q", rejected[0].Because)
	}
	if diff := cmp.Diff(want, rejected[0].Values); diff != "" {
		t.Errorf("S17.24 the values (-want +got):\n%s", diff)
	}
	if v := rejected[1]; v.Verdict != "violated" || v.Values != nil {
		t.Errorf("S17.24 a violation that rejects nothing: %s, %v", v.Verdict, v.Values)
	}
	for _, v := range validate(pod("a", "b", "c")) {
		if v.Values != nil {
			t.Errorf("S17.24 a request that is not rejected: %v", v.Values)
		}
	}
	shown := 0
	for range 100 {
		if validate(pod("a"))[0].Values != nil {
			shown++
		}
	}
	if shown == 0 || shown == 100 {
		t.Errorf("S17.24 %d of 100 rejections at once show values", shown)
	}
}
