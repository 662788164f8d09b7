package plan

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
	"github.com/gatehouse-dev/gatehouse/internal/engine/policy"
)

// S2.10: for a custom resource named namespaces, k8s.io/apiserver treats the object's name as its
// namespace.
func TestCustomKindsCalledNamespaces(t *testing.T) {
	custom := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "namespaces"}
	object := func(namespace string) runtime.Object {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}}}
		if namespace != "" {
			u.SetNamespace(namespace)
		}
		return u
	}
	for _, tt := range []struct {
		name            string
		resource        schema.GroupVersionResource
		operation       admission.Operation
		object, old     runtime.Object
		namespace, want string
	}{
		{"of the cluster, created", custom, admission.Create, object(""), nil, "x", "cluster"},
		{"of the cluster, deleted", custom, admission.Delete, nil, object(""), "x", "cluster"},
		{"in a namespace of the same name, created", custom, admission.Create, object("x"), nil, "x", ""},
		{"in a namespace of the same name, deleted", custom, admission.Delete, nil, object("x"), "x", ""},
		{"in another namespace", custom, admission.Delete, nil, object("y"), "y", ""},
		{"Namespaces themselves", realNamespaces, admission.Delete, nil, object(""), "x", ""},
		{"another custom resource", schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "places"}, admission.Delete, nil, object(""), "x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := admission.NewAttributesRecord(tt.object, tt.old, podKind, tt.namespace, "x", tt.resource, "", tt.operation, nil, false, nil)
			if got := NewRequest(a).ClusterScoped; got != (tt.want == "cluster") {
				t.Errorf("counts as of the cluster: %v", got)
			}
		})
	}
}

var realNamespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

func TestWhatIsNotInitialized(t *testing.T) {
	mirror := labelled()
	mirror.SetAnnotations(map[string]string{"kubernetes.io/config.mirror": "1"})
	of := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	for _, tt := range []struct {
		name string
		r    Request
		obj  runtime.Object
		want Code
	}{
		{"a new pod is", Request{Operation: admission.Create, Resource: pods}, labelled(), None},
		{"S11.5 an update is not", Request{Operation: admission.Update, Resource: pods}, labelled(), NotNew},
		{"S11.15 a subresource is not", Request{Operation: admission.Create, Resource: pods, Subresource: "binding"}, labelled(), NotNew},
		{"S11.15 a Binding is not, which changes a stored pod", Request{Operation: admission.Create, Resource: of("bindings")}, labelled(), NotNew},
		{"a custom kind called bindings is", Request{Operation: admission.Create, Resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "bindings"}}, labelled(), None},
		{"S11.19 a mirror pod is not", Request{Operation: admission.Create, Resource: pods}, mirror, MirrorPod},
		{"S11.19 another object with that annotation is", Request{Operation: admission.Create, Resource: of("services")}, mirror, None},
		{"S2.41 a review is not", Request{Operation: admission.Create, Resource: schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews"}}, nil, NotAsked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := notInitialized(&tt.r, tt.obj); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// The effects of the administrator's rules on a webhook (S23).
func TestExclusionsOfCandidates(t *testing.T) {
	r := &Request{Operation: admission.Create, Resource: pods, Kind: podKind, Namespace: "shop"}
	ten := int32(10)
	make := func(x *exclusion.Exclusion) *Candidate {
		c := step(t, r, func(w *v1.ValidatingWebhook) { w.TimeoutSeconds = &ten })
		c.Exclusion = x
		return c
	}
	rule := &exclusion.Rule{Name: "r", TimeoutSeconds: 2}
	in := given{Object: labelled()}.input()
	if c := make(nil); c.Forgives() || c.Timeout() != 10*time.Second || !c.Decide(t.Context(), r, in).Applies {
		t.Errorf("without a rule: %+v", c)
	}
	if c := make(&exclusion.Exclusion{IgnoreFailures: rule}); !c.Forgives() {
		t.Error("S23.6: its failure is not forgiven")
	}
	if c := make(&exclusion.Exclusion{CapTimeout: rule}); c.Timeout() != 2*time.Second {
		t.Errorf("S23.7: it may take %v", c.Timeout())
	}
	if d := make(&exclusion.Exclusion{Skip: rule}).Decide(t.Context(), r, in); d.Applies || d.Reason.Code != ExclusionRule {
		t.Errorf("S23.5: %+v", d)
	}
}

// S14.4: exclude rules take precedence over matching rules, regardless of their order.
func TestRulesThatExclude(t *testing.T) {
	rule := func(resource string) v1.NamedRuleWithOperations {
		return v1.NamedRuleWithOperations{RuleWithOperations: v1.RuleWithOperations{
			Operations: []v1.OperationType{"*"}, Rule: v1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}
	}
	for exclude, want := range map[string]int{"pods": 0, "*": 0, "services": 1, "pods/status": 1} {
		p := &v1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &v1.MatchResources{ResourceRules: []v1.NamedRuleWithOperations{rule("*")}, ExcludeResourceRules: []v1.NamedRuleWithOperations{rule(exclude)}},
			Validations:      []v1.Validation{{Expression: "true"}},
		}}
		b := &v1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "p", ValidationActions: []v1.ValidationAction{v1.Deny}}}
		registration.Default(p)
		registration.Default(b)
		s := snapshot.Compile(snapshot.Registrations{Objects: []runtime.Object{p, b}})
		r := &Request{Operation: admission.Create, Resource: pods, Kind: podKind, Namespace: "shop"}
		if got := Candidates(s, registration.ValidatingPolicies, r, nil); len(got) != want {
			t.Errorf("without %s, %d policies are candidates for a pod, want %d", exclude, len(got), want)
		}
	}
}

