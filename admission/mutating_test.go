package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/exclusion"
)

// changing is a policy for new pods, with a binding of its own.
type changing struct {
	name      string
	mutations []v1.Mutation
	conditions,
	variables map[string]string
	ignore, again bool
	paramKind     *v1.ParamKind
	bindings      []v1.MutatingAdmissionPolicyBindingSpec
}

func applying(expression string) v1.Mutation {
	return v1.Mutation{PatchType: v1.PatchTypeApplyConfiguration, ApplyConfiguration: &v1.ApplyConfiguration{Expression: expression}}
}

func patching(expression string) v1.Mutation {
	return v1.Mutation{PatchType: v1.PatchTypeJSONPatch, JSONPatch: &v1.JSONPatch{Expression: expression}}
}

// labelling sets a label to the value of an expression.
func labelling(name, value string) v1.Mutation {
	return applying(fmt.Sprintf(`Object{metadata: Object.metadata{labels: {%q: %s}}}`, name, value))
}

func (m changing) objects() []runtime.Object {
	p := &v1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: m.name}}
	p.Spec.Mutations, p.Spec.ParamKind, p.Spec.ReinvocationPolicy = m.mutations, m.paramKind, v1.NeverReinvocationPolicy
	p.Spec.MatchConstraints = &v1.MatchResources{ResourceRules: []v1.NamedRuleWithOperations{{RuleWithOperations: rule("CREATE", "", "v1", "pods")[0]}}}
	if m.ignore {
		p.Spec.FailurePolicy = new(v1.Ignore)
	}
	if m.again {
		p.Spec.ReinvocationPolicy = v1.IfNeededReinvocationPolicy
	}
	for _, name := range slices.Sorted(maps.Keys(m.conditions)) {
		p.Spec.MatchConditions = append(p.Spec.MatchConditions, v1.MatchCondition{Name: name, Expression: m.conditions[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(m.variables)) {
		p.Spec.Variables = append(p.Spec.Variables, v1.Variable{Name: name, Expression: m.variables[name]})
	}
	list := []runtime.Object{p}
	if m.bindings == nil {
		m.bindings = []v1.MutatingAdmissionPolicyBindingSpec{{}}
	}
	for i, spec := range m.bindings {
		spec.PolicyName = m.name
		list = append(list, &v1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", m.name, i)}, Spec: spec})
	}
	return list
}

// params are ConfigMaps.
type params []*corev1.ConfigMap

func (p params) Scope(_ context.Context, kind schema.GroupVersionKind) (namespaced, served bool, err error) {
	return true, kind == is("", "v1", "ConfigMap"), nil
}

func (p params) Get(_ context.Context, _ schema.GroupVersionKind, namespace, name string) (runtime.Object, error) {
	for _, c := range p {
		if c.Namespace == namespace && c.Name == name {
			return c, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (p params) List(_ context.Context, _ schema.GroupVersionKind, namespace string, selector labels.Selector) ([]runtime.Object, error) {
	var list []runtime.Object
	byName := func(a, b *corev1.ConfigMap) int { return strings.Compare(a.Name, b.Name) }
	for _, c := range slices.SortedFunc(slices.Values(p), byName) {
		if c.Namespace == namespace && selector.Matches(labels.Set(c.Labels)) {
			list = append(list, c)
		}
	}
	return list, nil
}

// unstructuredParams are ConfigMaps by name, in the form in which a server reads params.
type unstructuredParams struct{ params }

func (p unstructuredParams) Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error) {
	object, err := p.params.Get(ctx, kind, namespace, name)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return &unstructured.Unstructured{Object: content}, err
}

func configMap(name, value string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"p": "q"}}, Data: map[string]string{"v": value}}
	c.SetGroupVersionKind(is("", "v1", "ConfigMap"))
	return c
}

// admit sends a new pod through the mutating policies, twice if they request it, and returns its
// labels.
func admit(t *testing.T, o Options, namespace string, policies ...changing) (map[string]string, error) {
	t.Helper()
	var list []runtime.Object
	for _, p := range policies {
		list = append(list, p.objects()...)
	}
	o.Snapshots, o.Authorizer, o.Schemas = register(list...), alice{}, catalogueSchemas
	if o.Namespaces == nil {
		o.Namespaces = scenarioNamespaces{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "red"}}}}
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace}}
	a := admission.NewAttributesRecord(pod, nil, is("", "v1", "Pod"), namespace, "web", at("", "v1", "pods"), "", admission.Create,
		optionsOf(admission.Create, false), false, &user.DefaultInfo{Name: "bob"})
	err = Chain(Plugin{MutatingPolicyName, e.MutatingPolicies()}).Admit(t.Context(), a, catalogueInterfaces)
	return pod.Labels, err
}

