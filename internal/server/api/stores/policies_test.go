package stores

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/resolver"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
)

// none is a patch without operations.
const none = `[JSONPatch{op: "test", path: "/kind"}].filter(p, false)`

// later is an expression that a newer server stored. It uses a function that this release can
// evaluate, but that new expressions may not use yet.
const later = "[1].includes(1)"

var (
	someRules = &admissionregistration.MatchResources{
		MatchPolicy:       new(admissionregistration.Equivalent),
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		ResourceRules: []admissionregistration.NamedRuleWithOperations{{RuleWithOperations: admissionregistration.RuleWithOperations{
			Operations: []admissionregistration.OperationType{admissionregistration.Create},
			Rule:       admissionregistration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: new(admissionregistration.AllScopes)},
		}}},
	}
	noKinds = resolver.ResourceResolverFunc(func(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
		return schema.GroupVersionResource{}, &meta.NoKindMatchError{GroupKind: gvk.GroupKind()}
	})
	pods = resolver.ResourceResolverFunc(func(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
		return gvk.GroupVersion().WithResource("pods"), nil
	})
)

func validatingPolicy(change func(*admissionregistration.ValidatingAdmissionPolicySpec)) *admissionregistration.ValidatingAdmissionPolicy {
	p := &admissionregistration.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "1"},
		Spec: admissionregistration.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistration.Fail), MatchConstraints: someRules,
			Validations: []admissionregistration.Validation{{Expression: "true"}},
		},
	}
	change(&p.Spec)
	return p
}

func mutatingPolicy(change func(*admissionregistration.MutatingAdmissionPolicySpec)) *admissionregistration.MutatingAdmissionPolicy {
	p := &admissionregistration.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "1"},
		Spec: admissionregistration.MutatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistration.Fail), MatchConstraints: someRules, ReinvocationPolicy: admissionregistration.NeverReinvocationPolicy,
			Mutations: []admissionregistration.Mutation{patchOf(none)},
		},
	}
	change(&p.Spec)
	return p
}

func patchOf(expression string) admissionregistration.Mutation {
	return admissionregistration.Mutation{
		PatchType: admissionregistration.PatchTypeJSONPatch, JSONPatch: &admissionregistration.JSONPatch{Expression: expression},
	}
}

func fields(errs field.ErrorList) []string {
	var list []string
	for _, err := range errs {
		list = append(list, err.Field)
	}
	return list
}

