package stores

import (
	"context"
	"fmt"
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/discovery"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/resolver"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

const (
	validatingPolicies = "validatingadmissionpolicies"
	validatingBindings = "validatingadmissionpolicybindings"
	mutatingPolicies   = "mutatingadmissionpolicies"
	mutatingBindings   = "mutatingadmissionpolicybindings"
)

// refinePolicies changes upstream's strategies of admission policies and their bindings.
// Updates that change nothing need not meet new rules (D75, D76), and writers get warnings
// about parts that cannot work (D58, D59, D68, D77).
func refinePolicies(groups []Group, kinds discovery.DiscoveryInterface) error {
	resolve, err := resolver.NewDiscoveryResourceResolver(kinds)
	if err != nil {
		return err
	}
	for v := range Versions(groups, admissionregistration.GroupName) {
		refine(v.Storage, validatingPolicies, validatingPolicyStrategy{})
		refine(v.Storage, mutatingPolicies, mutatingPolicyStrategy{})
		refine(v.Storage, validatingBindings, bindingStrategy{policies: getter(v.Storage, validatingPolicies), kinds: resolve})
		refine(v.Storage, mutatingBindings, bindingStrategy{policies: getter(v.Storage, mutatingPolicies), kinds: resolve})
	}
	return nil
}

func getter(storage map[string]rest.Storage, resource string) rest.Getter {
	g, _ := storage[resource].(rest.Getter)
	return g
}

// refine puts a refinement around the strategies of a resource, if there is one.
func refine(storage map[string]rest.Storage, resource string, r refinement) {
	store := RegistryOf(storage[resource])
	if store == nil {
		return
	}
	store.CreateStrategy = refinedCreate{store.CreateStrategy.(declarativeCreate), r}
	store.UpdateStrategy = refinedUpdate{store.UpdateStrategy.(updateStrategy), r}
}

// refinement is the difference between Gatehouse's and upstream's handling of one kind.
type refinement interface {
	// before returns the stored object in the form that upstream's validation of an update needs.
	// It changes neither object.
	before(obj, old runtime.Object) runtime.Object
	// validate returns errors of an object in addition to upstream's; old is nil for a new object.
	validate(obj, old runtime.Object) field.ErrorList
	// errors filters upstream's errors of an update.
	errors(obj, old runtime.Object, errs field.ErrorList) field.ErrorList
	// warnings returns the warnings for a writer about parts of a valid object that cannot work.
	warnings(ctx context.Context, obj runtime.Object) []string
}

// declarativeCreate has all methods that k8s.io/apiserver looks for in the create strategies of
// policies and bindings: it silently skips a method that a wrapper leaves out.
type declarativeCreate interface {
	rest.RESTCreateStrategy
	rest.DeclarativeValidationStrategy
}

type refinedCreate struct {
	declarativeCreate
	refinement refinement
}

// Validate implements rest.RESTCreateStrategy.
func (s refinedCreate) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return append(s.declarativeCreate.Validate(ctx, obj), s.refinement.validate(obj, nil)...)
}

// WarningsOnCreate implements rest.RESTCreateStrategy.
func (s refinedCreate) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	return append(s.declarativeCreate.WarningsOnCreate(ctx, obj), s.refinement.warnings(ctx, obj)...)
}

type refinedUpdate struct {
	updateStrategy
	refinement refinement
}

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s refinedUpdate) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := s.updateStrategy.ValidateUpdate(ctx, obj, s.refinement.before(obj, old))
	if len(errs) > 0 {
		errs = s.refinement.errors(obj, old, errs)
	}
	return append(errs, s.refinement.validate(obj, old)...)
}

// WarningsOnUpdate implements rest.RESTUpdateStrategy.
func (s refinedUpdate) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	return append(s.updateStrategy.WarningsOnUpdate(ctx, obj, old), s.refinement.warnings(ctx, obj)...)
}

// refiningLittle is the part of a refinement that most kinds have in common.
type refiningLittle struct{}

// validate checks the annotations for warn-only and audit-only enforcement of a policy or a binding
// (S28.4).
func (refiningLittle) validate(obj, old runtime.Object) field.ErrorList {
	before, _ := old.(metav1.Object)
	return registration.ValidateEnforcement(obj.(metav1.Object), before, nil)
}

func (refiningLittle) errors(_, _ runtime.Object, errs field.ErrorList) field.ErrorList { return errs }

// validatingPolicyStrategy refines ValidatingAdmissionPolicy.
type validatingPolicyStrategy struct{ refiningLittle }