// The outcome of a webhook that applies, without a call.
func TestOutcome(t *testing.T) {
	for _, tt := range []struct {
		name        string
		policy      v1.FailurePolicyType
		sideEffects v1.SideEffectClass
		versions    []string
		dryRun      bool
		want        Effect
		code        Code
	}{
		{"it is called", v1.Fail, "None", []string{"v1"}, false, Call, None},
		{"on dry run, too, without side effects", v1.Fail, "NoneOnDryRun", []string{"v1"}, true, Call, None},
		{"S7.6 side effects reject a dry run", v1.Fail, "Some", []string{"v1"}, true, Reject, NoDryRun},
		{"S7.6 whatever the failure policy is", v1.Ignore, "Some", []string{"v1"}, true, Reject, NoDryRun},
		{"side effects are of no account otherwise", v1.Fail, "Some", []string{"v1"}, false, Call, None},
		{"S3.6 no version of reviews", v1.Fail, "None", []string{"v7"}, false, Reject, NoReviewVersion},
		{"S3.6 no version of reviews, ignored", v1.Ignore, "None", []string{"v7"}, false, Ignored, NoReviewVersion},
		{"S7.4 no side effects are known", v1.Fail, "", []string{"v1"}, true, Reject, NoSideEffects},
		{"S7.4 no side effects are known, ignored", v1.Ignore, "", []string{"v1"}, true, Ignored, NoSideEffects},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &Request{Operation: admission.Create, Resource: pods, Kind: podKind, Namespace: "shop", DryRun: tt.dryRun}
			c := step(t, r, func(w *v1.ValidatingWebhook) {
				w.FailurePolicy, w.AdmissionReviewVersions, w.SideEffects = &tt.policy, tt.versions, &tt.sideEffects
				if tt.sideEffects == "" {
					w.SideEffects = nil
				}
			})
			if effect, reason := c.Outcome(r); effect != tt.want || reason.Code != tt.code {
				t.Errorf("%s, %v, want %s, %v", effect, reason.Code, tt.want, tt.code)
			}
		})
	}
}

// An external hook (v1alpha1) cannot declare that it has no side effects, so a dry run is rejected,
// regardless of the failure policy.
func TestExternalHooksOnDryRun(t *testing.T) {
	c := &Candidate{Entry: &snapshot.Entry{Entry: &registration.Entry{
		Origin: registration.Origin{Source: registration.External}, FailurePolicy: registration.Ignore, Webhook: &registration.Webhook{},
	}}}
	if effect, reason := c.Outcome(&Request{DryRun: true}); effect != Reject || reason.Code != NoDryRun {
		t.Errorf("S12.9 %s, %v", effect, reason.Code)
	}
}

// judged returns the judgement of a policy with a failure policy.
func judged(forgives bool) *Judgement {
	entry := &registration.Entry{Origin: registration.Origin{Source: registration.ValidatingPolicies, Configuration: "p"}, FailurePolicy: registration.Fail}
	if forgives {
		entry.FailurePolicy = registration.Ignore
	}
	return &Judgement{Matched: Matched{Candidate: &Candidate{Entry: &snapshot.Entry{Entry: entry}}}}
}