// TestUnchangedTextsCompileAsStored proves S13.22 to S13.24 and D76: an update may keep
// an expression in its role though a writer could not use it now.
func TestUnchangedTextsCompileAsStored(t *testing.T) {
	validating := refinedUpdate{validatingadmissionpolicy.NewStrategy(nil, pods), validatingPolicyStrategy{}}
	mutating := refinedUpdate{mutatingadmissionpolicy.NewStrategy(nil, pods), mutatingPolicyStrategy{}}
	type validatingSpec = admissionregistration.ValidatingAdmissionPolicySpec
	type mutatingSpec = admissionregistration.MutatingAdmissionPolicySpec
	const patchLater = `[1].includes(1) ? [JSONPatch{op: "test", path: "/a"}] : []`
	variable := func(expression string) []admissionregistration.Variable {
		return []admissionregistration.Variable{{Name: "v", Expression: expression}}
	}
	for _, c := range []struct {
		name     string
		strategy refinedUpdate
		old, obj runtime.Object
		want     []string
	}{
		{
			"S13.22: match conditions are not looked at when they and paramKind are unchanged", validating,
			validatingPolicy(func(s *validatingSpec) {
				s.MatchConditions = []admissionregistration.MatchCondition{{Name: "c", Expression: "nonsense("}}
			}),
			validatingPolicy(func(s *validatingSpec) {
				s.MatchConditions = []admissionregistration.MatchCondition{{Name: "c", Expression: "nonsense("}}
				s.Validations[0].Expression = "false"
			}), nil,
		},
		{
			"S13.22: match conditions are looked at when paramKind changes", validating,
			validatingPolicy(func(s *validatingSpec) {
				s.MatchConditions = []admissionregistration.MatchCondition{{Name: "c", Expression: "nonsense("}}
			}),
			validatingPolicy(func(s *validatingSpec) {
				s.MatchConditions = []admissionregistration.MatchCondition{{Name: "c", Expression: "nonsense("}}
				s.ParamKind = &admissionregistration.ParamKind{APIVersion: "v1", Kind: "Pod"}
			}), []string{"spec.matchConditions[0].expression"},
		},
		{
			"S13.23: a stored validation", validating,
			validatingPolicy(func(s *validatingSpec) { s.Validations[0].Expression = later }),
			validatingPolicy(func(s *validatingSpec) { s.Validations[0].Expression = later }), nil,
		},
		{
			"S13.23: a new validation", validating,
			validatingPolicy(func(*validatingSpec) {}),
			validatingPolicy(func(s *validatingSpec) { s.Validations[0].Expression = later }), []string{"spec.validations[0].expression"},
		},
		{
			"S13.24: a stored variable", validating,
			validatingPolicy(func(s *validatingSpec) { s.Variables = variable(later) }),
			validatingPolicy(func(s *validatingSpec) { s.Variables, s.Validations[0].Expression = variable(later), "variables.v" }), nil,
		},
		{
			"S13.24: a new variable", validating,
			validatingPolicy(func(s *validatingSpec) { s.Variables = variable("true") }),
			validatingPolicy(func(s *validatingSpec) { s.Variables = variable(later) }), []string{"spec.variables[0].expression"},
		},
		{
			"S13.24: a stored JSON patch", mutating,
			mutatingPolicy(func(s *mutatingSpec) { s.Mutations[0] = patchOf(patchLater) }),
			mutatingPolicy(func(s *mutatingSpec) {
				s.Mutations = []admissionregistration.Mutation{patchOf(none), patchOf(patchLater)}
			}), nil,
		},
		{
			"S13.24: a new JSON patch", mutating,
			mutatingPolicy(func(*mutatingSpec) {}),
			mutatingPolicy(func(s *mutatingSpec) { s.Mutations[0] = patchOf(patchLater) }), []string{"spec.mutations[0].jsonPatch.expression"},
		},
		{
			"S13.24: a stored variable of a mutating policy", mutating,
			mutatingPolicy(func(s *mutatingSpec) { s.Variables = variable(later) }),
			mutatingPolicy(func(s *mutatingSpec) {
				s.Variables, s.Mutations[0] = variable(later), patchOf(`variables.v ? [] : [JSONPatch{op: "test", path: "/a"}]`)
			}), nil,
		},
		{
			"S13.24: a stored variable of a mutating policy and a new one, in order with other errors", mutating,
			mutatingPolicy(func(s *mutatingSpec) { s.Variables = variable(later) }),
			mutatingPolicy(func(s *mutatingSpec) {
				s.FailurePolicy = nil
				s.Variables = append(variable(later), admissionregistration.Variable{Name: "w", Expression: "[2].includes(2)"})
				s.Mutations[0] = patchOf("nonsense(")
			}), []string{"spec.failurePolicy", "spec.variables[1].expression", "spec.mutations[0].jsonPatch.expression"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, after := c.old.DeepCopyObject(), c.obj.DeepCopyObject()
			got := fields(c.strategy.ValidateUpdate(t.Context(), c.obj, c.old))
			if !slices.Equal(got, c.want) {
				t.Errorf("errors at %q, want %q: %v", got, c.want, c.strategy.ValidateUpdate(t.Context(), c.obj, c.old))
			}
			if !equality.Semantic.DeepEqual(before, c.old) || !equality.Semantic.DeepEqual(after, c.obj) {
				t.Error("the validation changed an object")
			}
		})
	}
}

// asked is an authorizer that records the requested verbs, and refuses.
type asked struct{ verbs []string }

func (a *asked) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	a.verbs = append(a.verbs, attributes.GetVerb()+" "+attributes.GetResource())
	return authorizer.DecisionDeny, "", nil
}

// onlyPolicy is the storage of one policy.
type onlyPolicy struct{ policy runtime.Object }

func (p onlyPolicy) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if p.policy == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: validatingPolicies}, name)
	}
	return p.policy, nil
}

