package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// checkTypes reports type errors in the validations of the set's policies, for the kinds that their rules name.
func (r *run) checkTypes(ctx context.Context) error {
	var types *typing
	for _, t := range r.tasks {
		if t.skipped || t.dryRun || !t.accepted() || t.kind.Kind.Kind != registration.ValidatingPolicies.Descriptor().Kind {
			continue
		}
		if types == nil {
			d, err := discovery.NewDiscoveryClientForConfig(r.stage.Config())
			if err != nil {
				return err
			}
			types = &typing{run: r, schemas: &resolver.ClientDiscoveryResolver{Discovery: memory.NewMemCacheClient(d)}, known: map[string]*apiservercel.DeclType{}}
		}
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(t.object.Content, policy); err != nil {
			return fmt.Errorf("%s: %w", t.result.Title(), err)
		}
		types.check(ctx, t, policy)
	}
	return nil
}

// typing caches the CEL types of kinds and params, by the names of kinds.
type typing struct {
	*run
	schemas resolver.SchemaResolver
	known   map[string]*apiservercel.DeclType
}

// of returns the type of a kind; nil if its schema cannot be read. suffix distinguishes the types of objects and of
// params.
func (t *typing) of(kind schema.GroupVersionKind, suffix string) *apiservercel.DeclType {
	key := kind.String() + suffix
	found, ok := t.known[key]
	if !ok {
		if s, err := t.schemas.ResolveSchema(kind); err == nil {
			found = expression.ShapeOf(s, kind.Kind+suffix)
		}
		t.known[key] = found
	}
	return found
}

// check reports the type errors of a policy.
func (t *typing) check(ctx context.Context, of *task, policy *admissionregistrationv1.ValidatingAdmissionPolicy) {
	shapes := expression.Shapes{Authorizer: true}
	if p := policy.Spec.ParamKind; p != nil {
		shapes.HasParams, shapes.Params = true, t.of(schema.FromAPIVersionAndKind(p.APIVersion, p.Kind), "Params")
	}
	variables := make([]expression.Variable, len(policy.Spec.Variables))
	for i, v := range policy.Spec.Variables {
		variables[i] = expression.Variable(v)
	}
	kinds, others := t.kindsOf(policy)
	typed := map[schema.GroupVersionKind]*expression.Typed{}
	for _, kind := range kinds {
		if shapes.Object = t.of(kind, ""); shapes.Object != nil {
			typed[kind], _ = expression.NewTyped(shapes, variables)
		}
	}
	for i, v := range policy.Spec.Validations {
		for _, one := range []struct{ field, text string }{{"expression", v.Expression}, {"messageExpression", v.MessageExpression}} {
			var texts []string
			for _, m := range expression.Mistakes(ctx, one.text, kinds, typed, others) {
				text := fmt.Sprintf("%s %s: %s at %d:%d of the expression", m.Kind.GroupVersion(), m.Kind.Kind, m.Text, m.At.Line, m.At.Column)
				if !slices.Contains(texts, text) {
					texts = append(texts, text)
				}
			}
			if len(texts) > 0 {
				t.report.warn(of, RuleTypes, fmt.Sprintf("spec.validations[%d].%s", i, one.field), strings.Join(texts, "; "))
			}
		}
	}
}

// kindsOf returns the kinds that the rules of a policy name. others reports whether the rules also match other kinds.
func (t *typing) kindsOf(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (list []schema.GroupVersionKind, others bool) {
	if policy.Spec.MatchConstraints == nil {
		return nil, false
	}
	for i := range policy.Spec.MatchConstraints.ResourceRules {
		rule := &policy.Spec.MatchConstraints.ResourceRules[i]
		for _, group := range rule.APIGroups {
			for _, version := range rule.APIVersions {
				for _, resource := range rule.Resources {
					others = others || group == "*" || strings.Contains(resource, "*")
					if k := t.stage.Kinds().At(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}); k != nil && !slices.Contains(list, k.Kind) {
						list = append(list, k.Kind)
					}
				}
			}
		}
	}
	return list, others
}
