package check

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// typeIssue is one error of a warning about the types of an expression.
type typeIssue struct {
	// kind is the kind that the error is about.
	kind schema.GroupVersionKind
	at   expression.Place
	// text is what the compiler writes of the error, without the kind.
	text string
}

var (
	issueStart = regexp.MustCompile(`^(?:(\S*, Kind=\S+): )?ERROR: <input>:(\d+):(\d+): `)
	kindText   = regexp.MustCompile(`^(?:([^/]*)/)?([^/,]*), Kind=(.*)$`)
)

// typeIssues takes a warning apart; ok is false for a warning in another form.
func typeIssues(warning string) (list []typeIssue, ok bool) {
	kind := schema.GroupVersionKind{}
	for line := range strings.Lines(warning) {
		m := issueStart.FindStringSubmatch(line)
		if m == nil {
			if len(list) == 0 {
				return nil, false
			}
			list[len(list)-1].text += line
			continue
		}
		if m[1] != "" {
			k := kindText.FindStringSubmatch(m[1])
			if k == nil {
				return nil, false
			}
			kind = schema.GroupVersionKind{Group: k[1], Version: k[2], Kind: k[3]}
			line = strings.TrimPrefix(line, m[1]+": ")
		}
		row, _ := strconv.Atoi(m[2])
		column, _ := strconv.Atoi(m[3])
		list = append(list, typeIssue{kind, expression.Place{Line: row, Column: column}, line})
	}
	return list, len(list) > 0 && !kind.Empty()
}

// joinIssues is the opposite of typeIssues.
func joinIssues(list []typeIssue) string {
	var b strings.Builder
	for i, one := range list {
		if i == 0 || one.kind != list[i-1].kind {
			b.WriteString(one.kind.String() + ": ")
		}
		b.WriteString(strings.TrimRight(one.text, "\n") + "\n")
	}
	return strings.TrimSpace(b.String())
}

// shapes has the types of kinds and params in which a field that the API server cannot describe may
// be anything, such as a quantity. The API server leaves such a field out, and calls its use
// an error.
type shapes struct {
	schemas resolver.SchemaResolver
	known   map[schema.GroupVersionKind]*apiservercel.DeclType
}

func (r *run) shapes() (*shapes, error) {
	d, err := discovery.NewDiscoveryClientForConfig(r.stage.Config())
	if err != nil {
		return nil, err
	}
	return &shapes{&resolver.ClientDiscoveryResolver{Discovery: memory.NewMemCacheClient(d)}, map[schema.GroupVersionKind]*apiservercel.DeclType{}}, nil
}

// of returns the type of a kind; ok is false if its schema cannot be read.
func (s *shapes) of(kind schema.GroupVersionKind, suffix string) (t *apiservercel.DeclType, ok bool) {
	t, ok = s.known[kind]
	if ok {
		return t, t != nil
	}
	if found, err := s.schemas.ResolveSchema(kind); err == nil {
		t = shape(found, true).MaybeAssignTypeName(kind.Kind + suffix)
	}
	s.known[kind] = t
	return t, t != nil
}

// shape returns the type of values with a schema.
func shape(s *spec.Schema, root bool) *apiservercel.DeclType {
	if s == nil {
		return apiservercel.DynType
	}
	o := &openapi.Schema{Schema: s}
	switch {
	case o.IsXIntOrString() || o.IsXPreserveUnknownFields() && !root || len(s.Type) != 1:
		return apiservercel.DynType
	case s.Type[0] == "array" && s.Items != nil:
		return apiservercel.NewListType(shape(s.Items.Schema, false), -1)
	case s.Type[0] == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return apiservercel.NewMapType(apiservercel.StringType, shape(s.AdditionalProperties.Schema, false), -1)
	case s.Type[0] == "object" && len(s.Properties) == 0:
		return apiservercel.DynType
	case s.Type[0] == "object":
		fields := map[string]*apiservercel.DeclField{}
		add := func(name string, t *apiservercel.DeclType) {
			if escaped, ok := apiservercel.Escape(name); ok {
				fields[escaped] = apiservercel.NewDeclField(escaped, t, true, nil, nil)
			}
		}
		if root {
			add("apiVersion", apiservercel.StringType)
			add("kind", apiservercel.StringType)
			add("metadata", apiservercel.DynType)
		}
		for name := range s.Properties {
			property := s.Properties[name]
			// What is written of metadata in the definition of a custom resource is not all.
			if name != "metadata" || !root || len(property.Properties) > 0 {
				add(name, shape(&property, false))
			}
		}
		return apiservercel.NewObjectType("object", fields)
	}
	if t := common.SchemaDeclType(o, false); t != nil {
		return t
	}
	return apiservercel.DynType
}