func paramRef(name string) *admissionregistration.ParamRef {
	return &admissionregistration.ParamRef{Name: name, Namespace: "ns", ParameterNotFoundAction: new(admissionregistration.DenyAction)}
}

// TestRightsAreAskedForWhenTheyMatter proves S13.21 and D75: an update of a binding checks whether
// the author may read the params if policyName or paramRef changed.
func TestRightsAreAskedForWhenTheyMatter(t *testing.T) {
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "jane"})
	validating := func(policy string, ref *admissionregistration.ParamRef) runtime.Object {
		return &admissionregistration.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "b", ResourceVersion: "1"},
			Spec: admissionregistration.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: policy, ParamRef: ref, ValidationActions: []admissionregistration.ValidationAction{admissionregistration.Deny},
			},
		}
	}
	mutating := func(policy string, ref *admissionregistration.ParamRef) runtime.Object {
		return &admissionregistration.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "b", ResourceVersion: "1"},
			Spec:       admissionregistration.MutatingAdmissionPolicyBindingSpec{PolicyName: policy, ParamRef: ref},
		}
	}
	selector := paramRef("")
	selector.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	for _, c := range []struct {
		name              string
		policy, newPolicy string
		old, obj          *admissionregistration.ParamRef
		want              []string
	}{
		{"nothing changed", "p", "p", paramRef("a"), paramRef("a"), nil},
		{"nothing changed, with a selector", "p", "p", selector, selector.DeepCopy(), nil},
		{"another param", "p", "p", paramRef("a"), paramRef("b"), []string{"get pods"}},
		{"a selector", "p", "p", paramRef("a"), selector, []string{"list pods"}},
		{"another policy", "p", "q", paramRef("a"), paramRef("a"), []string{"get pods"}},
		{"no param any more", "p", "p", paramRef("a"), nil, nil},
		{"a param for the first time", "p", "p", nil, paramRef("a"), []string{"get pods"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			kind := &admissionregistration.ParamKind{APIVersion: "v1", Kind: "Pod"}
			var of asked
			s := refinedUpdate{validatingadmissionpolicybinding.NewStrategy(&of, policyGetter{kind}, pods), bindingStrategy{}}
			errs := s.ValidateUpdate(ctx, validating(c.newPolicy, c.obj), validating(c.policy, c.old))
			if !slices.Equal(of.verbs, c.want) || (len(errs) > 0) != (len(c.want) > 0) {
				t.Errorf("validating: asked %q, want %q: %v", of.verbs, c.want, errs)
			}
			of = asked{}
			s = refinedUpdate{mutatingadmissionpolicybinding.NewStrategy(&of, policyGetter{kind}, pods), bindingStrategy{}}
			errs = s.ValidateUpdate(ctx, mutating(c.newPolicy, c.obj), mutating(c.policy, c.old))
			if !slices.Equal(of.verbs, c.want) || (len(errs) > 0) != (len(c.want) > 0) {
				t.Errorf("mutating: asked %q, want %q: %v", of.verbs, c.want, errs)
			}
		})
	}
}

// policyGetter has policies with one paramKind under every name.
type policyGetter struct {
	kind *admissionregistration.ParamKind
}

func (g policyGetter) GetValidatingAdmissionPolicy(context.Context, string) (*admissionregistration.ValidatingAdmissionPolicy, error) {
	return validatingPolicy(func(s *admissionregistration.ValidatingAdmissionPolicySpec) { s.ParamKind = g.kind }), nil
}

func (g policyGetter) GetMutatingAdmissionPolicy(context.Context, string) (*admissionregistration.MutatingAdmissionPolicy, error) {
	return mutatingPolicy(func(s *admissionregistration.MutatingAdmissionPolicySpec) { s.ParamKind = g.kind }), nil
}