const costly = `[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6].all(e, a+b+c+d+e>0)))))`

func TestMutatingPolicies(t *testing.T) {
	kind := &v1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	byName := func(name string, missing v1.ParameterNotFoundActionType) v1.MutatingAdmissionPolicyBindingSpec {
		return v1.MutatingAdmissionPolicyBindingSpec{ParamRef: &v1.ParamRef{Name: name, ParameterNotFoundAction: &missing}}
	}
	bySelector := v1.MutatingAdmissionPolicyBindingSpec{ParamRef: &v1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: new(v1.DenyAction)}}
	// appending adds a character to label l.
	appending := func(value string) v1.Mutation {
		return labelling("l", `object.metadata.?labels.l.orValue("") + `+value)
	}
	config := params{configMap("one", "1"), configMap("two", "2"), configMap("three", "3")}
	for _, tt := range []struct {
		name     string
		policies []changing
		params   params
		// unstructured has the params in the form in which a server reads them.
		unstructured bool
		want         map[string]string
		// err is the message, and causes are the causes of the status.
		err    string
		causes []string
	}{
		{
			name: "S18.2 S18.3 mutations apply in order, policies by name",
			policies: []changing{
				{name: "b", mutations: []v1.Mutation{appending("'3'")}},
				{name: "a", mutations: []v1.Mutation{appending("'1'"), appending("'2'")}},
			},
			want: map[string]string{"l": "123"},
		},
		{
			name: "S18.2 S15.3 S15.12 bindings by name, then params by name", params: config,
			policies: []changing{{name: "a", paramKind: kind, mutations: []v1.Mutation{appending("params.data.v"), appending("'.'")},
				bindings: []v1.MutatingAdmissionPolicyBindingSpec{byName("two", v1.DenyAction), bySelector}}},
			want: map[string]string{"l": "2.1.3.2."},
		},
		{
			name: "S15.2 without a paramRef params is null", params: config,
			policies: []changing{{name: "a", paramKind: kind, mutations: []v1.Mutation{labelling("l", "string(params == null)")}}},
			want:     map[string]string{"l": "true"},
		},
		{
			name: "S15.11 D78 a param of a built-in kind does not say its kind", params: config,
			policies: []changing{{name: "a", paramKind: kind, mutations: []v1.Mutation{labelling("l", "string(has(params.kind)) + params.metadata.name")},
				bindings: []v1.MutatingAdmissionPolicyBindingSpec{byName("one", v1.DenyAction)}}},
			want: map[string]string{"l": "falseone"},
		},
		{
			name: "S15.11 D78 nor does one that the server reads as JSON", params: config, unstructured: true,
			policies: []changing{{name: "a", paramKind: kind, mutations: []v1.Mutation{labelling("l", "string(has(params.kind)) + string(has(params.apiVersion)) + params.metadata.name")},
				bindings: []v1.MutatingAdmissionPolicyBindingSpec{byName("one", v1.DenyAction)}}},
			want: map[string]string{"l": "falsefalseone"},
		},
		{
			name: "S15.7 no params, and the binding is satisfied", params: config,
			policies: []changing{{name: "a", paramKind: kind, mutations: []v1.Mutation{appending("'x'")},
				bindings: []v1.MutatingAdmissionPolicyBindingSpec{byName("none", v1.AllowAction)}}},
		},
		{
			name: "S15.7 S18.24 no params is a configuration error", params: config,
			policies: []changing{{name: "a", paramKind: kind, mutations: []v1.Mutation{appending("'x'")},
				bindings: []v1.MutatingAdmissionPolicyBindingSpec{byName("none", v1.DenyAction)}}},
			err: "policy 'a' with binding 'a-0' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
		},
		{
			name: "S18.24 configuration errors come first, and every error is a cause",
			policies: []changing{
				{name: "a", mutations: []v1.Mutation{labelling("l", "object.none"), patching(`[JSONPatch{op: "remove", path: "/none"}]`)}},
				{name: "b", paramKind: &v1.ParamKind{APIVersion: "example.com/v1", Kind: "Missing"}, mutations: []v1.Mutation{appending("'x'")}},
				{name: "c", ignore: true, mutations: []v1.Mutation{labelling("l", "object.none")}},
				{name: "d", conditions: map[string]string{"fails": "object.none == 1"}, mutations: []v1.Mutation{appending("'x'")}},
			},
			err: `policy "b" denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Missing'`,
			causes: []string{
				`policy "b" denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Missing'`,
				`policy 'a' with binding 'a-0' denied request: expression 'Object{metadata: Object.metadata{labels: {"l": object.none}}}' resulted in error: no such key: none`,
				`policy 'a' with binding 'a-0' denied request: JSON Patch: error in remove for path: '/none': Unable to remove nonexistent key: none: missing value`,
				`policy 'd' with binding 'd-0' denied request: expression 'object.none == 1' resulted in error: no such key: none`,
			},
		},
		{
			name: "S18.24 scenario 21 under Ignore a policy may apply in part",
			policies: []changing{{name: "a", ignore: true, mutations: []v1.Mutation{
				labelling("first", "'x'"), patching(`[JSONPatch{op: "remove", path: "/none"}]`), labelling("third", "'x'")}}},
			want: map[string]string{"first": "x", "third": "x"},
		},
		{
			name:     "S18.5 S14.14 a false condition outweighs one that fails",
			policies: []changing{{name: "a", conditions: map[string]string{"1": "object.none == 1", "2": "false"}, mutations: []v1.Mutation{appending("'x'")}}},
		},
		{
			name:     "S16.3 S18.31 what does not compile says what the compiler says",
			policies: []changing{{name: "a", mutations: []v1.Mutation{applying("Object{"), applying(`"text"`), patching("[]")}}},
			causes: []string{
				"policy 'a' with binding 'a-0' denied request: compilation failed: ERROR: <input>:1:8: Syntax error: mismatched input '<EOF>' expecting {'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}\n | Object{\n | .......^",
				"policy 'a' with binding 'a-0' denied request: must evaluate to Object but got string",
				"policy 'a' with binding 'a-0' denied request: must evaluate to list(JSONPatch) but got list(dyn)",
			},
		},
		{
			name: "S16.9 S16.14 each mutation has a budget of its own, for itself and the variables it uses",
			policies: []changing{{
				name:      "a",
				variables: map[string]string{"a": costly, "b": costly, "c": costly},
				mutations: []v1.Mutation{labelling("l", "string(variables.a && variables.b && variables.c)"), labelling("m", "string(variables.a && variables.b && variables.c)")},
			}},
			want: map[string]string{"l": "true", "m": "true"},
		},
		{
			name:     "S16.14 a mutation that costs too much",
			policies: []changing{{name: "a", mutations: []v1.Mutation{labelling("l", "string("+costly+" && "+costly+")")}}},
			err:      "policy 'a' with binding 'a-0' denied request: expression 'Object{metadata: Object.metadata{labels: {\"l\": string(" + costly + " && " + costly + ")}}}' resulted in error: operation cancelled: actual cost limit exceeded",
		},
		{
			name: "S16.11 a variable that fails does so where it is used",
			policies: []changing{{name: "a", ignore: true, variables: map[string]string{"bad": "object.none"},
				mutations: []v1.Mutation{labelling("l", "'x'"), labelling("m", "variables.bad"), labelling("n", "'x'")}}},
			want: map[string]string{"l": "x", "n": "x"},
		},
		{
			name: "S16.4 S16.5 what mutations see of the request",
			policies: []changing{{name: "a", mutations: []v1.Mutation{
				labelling("namespace", "namespaceObject.metadata.labels.team"), labelling("user", "request.userInfo.username"),
				labelling("resource", "request.resource.resource"), labelling("old", "string(oldObject == null)"),
				labelling("may", "string(authorizer.requestResource.check('create').allowed())"),
			}}},
			want: map[string]string{"namespace": "red", "user": "bob", "resource": "pods", "old": "true", "may": "false"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Params: tt.params}
			if tt.unstructured {
				o.Params = unstructuredParams{tt.params}
			}
			got, err := admit(t, o, "shop", tt.policies...)
			if tt.err == "" && tt.causes == nil {
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("labels (-want +got):\n%s", diff)
				}
				return
			}
			status, ok := err.(apierrors.APIStatus)
			if !ok {
				t.Fatalf("got %v", err)
			}
			s := status.Status()
			if tt.err != "" && s.Message != tt.err {
				t.Errorf("message %s\nwant %s", s.Message, tt.err)
			}
			want := metav1.StatusReasonInvalid
			if strings.Contains(s.Message, "failed to configure") {
				want = metav1.StatusReasonForbidden
			}
			if s.Code != 403 || s.Reason != want || s.Details.Name != "web" || s.Details.Kind != "pods" {
				t.Errorf("S18.24 F23 status %+v", s)
			}
			if tt.causes == nil {
				return
			}
			var causes []string
			for _, c := range s.Details.Causes {
				causes = append(causes, c.Message)
			}
			if diff := cmp.Diff(tt.causes, causes); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
		})
	}
}