// before adds the texts of stored variables to the texts of validations, because upstream looks
// only there for texts that compile as stored expressions (D76).
func (validatingPolicyStrategy) before(_, old runtime.Object) runtime.Object {
	policy := old.(*admissionregistration.ValidatingAdmissionPolicy)
	if len(policy.Spec.Variables) == 0 {
		return old
	}
	shown := *policy
	shown.Spec.Validations = slices.Concat(policy.Spec.Validations, asValidations(policy.Spec.Variables))
	return &shown
}

func (validatingPolicyStrategy) warnings(_ context.Context, obj runtime.Object) []string {
	spec := &obj.(*admissionregistration.ValidatingAdmissionPolicy).Spec
	warnings := repeated(spec.Variables)
	for i, a := range spec.AuditAnnotations {
		if usesAuthorizer(a.ValueExpression, spec.Variables) {
			warnings = append(warnings, fmt.Sprintf(
				"spec.auditAnnotations[%d].valueExpression: authorizer is not available here: the expression always fails, and under failurePolicy Fail so does the request", i))
		}
	}
	return warnings
}

// mutatingPolicyStrategy refines MutatingAdmissionPolicy.
type mutatingPolicyStrategy struct{ refiningLittle }

// before adds the texts of stored JSON patches to the texts of apply configurations, because
// upstream looks only there for texts that compile as stored expressions (D76).
func (mutatingPolicyStrategy) before(_, old runtime.Object) runtime.Object {
	policy := old.(*admissionregistration.MutatingAdmissionPolicy)
	shown := *policy
	shown.Spec.Mutations = slices.Clip(policy.Spec.Mutations)
	for _, m := range policy.Spec.Mutations {
		if m.JSONPatch != nil {
			shown.Spec.Mutations = append(shown.Spec.Mutations, admissionregistration.Mutation{
				ApplyConfiguration: &admissionregistration.ApplyConfiguration{Expression: m.JSONPatch.Expression},
			})
		}
	}
	return &shown
}

// validate also checks the annotations about the order of policies (S18.33).
func (s mutatingPolicyStrategy) validate(obj, old runtime.Object) field.ErrorList {
	var before metav1.Object
	if old != nil {
		before = old.(*admissionregistration.MutatingAdmissionPolicy)
	}
	return append(registration.ValidateOrder(obj.(*admissionregistration.MutatingAdmissionPolicy), before), s.refiningLittle.validate(obj, old)...)
}

// errors replaces the errors of variables by the errors of a ValidatingAdmissionPolicy with the
// same variables, whose stored texts compile as stored expressions (D76): a MutatingAdmissionPolicy
// has no validations in which upstream would find the texts.
func (mutatingPolicyStrategy) errors(obj, old runtime.Object, errs field.ErrorList) field.ErrorList {
	const variables = "spec.variables["
	ofVariable := func(err *field.Error) bool { return strings.HasPrefix(err.Field, variables) }
	first := slices.IndexFunc(errs, ofVariable)
	before := old.(*admissionregistration.MutatingAdmissionPolicy)
	if first < 0 || len(before.Spec.Variables) == 0 {
		return errs
	}
	after := obj.(*admissionregistration.MutatingAdmissionPolicy)
	standIn := &admissionregistration.ValidatingAdmissionPolicy{Spec: admissionregistration.ValidatingAdmissionPolicySpec{
		ParamKind: after.Spec.ParamKind, Variables: after.Spec.Variables,
	}}
	stored := &admissionregistration.ValidatingAdmissionPolicy{Spec: admissionregistration.ValidatingAdmissionPolicySpec{
		Validations: asValidations(before.Spec.Variables),
	}}
	ofVariables := slices.DeleteFunc(validation.ValidateValidatingAdmissionPolicyUpdate(standIn, stored),
		func(err *field.Error) bool { return !ofVariable(err) })
	return slices.Insert(slices.DeleteFunc(slices.Clone(errs), ofVariable), first, ofVariables...)
}

func (mutatingPolicyStrategy) warnings(_ context.Context, obj runtime.Object) []string {
	return repeated(obj.(*admissionregistration.MutatingAdmissionPolicy).Spec.Variables)
}

func asValidations(variables []admissionregistration.Variable) []admissionregistration.Validation {
	list := make([]admissionregistration.Validation, len(variables))
	for i, v := range variables {
		list[i].Expression = v.Expression
	}
	return list
}