// TestWritersAreWarned proves D58, D59, D68 and D77 for S13.17 and S13.18: the server accepts a
// policy that is valid and cannot work, with a warning.
func TestWritersAreWarned(t *testing.T) {
	variables := func(expressions ...string) []admissionregistration.Variable {
		var list []admissionregistration.Variable
		for i := 0; i < len(expressions); i += 2 {
			list = append(list, admissionregistration.Variable{Name: expressions[i], Expression: expressions[i+1]})
		}
		return list
	}
	audit := func(expression string, v ...admissionregistration.Variable) runtime.Object {
		return validatingPolicy(func(s *admissionregistration.ValidatingAdmissionPolicySpec) {
			s.Variables = v
			s.AuditAnnotations = []admissionregistration.AuditAnnotation{{Key: "a", ValueExpression: expression}}
		})
	}
	bound := func(name string) runtime.Object {
		return &admissionregistration.ValidatingAdmissionPolicyBinding{Spec: admissionregistration.ValidatingAdmissionPolicyBindingSpec{PolicyName: name}}
	}
	withKind := func(kind *admissionregistration.ParamKind) onlyPolicy {
		return onlyPolicy{validatingPolicy(func(s *admissionregistration.ValidatingAdmissionPolicySpec) { s.ParamKind = kind })}
	}
	unreachable := resolver.ResourceResolverFunc(func(schema.GroupVersionKind) (schema.GroupVersionResource, error) {
		return schema.GroupVersionResource{}, errors.New("no answer")
	})
	nothing := &admissionregistration.ParamKind{APIVersion: "example.com/v1", Kind: "Nothing"}
	for _, c := range []struct {
		name string
		of   refinement
		obj  runtime.Object
		want []string
	}{
		{"D77: a variable is defined twice", validatingPolicyStrategy{}, audit("'x'", variables("v", "1", "w", "2", "v", "3")...), []string{`spec.variables[2].name: "v" is defined`}},
		{"D77: also in a mutating policy", mutatingPolicyStrategy{}, mutatingPolicy(func(s *admissionregistration.MutatingAdmissionPolicySpec) {
			s.Variables = variables("v", "1", "v", "2", "v", "3")
		}), []string{`spec.variables[1].name: "v"`, `spec.variables[2].name: "v"`}},
		{"D77: variables are defined once", validatingPolicyStrategy{}, audit("'x'", variables("v", "1", "w", "2")...), nil},
		{"D59: an audit value asks the authorizer", validatingPolicyStrategy{}, audit("authorizer.path('/x').check('get').reason()"), []string{"spec.auditAnnotations[0].valueExpression: authorizer"}},
		{"D59: inside a macro", validatingPolicyStrategy{}, audit("['a'].map(x, authorizer.path(x).check('get').reason()).join('')"), []string{"spec.auditAnnotations[0]"}},
		{"D59: through variables", validatingPolicyStrategy{}, audit("variables.w", variables("v", "authorizer.path('/x').check('get').reason()", "w", "variables.v")...), []string{"spec.auditAnnotations[0]"}},
		{"D59: a variable that is not used", validatingPolicyStrategy{}, audit("variables.w + object.metadata.authorizer", variables("v", "authorizer.path('/x').check('get').reason()", "w", "'x'")...), nil},
		{"D68: a binding to a static policy", bindingStrategy{policies: onlyPolicy{}, kinds: noKinds}, bound("a.static.k8s.io"), []string{`spec.policyName: "a.static.k8s.io" is the name of a policy from a static manifest`}},
		{"D58: a binding to a policy that does not exist", bindingStrategy{policies: onlyPolicy{}, kinds: noKinds}, bound("p"), []string{`spec.policyName: there is no policy "p"`}},
		{"D58: a binding to a policy whose paramKind does not exist", bindingStrategy{policies: withKind(nothing), kinds: noKinds}, bound("p"), []string{"spec.policyName: the policy's paramKind example.com/v1, Kind=Nothing is not served"}},
		{"D58: a paramKind that may exist", bindingStrategy{policies: withKind(nothing), kinds: unreachable}, bound("p"), nil},
		{"D58: a paramKind that exists", bindingStrategy{policies: withKind(nothing), kinds: pods}, bound("p"), nil},
		{"D58: no paramKind", bindingStrategy{policies: withKind(nil), kinds: noKinds}, bound("p"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.of.warnings(t.Context(), c.obj)
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("warnings %q, want those that begin with %q", got, c.want)
			}
		})
	}
}