// realIssues returns those errors of a warning about an expression that let an evaluation fail, or
// has() be false for each kind: not those about a kind for which the evaluation does not come that
// far, and not those about a field that is there.
func (r *run) realIssues(ctx context.Context, policy *admissionregistrationv1.ValidatingAdmissionPolicy, text string, issues []typeIssue) ([]typeIssue, error) {
	reach, ok := expression.NewReach(text)
	if !ok {
		return issues, nil
	}
	// wrong has the kinds for which there is an error at a place.
	wrong := map[expression.Place]map[schema.GroupVersionKind]bool{}
	for _, i := range issues {
		if wrong[i.at] == nil {
			wrong[i.at] = map[schema.GroupVersionKind]bool{}
		}
		wrong[i.at][i.kind] = true
	}
	kinds := r.typedKinds(policy)
	// never has the places that test a field that none of the kinds has which get there.
	never := map[expression.Place]bool{}
	for at, of := range wrong {
		never[at] = reach.Tests(at) != expression.Needs && !slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool {
			return !of[k] && reach.For(ctx, k, nil)[at]
		})
	}
	reached := map[schema.GroupVersionKind]map[expression.Place]bool{}
	var left []typeIssue
	for _, i := range issues {
		if reached[i.kind] == nil {
			missing := map[expression.Place]bool{}
			for at, of := range wrong {
				missing[at] = of[i.kind] && !never[at] && reach.Tests(at) == expression.Asks
			}
			reached[i.kind] = reach.For(ctx, i.kind, missing)
		}
		if reached[i.kind][i.at] && (never[i.at] || reach.Tests(i.at) == expression.Needs) {
			left = append(left, i)
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	if r.open == nil {
		var err error
		if r.open, err = r.shapes(); err != nil {
			return nil, err
		}
	}
	return r.open.filter(policy, text, left), nil
}

// filter returns the errors that are left when a field that the API server cannot describe may be
// anything.
func (s *shapes) filter(policy *admissionregistrationv1.ValidatingAdmissionPolicy, text string, issues []typeIssue) []typeIssue {
	var variables []expression.Variable
	for _, v := range policy.Spec.Variables {
		variables = append(variables, expression.Variable{Name: v.Name, Expression: v.Expression})
	}
	types := expression.Shapes{}
	if p := policy.Spec.ParamKind; p != nil {
		types.HasParams = true
		if gv, err := schema.ParseGroupVersion(p.APIVersion); err == nil {
			types.Params, _ = s.of(gv.WithKind(p.Kind), "Params")
		}
	}
	places := map[schema.GroupVersionKind]map[expression.Place]bool{}
	return slices.DeleteFunc(issues, func(i typeIssue) bool {
		if expression.Harmless(i.text) {
			return true
		}
		found, known := places[i.kind]
		if !known {
			of := types
			if object, ok := s.of(i.kind, ""); ok {
				of.Object = object
				if typed, err := expression.NewTyped(of, variables); err == nil {
					found = map[expression.Place]bool{}
					list, _ := typeIssues(i.kind.String() + ": " + typed.Check(text))
					for _, one := range list {
						found[one.at] = true
					}
				}
			}
			places[i.kind] = found
		}
		return found != nil && !found[i.at]
	})
}

// typedKinds returns the kinds that the rules of a policy name, without those of wildcards.
func (r *run) typedKinds(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (list []schema.GroupVersionKind) {
	if policy.Spec.MatchConstraints == nil {
		return nil
	}
	for i := range policy.Spec.MatchConstraints.ResourceRules {
		rule := &policy.Spec.MatchConstraints.ResourceRules[i]
		for _, group := range rule.APIGroups {
			for _, version := range rule.APIVersions {
				for _, resource := range rule.Resources {
					if k := r.stage.Kinds().At(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}); k != nil {
						list = append(list, k.Kind)
					}
				}
			}
		}
	}
	return list
}

// expressionAt returns the text of the expression at a field that a warning names.
func expressionAt(policy *admissionregistrationv1.ValidatingAdmissionPolicy, field string) string {
	for i := range policy.Spec.Validations {
		v := &policy.Spec.Validations[i]
		switch field {
		case "spec.validations[" + strconv.Itoa(i) + "].expression":
			return v.Expression
		case "spec.validations[" + strconv.Itoa(i) + "].messageExpression":
			return v.MessageExpression
		}
	}
	return ""
}