// repeated returns warnings about variables that are defined again (S13.17, D77).
func repeated(variables []admissionregistration.Variable) []string {
	var warnings []string
	seen := map[string]int{}
	for i, v := range variables {
		if first, again := seen[v.Name]; again {
			warnings = append(warnings, fmt.Sprintf("spec.variables[%d].name: %q is defined in spec.variables[%d] too: the last definition counts", i, v.Name, first))
			continue
		}
		seen[v.Name] = i
	}
	return warnings
}

// usesAuthorizer reports whether an expression asks the authorizer, itself or through
// variables.
func usesAuthorizer(expression string, variables []admissionregistration.Variable) bool {
	named := make(map[string]string, len(variables))
	for _, v := range variables {
		named[v.Name] = v.Expression
	}
	var uses func(string) bool
	uses = func(expression string) bool {
		env, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Env(environment.StoredExpressions)
		if err != nil {
			return false
		}
		parsed, issues := env.Parse(expression)
		if issues.Err() != nil {
			return false
		}
		found := celast.MatchDescendants(celast.NavigateAST(parsed.NativeRep()), func(e celast.NavigableExpr) bool {
			switch e.Kind() {
			case celast.IdentKind:
				return e.AsIdent() == "authorizer"
			case celast.SelectKind:
				of := e.AsSelect()
				if of.Operand().Kind() != celast.IdentKind || of.Operand().AsIdent() != "variables" {
					return false
				}
				text, known := named[of.FieldName()]
				// Each variable is visited once, so that the search ends.
				delete(named, of.FieldName())
				return known && uses(text)
			}
			return false
		})
		return len(found) > 0
	}
	return uses(expression)
}

// bindingStrategy refines both kinds of bindings.
type bindingStrategy struct {
	refiningLittle
	policies rest.Getter
	kinds    resolver.ResourceResolver
}

// binding has the common fields of both kinds of bindings.
type binding struct {
	policy   string
	paramRef *admissionregistration.ParamRef
}

func bindingOf(obj runtime.Object) binding {
	switch b := obj.(type) {
	case *admissionregistration.ValidatingAdmissionPolicyBinding:
		return binding{b.Spec.PolicyName, b.Spec.ParamRef}
	case *admissionregistration.MutatingAdmissionPolicyBinding:
		return binding{b.Spec.PolicyName, b.Spec.ParamRef}
	}
	return binding{}
}

// before returns an unchanged paramRef as the same pointer: upstream compares pointers, and checks
// the rights again when these differ (S13.21, D75).
func (bindingStrategy) before(obj, old runtime.Object) runtime.Object {
	is, was := bindingOf(obj), bindingOf(old)
	if is.policy != was.policy || !equality.Semantic.DeepEqual(is.paramRef, was.paramRef) {
		return old
	}
	switch b := old.(type) {
	case *admissionregistration.ValidatingAdmissionPolicyBinding:
		shown := *b
		shown.Spec.ParamRef = is.paramRef
		return &shown
	case *admissionregistration.MutatingAdmissionPolicyBinding:
		shown := *b
		shown.Spec.ParamRef = is.paramRef
		return &shown
	}
	return old
}

// warnings returns warnings about a policy or a kind of params that does not exist (S13.18,
// D58), and about a policy that only bindings in files can name (D68).
func (s bindingStrategy) warnings(ctx context.Context, obj runtime.Object) []string {
	b := bindingOf(obj)
	if strings.HasSuffix(b.policy, validation.StaticConfigSuffix) {
		return []string{fmt.Sprintf("spec.policyName: %q is the name of a policy from a static manifest, which only a binding from a static manifest can bind: this binding has no effect", b.policy)}
	}
	found, err := s.policies.Get(ctx, b.policy, &metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return []string{fmt.Sprintf("spec.policyName: there is no policy %q: the binding has no effect until there is one", b.policy)}
		}
		return nil
	}
	var kind *admissionregistration.ParamKind
	switch policy := found.(type) {
	case *admissionregistration.ValidatingAdmissionPolicy:
		kind = policy.Spec.ParamKind
	case *admissionregistration.MutatingAdmissionPolicy:
		kind = policy.Spec.ParamKind
	}
	if kind == nil {
		return nil
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	if _, err := s.kinds.Resolve(gvk); err == nil || !missing(err) {
		return nil
	}
	return []string{fmt.Sprintf("spec.policyName: the policy's paramKind %s is not served: the policy's failurePolicy decides on every request it matches until it is", gvk)}
}

// missing reports whether discovery has found that there is no such kind.
func missing(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}