// S18.25: without the namespace of the request, nothing is evaluated, and the failure policy does
// not matter.
func TestMutatingPoliciesNeedTheNamespace(t *testing.T) {
	_, err := admit(t, Options{}, "gone", changing{name: "a", ignore: true, mutations: []v1.Mutation{labelling("l", "'x'")}})
	if !apierrors.IsNotFound(err) || err.Error() != `namespaces "gone" not found` {
		t.Errorf("got %v", err)
	}
}

// S18.31: one observation for each mutation, with the kind of error; S19.8: the step is
// counted as admit.
func TestMutationsAreCounted(t *testing.T) {
	counter := func(name string, labels ...string) float64 { return sample(t, name, labels...) }
	const checks = "apiserver_mutating_admission_policy_check_total"
	policy := changing{name: "counted", ignore: true, mutations: []v1.Mutation{
		labelling("a", "'x'"), labelling("b", "'x'"), labelling("c", "object.none"), applying("Object{"),
		patching(`[JSONPatch{op: "remove", path: "/none"}]`),
	}, bindings: []v1.MutatingAdmissionPolicyBindingSpec{{}}}
	if _, err := admit(t, Options{}, "shop", policy); err != nil {
		t.Fatal(err)
	}
	for class, want := range map[string]float64{"no_error": 2, "invalid_error": 2, "compile_error": 1} {
		if got := counter(checks, "policy", "counted", "policy_binding", "counted-0", "error_type", class); got != want {
			t.Errorf("%s: %v, want %v", class, got, want)
		}
		if got := counter("apiserver_mutating_admission_policy_check_duration_seconds", "policy", "counted", "policy_binding", "counted-0", "error_type", class); got != want {
			t.Errorf("%s: %v durations, want %v", class, got, want)
		}
	}
	if counter("apiserver_admission_controller_admission_duration_seconds", "name", MutatingPolicyName, "type", "admit", "operation", "CREATE", "rejected", "false") == 0 {
		t.Error("S19.8 the step was not counted")
	}
}