func TestConsequences(t *testing.T) {
	broken := errors.New("no such key")
	violated := Evaluation{Result: policy.Result{Findings: []policy.Finding{{Violated: true, Message: "too large", Reason: metav1.StatusReasonForbidden}}}}
	failed := Evaluation{Result: policy.Result{Findings: []policy.Finding{{Err: broken, Message: broken.Error(), Reason: metav1.StatusReasonInvalid}}}}
	condition := failed
	condition.Condition.Err = broken
	annotation := Evaluation{Result: policy.Result{Annotations: []policy.Annotation{{Key: "k", Err: broken}}}}
	for _, tt := range []struct {
		name     string
		e        Evaluation
		forgives bool
		actions  []v1.ValidationAction
		want     string
	}{
		{"what holds has none", Evaluation{Result: policy.Result{Findings: []policy.Finding{{}}, Annotations: []policy.Annotation{{Key: "k"}}}}, false, []v1.ValidationAction{v1.Deny}, ""},
		{"S17.11 a violation denies", violated, false, []v1.ValidationAction{v1.Deny}, "Violated deny"},
		{"S17.11 a violation warns and audits", violated, false, []v1.ValidationAction{v1.Warn, v1.Audit}, "Violated warn audit"},
		{"S17.6 failurePolicy does not forgive a violation", violated, true, []v1.ValidationAction{v1.Deny}, "Violated deny"},
		{"S17.6 an error has the actions of the binding", failed, false, []v1.ValidationAction{v1.Warn}, "EvaluationFailed warn"},
		{"S17.6 an error is forgiven", failed, true, []v1.ValidationAction{v1.Deny, v1.Warn}, "EvaluationFailed forgiven"},
		{"S17.6 an error of a condition", condition, false, []v1.ValidationAction{v1.Audit}, "ConditionFailed audit"},
		{"S17.19 an audit annotation that fails denies, whatever the actions are", annotation, false, []v1.ValidationAction{v1.Audit}, "EvaluationFailed deny"},
		{"S17.19 an audit annotation that fails is forgiven", annotation, true, []v1.ValidationAction{v1.Deny}, "EvaluationFailed forgiven"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := judged(tt.forgives)
			j.follow(&snapshot.Entry{Entry: &registration.Entry{Binding: &registration.Binding{Actions: tt.actions}}}, &tt.e)
			got := ""
			for _, c := range j.Consequences {
				got = map[Code]string{Violated: "Violated", EvaluationFailed: "EvaluationFailed", ConditionFailed: "ConditionFailed"}[c.Code]
				for _, word := range []struct {
					is   bool
					text string
				}{{c.Forgiven, " forgiven"}, {c.Denies, " deny"}, {c.Warns, " warn"}, {c.Audits, " audit"}} {
					if word.is {
						got += word.text
					}
				}
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	for _, forgives := range []bool{false, true} {
		if c := judged(forgives).configuration(nil, NoParams, broken); c.Denies == forgives || c.Forgiven != forgives {
			t.Errorf("S17.13 a configuration error, forgiven %v: %+v", forgives, c)
		}
	}
}

func TestRejectionsOfPolicies(t *testing.T) {
	param := &Param{}
	consequence := func(denies bool, param *Param, message string, reason metav1.StatusReason) Consequence {
		return Consequence{Policy: judged(false).Candidate.Entry, Param: param, Message: message, Reason: reason, Denies: denies}
	}
	list := []Judgement{
		{Consequences: []Consequence{consequence(false, param, "forgiven", metav1.StatusReasonConflict), consequence(true, param, "first", metav1.StatusReasonForbidden)}},
		{Consequences: []Consequence{consequence(true, nil, "misconfigured", metav1.StatusReasonInvalid)}},
	}
	text := func(message string) string { return "ValidatingAdmissionPolicy 'p' denied request: " + message }
	texts, reason := Denied(list)
	if diff := cmp.Diff([]string{text("first"), text("misconfigured")}, texts); diff != "" || reason != metav1.StatusReasonForbidden {
		t.Errorf("S17.15 reason %s, texts:\n%s", reason, diff)
	}
	texts, reason = Refused(list)
	if diff := cmp.Diff([]string{text("misconfigured"), text("first")}, texts); diff != "" || reason != metav1.StatusReasonInvalid {
		t.Errorf("S18.24 reason %s, texts:\n%s", reason, diff)
	}
	if texts, _ := Denied(list[:0]); texts != nil {
		t.Errorf("nothing was found, and %q", texts)
	}
	r := &Request{Resource: pods, Kind: podKind, Name: "web"}
	if s := r.MutationDenial(labelled(), metav1.StatusReasonInvalid, []string{"one", "two"}).ErrStatus; s.Code != 403 || s.Message != "one" || s.Reason != metav1.StatusReasonInvalid {
		t.Errorf("S18.24: %+v", s)
	}
}

// Only an evaluation without findings skips the work for consequences.
func TestQuietEvaluations(t *testing.T) {
	for _, tt := range []struct {
		name string
		r    policy.Result
		want bool
	}{
		{"nothing was found", policy.Result{}, true},
		{"everything holds", policy.Result{Findings: []policy.Finding{{}, {}}, Annotations: []policy.Annotation{{Value: "v"}}}, true},
		{"a violation", policy.Result{Findings: []policy.Finding{{}, {Violated: true}}}, false},
		{"an error", policy.Result{Findings: []policy.Finding{{Err: errors.New("x")}}}, false},
		{"an annotation that failed", policy.Result{Annotations: []policy.Annotation{{Err: errors.New("x")}}}, false},
	} {
		if got := (&Evaluation{Result: tt.r}).quiet(); got != tt.want {
			t.Errorf("%s: quiet is %v", tt.name, got)
		}
	}
}
