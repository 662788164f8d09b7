package admission

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Problem is an error in a policy or a binding that keeps it from working, or that its author
// cannot have intended.
type Problem struct {
	// Code names the problem, for programs; Message is a sentence for people.
	Code    string
	Message string
}

// Codes of problems that package plan does not have.
const (
	// PolicyNotFound: the policy that the binding refers to does not exist.
	PolicyNotFound = "PolicyNotFound"
	// DoesNotCompile: an expression does not compile (S16.3).
	DoesNotCompile = "DoesNotCompile"
	// RepeatedVariable: a later variable has the same name, and replaces the earlier one (D77).
	RepeatedVariable = "RepeatedVariable"
	// ParamKindNotWatched: the server watches no objects of the kind, so none can be a param
	// (S15.14).
	ParamKindNotWatched = "ParamKindNotWatched"
	// NoAuthorizer: an audit annotation uses the authorizer, which always fails (D59).
	NoAuthorizer = "NoAuthorizer"
)

// Problems returns the problems of an entry of a snapshot, if it is a policy or a binding:
// references to objects that do not exist, and errors in expressions (S20.9). Problems compiles the
// expressions. It looks for params unless their namespace depends on the request.
func (e *Engine) Problems(ctx context.Context, s *snapshot.Snapshot, entry *snapshot.Entry) []Problem {
	switch {
	case entry.Policy != nil:
		return e.problemsOfPolicy(ctx, entry)
	case entry.Binding != nil:
		return e.problemsOfBinding(ctx, s, entry)
	}
	return nil
}

func (e *Engine) problemsOfPolicy(ctx context.Context, entry *snapshot.Entry) []Problem {
	var list []Problem
	if _, problem := e.paramScope(ctx, entry); problem != nil {
		list = append(list, *problem)
	}
	for _, p := range entry.Policy.Problems() {
		list = append(list, Problem{DoesNotCompile, fmt.Sprintf("%s: %s", p.Field, strings.ReplaceAll(p.Err.Error(), "\n", " "))})
	}
	seen := map[string]int{}
	for i, v := range entry.Entry.Policy.Variables {
		if first, repeated := seen[v.Name]; repeated {
			list = append(list, Problem{RepeatedVariable, fmt.Sprintf("spec.variables[%d].name: %q is also the name of spec.variables[%d], which is not used", i, v.Name, first)})
		}
		seen[v.Name] = i
	}
	for i, a := range entry.Entry.Policy.AuditAnnotations {
		if plan.AsksAuthorizer(a.ValueExpression) {
			list = append(list, Problem{NoAuthorizer, fmt.Sprintf("spec.auditAnnotations[%d].valueExpression: the authorizer cannot be asked in audit annotations, so that the expression always fails where it asks", i)})
		}
	}
	return list
}

// paramScope reports whether the params of a policy are namespaced, and returns the problem of
// their kind, if any.
func (e *Engine) paramScope(ctx context.Context, policy *snapshot.Entry) (namespaced bool, problem *Problem) {
	p := policy.Entry.Policy
	if p.ParamKind == nil {
		return false, nil
	}
	namespaced, served, err := false, false, p.ParamKindError
	if err == nil && e.options.Params != nil {
		namespaced, served, err = e.options.Params.Scope(ctx, *p.ParamKind)
	}
	switch {
	case err != nil:
		return false, &Problem{plan.ParamKindNotFound.String(), fmt.Sprintf("spec.paramKind: %v", err)}
	case !served:
		return false, &Problem{plan.ParamKindNotFound.String(), fmt.Sprintf("spec.paramKind: no resource with kind %s in %s is served; until there is one, the policy fails", p.ParamKind.Kind, p.ParamKind.GroupVersion())}
	}
	if w, ok := e.options.Params.(kindsWithParams); ok && !w.HasParams(*p.ParamKind) {
		return false, &Problem{ParamKindNotWatched, fmt.Sprintf("spec.paramKind: no %s in %s can be a param; wherever a binding refers to one, the policy fails", p.ParamKind.Kind, p.ParamKind.GroupVersion())}
	}
	return namespaced, nil
}

// kindsWithParams is implemented by Params that exclude some served kinds from params.
type kindsWithParams interface {
	HasParams(kind schema.GroupVersionKind) bool
}

func (e *Engine) problemsOfBinding(ctx context.Context, s *snapshot.Snapshot, entry *snapshot.Entry) []Problem {
	b := entry.Binding
	policy := s.Bound(entry)
	if policy == nil {
		return []Problem{{PolicyNotFound, fmt.Sprintf("spec.policyName: there is no %s %q, so that the binding does nothing", entry.Source.Descriptor().Bound, b.PolicyName)}}
	}
	namespaced, problem := e.paramScope(ctx, policy)
	if problem != nil {
		return []Problem{{problem.Code, fmt.Sprintf("%s %q: %s", policy.Source, policy.Configuration, problem.Message)}}
	}
	kind, ref := policy.Entry.Policy.ParamKind, b.ParamRef
	switch {
	case kind == nil || ref == nil:
		return nil
	case !namespaced && ref.Namespace != "":
		return []Problem{{plan.BadParamRef.String(), fmt.Sprintf("spec.paramRef.namespace: %s is not in namespaces", kind.Kind)}}
	case namespaced && ref.Namespace == "":
		// The namespace of the params depends on the request.
		return nil
	}
	missing := false
	if ref.Name != "" {
		_, err := e.options.Params.Get(ctx, *kind, ref.Namespace, ref.Name)
		missing = apierrors.IsNotFound(err)
	} else if entry.ParamSelector != nil {
		found, err := e.options.Params.List(ctx, *kind, ref.Namespace, entry.ParamSelector)
		missing = err == nil && len(found) == 0
	}
	if !missing {
		return nil
	}
	follows := "the binding is satisfied without an evaluation"
	if ref.DenyMissing {
		follows = "the policy fails until there is one"
	}
	return []Problem{{plan.ParamsNotFound.String(), fmt.Sprintf("spec.paramRef: there is no %s that it refers to; %s", kind.Kind, follows)}}
}