// sample returns the value of a counter, or the count of a histogram.
func sample(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			found := map[string]string{}
			for _, l := range m.GetLabel() {
				found[l.GetName()] = l.GetValue()
			}
			matches := true
			for i := 0; i < len(labels); i += 2 {
				matches = matches && found[labels[i]] == labels[i+1]
			}
			if matches && m.GetHistogram() != nil {
				return float64(m.GetHistogram().GetSampleCount())
			}
			if matches {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// S18.1: the plugin does not handle deletions.
func TestMutatingPoliciesHandleNoDeletion(t *testing.T) {
	e, err := New(Options{Snapshots: register(), Namespaces: scenarioNamespaces{}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for operation, want := range map[admission.Operation]bool{admission.Create: true, admission.Update: true, admission.Connect: true, admission.Delete: false} {
		if got := e.MutatingPolicies().Handles(operation); got != want {
			t.Errorf("%s: %v", operation, got)
		}
	}
}

// S13.5 S19.1 S19.2 the policy plugins run by default, each in its place.
func TestPoliciesHaveTheirPlaceInTheChain(t *testing.T) {
	var names []string
	for _, k := range Recommended() {
		if !k.Default {
			t.Errorf("%s does not run by default", k.Name)
		}
		names = append(names, k.Name)
	}
	want := []string{NamespaceLifecycleName, InitializersName, MutatingPolicyName, MutatingWebhookName, ValidatingPolicyName, GenericWebhookName, ValidatingWebhookName}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// S18.6: a request without an object has nothing to change, and it does not fail.
func TestMutatingPoliciesWithoutAnObject(t *testing.T) {
	policy := changing{name: "a", mutations: []v1.Mutation{labelling("l", "object.none"), applying("Object{")}}.objects()
	policy[0].(*v1.MutatingAdmissionPolicy).Spec.MatchConstraints.ResourceRules[0].RuleWithOperations = rule("CONNECT", "", "v1", "pods/exec")[0]
	e, err := New(Options{Snapshots: register(policy...), Namespaces: scenarioNamespaces{"shop": {ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	a := admission.NewAttributesRecord(nil, nil, is("", "v1", "PodExecOptions"), "shop", "web", at("", "v1", "pods"), "exec", admission.Connect,
		nil, false, &user.DefaultInfo{Name: "bob"})
	if err := e.MutatingPolicies().Admit(t.Context(), a, catalogueInterfaces); err != nil {
		t.Error(err)
	}
}

// S14.16 S14.17 S19.7: neither policies nor webhooks apply to policies and bindings, even while
// there is no snapshot.
func TestPoliciesCanBeRepaired(t *testing.T) {
	e, err := New(Options{Snapshots: noSnapshot{}, Namespaces: scenarioNamespaces{}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		a := admission.NewAttributesRecord(&v1.MutatingAdmissionPolicy{}, nil, is("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy"), "", "p",
			at("admissionregistration.k8s.io", "v1", resource), "", admission.Create, nil, false, &user.DefaultInfo{Name: "bob"})
		for name, plugin := range map[string]admission.MutationInterface{MutatingPolicyName: e.MutatingPolicies(), MutatingWebhookName: e.MutatingWebhooks()} {
			if err := plugin.Admit(t.Context(), a, catalogueInterfaces); err != nil {
				t.Errorf("%s is asked about %s: %v", name, resource, err)
			}
		}
	}
}

// Manifest files apply to requests for registrations while there is no snapshot (S21.17).
func TestManifestsJudgeWithoutASnapshot(t *testing.T) {
	policy := &v1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p.static.k8s.io"},
		Spec: v1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &v1.MatchResources{ResourceRules: []v1.NamedRuleWithOperations{{RuleWithOperations: v1.RuleWithOperations{
				Operations: []v1.OperationType{"*"}, Rule: v1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
			}}}},
			Validations: []v1.Validation{{Expression: "false", Message: "never"}},
		},
	}
	registration.Default(policy)
	local, err := snapshot.NewLocal([]snapshot.Manifest{{Object: policy, File: "f"}, {File: "f", Object: &v1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "p.static.k8s.io"},
		Spec:       v1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "p.static.k8s.io", ValidationActions: []v1.ValidationAction{v1.Deny}},
	}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := exclusion.New([]exclusion.Rule{{Name: "deployments", Effect: exclusion.Skip, Resources: []string{"deployments"}}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Snapshots: noSnapshot{local.WithExclusions(rules).Static()}, Namespaces: scenarioNamespaces{}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	judge := func(group, kind, resource string) error {
		return e.ValidatingPolicies().Validate(t.Context(), admission.NewAttributesRecord(&v1.MutatingAdmissionPolicy{}, nil, is(group, "v1", kind), "", "p",
			at(group, "v1", resource), "", admission.Create, nil, false, &user.DefaultInfo{Name: "bob"}), catalogueInterfaces)
	}
	if err := judge("admissionregistration.k8s.io", "MutatingAdmissionPolicy", "mutatingadmissionpolicies"); err == nil || !strings.Contains(err.Error(), "denied request: never") {
		t.Errorf("S21.17 a policy: %v", err)
	}
	if err := judge("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews"); err != nil {
		t.Errorf("S21.16 a review: %v", err)
	}
	// S21.18, S23.11: other requests need the registrations of the API, excluded or not.
	if err := judge("apps", "Deployment", "deployments"); err == nil || !strings.Contains(err.Error(), "there is no snapshot") {
		t.Errorf("S21.18 another kind: %v", err)
	}
}

// noSnapshot has only the snapshot of manifest files.
type noSnapshot struct{ static *snapshot.Snapshot }

func (n noSnapshot) Static() *snapshot.Snapshot { return n.static }

func (noSnapshot) Acquire(context.Context, snapshot.Subject) (*snapshot.Snapshot, error) {
	return nil, apierrors.NewInternalError(errors.New("there is no snapshot"))
}

// S18.26: policy, binding and param identify an evaluation, so that a param that is added between
// the rounds is not evaluated in the second one.
func TestOnlyWhatWasEvaluatedIsRepeated(t *testing.T) {
	config := params{configMap("one", "1")}
	policy := changing{
		name: "a", again: true, paramKind: &v1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		mutations: []v1.Mutation{labelling("l", `object.metadata.?labels.l.orValue("") + params.data.v`)},
		bindings:  []v1.MutatingAdmissionPolicyBindingSpec{{ParamRef: &v1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: new(v1.DenyAction)}}},
	}
	reads := 0
	growing := growingParams{&config, &reads}
	got, err := admit(t, Options{Params: growing}, "shop", policy)
	if err != nil || got["l"] != "11" || reads != 2 {
		t.Errorf("got %v after %d reads, %v", got, reads, err)
	}
}

// growingParams has one more param in the second read.
type growingParams struct {
	*params
	reads *int
}

var _ plan.Params = growingParams{}

func (g growingParams) List(ctx context.Context, kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]runtime.Object, error) {
	if *g.reads++; *g.reads == 2 {
		*g.params = append(*g.params, configMap("two", "2"))
	}
	return g.params.List(ctx, kind, namespace, selector)
}
