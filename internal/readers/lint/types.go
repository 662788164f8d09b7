package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-openapi/jsonpointer"
	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// mostTyped bounds the kinds for which the types of one entry are checked. Building the types of a
// kind takes milliseconds.
const mostTyped = 10

// subject is a kind of objects that an entry matches.
type subject struct {
	*Resource
	kind schema.GroupVersionKind
}

// subjects returns the kinds of the objects that the rules of an entry name. others is set if a rule
// names any group or any resource, so that there are more kinds.
func (p *pass) subjects(e *snapshot.Entry) (list []subject, others bool) {
	for i := range e.Rules {
		rule := &e.Rules[i]
		others = others || slices.Contains(rule.APIGroups, "*")
		for _, named := range rule.Resources {
			resource, sub, _ := strings.Cut(named, "/")
			others = others || resource == "*" || sub == "*"
			for k := range p.Resources {
				r := &p.Resources[k]
				if r.Resource != resource || !slices.Contains(rule.APIGroups, r.Group) || !slices.Contains(rule.APIVersions, r.Version) && !slices.Contains(rule.APIVersions, "*") {
					continue
				}
				one := subject{r, r.kindOf(sub)}
				if !one.kind.Empty() && !slices.ContainsFunc(list, func(s subject) bool { return s.kind == one.kind }) {
					list = append(list, one)
				}
			}
		}
	}
	return list, others
}

// kindOf returns the kind of a subresource's objects, or of the resource if sub is empty.
func (r *Resource) kindOf(sub string) schema.GroupVersionKind {
	if sub == "" {
		return r.Kind
	}
	for _, s := range r.Subresources {
		if s.Name == sub {
			return s.Kind
		}
	}
	return schema.GroupVersionKind{}
}

// schemaOf returns the schema of a kind; nil if it is not known.
func (p *pass) schemaOf(kind schema.GroupVersionKind) *spec.Schema {
	known, ok := p.schemas[kind]
	if !ok && p.Schemas != nil {
		known = p.Schemas(kind)
		p.schemas[kind] = known
	}
	return known
}

// shape returns the type of the objects of a kind, nil if unknown. suffix distinguishes the types of
// objects and of params.
func (p *pass) shape(kind schema.GroupVersionKind, suffix string) *apiservercel.DeclType {
	key := kind.String() + suffix
	known, ok := p.shapes[key]
	if !ok {
		if s := p.schemaOf(kind); s != nil {
			known = expression.ShapeOf(s, kind.Kind+suffix)
		}
		p.shapes[key] = known
	}
	return known
}

// typed returns the type checker of an expression for objects of a kind, nil if the kind has no
// schema.
func (p *pass) typed(f *fact, kind schema.GroupVersionKind) *expression.Typed {
	shapes := expression.Shapes{Object: p.shape(kind, ""), Authorizer: true, Patches: f.use == mutation}
	if shapes.Object == nil {
		return nil
	}
	var variables []expression.Variable
	key := fmt.Sprint(kind, shapes.Patches)
	if policy := f.entry.Entry.Policy; policy != nil {
		if policy.ParamKind != nil {
			shapes.HasParams, shapes.Params = true, p.shape(*policy.ParamKind, "Params")
		}
		for _, v := range policy.Variables {
			variables = append(variables, expression.Variable(v))
		}
		key += fmt.Sprint(policy.ParamKind, variables)
	}
	known, ok := p.checkers[key]
	if !ok {
		known, _ = expression.NewTyped(shapes, variables)
		p.checkers[key] = known
	}
	return known
}

// mistakes returns the type errors of an expression for the objects of its entry.
func (p *pass) mistakes(f *fact) []expression.Mistake {
	typed := map[schema.GroupVersionKind]*expression.Typed{}
	looks := slices.ContainsFunc([]string{"bject", "params", "variables"}, func(name string) bool { return strings.Contains(f.text, name) })
	if !looks && f.use != mutation {
		return nil
	}
	list, others := p.subjects(f.entry)
	var kinds []schema.GroupVersionKind
	for i, s := range list {
		kinds = append(kinds, s.kind)
		if i < mostTyped {
			typed[s.kind] = p.typed(f, s.kind)
		}
	}
	found := slices.DeleteFunc(expression.Mistakes(p.ctx, f.text, kinds, typed, others), func(m expression.Mistake) bool {
		return slices.ContainsFunc(list, func(s subject) bool { return s.kind == m.Kind && p.unreached(f, &s, &m) })
	})
	if reach, ok := expression.NewReach(f.text); ok && f.use == mutation {
		for _, s := range list {
			if shape := p.shape(s.kind, ""); shape != nil {
				for _, made := range reach.MadeFor(p.ctx, s.kind) {
					found = append(found, misplaced(s, &made, shape)...)
				}
			}
		}
	}
	return found
}

// unreached reports whether an expression has a value in each request about a kind that does not have the field of a type
// error: a variable excludes the kind before.
func (p *pass) unreached(f *fact, s *subject, m *expression.Mistake) bool {
	name, undefined := strings.CutPrefix(m.Text, "undefined field '")
	if f.trials == nil || !undefined || m.Always {
		return false
	}
	return !slices.ContainsFunc(p.operationsOn(f.entry, s), func(operation string) bool {
		setting := settingFor(f, s, operation)
		for root, object := range map[string]**expression.Partial{"object": &setting.Object, "oldObject": &setting.Old} {
			for _, path := range f.trials.Paths(root) {
				if n := slices.Index(path, strings.TrimSuffix(name, "'")); n >= 0 {
					*object = expression.Merge(*object, expression.Without(path[:n+1]...))
				}
			}
		}
		return f.trials.Of(p.ctx, &setting).Value == nil
	})
}

// misplaced returns the fields that a mutation sets and that its kind does not have (S18.13, S18.20).
func misplaced(s subject, made *expression.Made, shape *apiservercel.DeclType) (list []expression.Mistake) {
	wrong := func(always bool, format string, args ...any) {
		list = append(list, expression.Mistake{Kind: s.kind, At: made.At, Text: fmt.Sprintf(format, args...), Always: made.Always && always})
	}
	if made.Type == "JSONPatch" {
		path := made.Fields["path"]
		if missing := missingField(shape, strings.Split(path, "/")[1:]); path != "" && missing != "" {
			// A field that a custom resource does not have is dropped.
			wrong(!s.Custom && made.Fields["op"] != "test", "undefined field '%s' in the path %s", missing, path)
		}
		return list
	}
	steps := strings.Split(made.Type, ".")[1:]
	for name := range made.Fields {
		if missing := missingField(shape, append(slices.Clip(steps), name)); missing == name {
			wrong(true, "the mutation sets the undefined field '%s' of %s", name, made.Type)
		}
	}
	return list
}

// missingField returns the first step of a path that the type does not have; empty if it has all, or
// may have. The elements of lists and maps may have a step or none.
func missingField(t *apiservercel.DeclType, steps []string) string {
	for i := 0; i < len(steps); i++ {
		switch {
		case t.IsObject():
			name, ok := apiservercel.Escape(jsonpointer.Unescape(steps[i]))
			field, known := t.Fields[name]
			if !known {
				field, known = t.Fields[steps[i]]
			}
			if !ok || !known {
				return steps[i]
			}
			t = field.Type
		case t.IsMap():
			return ""
		case t.IsList():
			t = t.ElemType
			if steps[i] != "-" && strings.Trim(steps[i], "0123456789") != "" {
				i--
			}
		default:
			return ""
		}
	}
	return ""
}

// rejects reports whether a request is rejected when an expression of an entry fails.
func (p *pass) rejects(e *snapshot.Entry) bool {
	if !failsClosed(e) {
		return false
	}
	return e.Policy == nil || len(p.denying(e)) > 0
}

// failure describes the consequence for requests for which an expression of an entry fails.
func (p *pass) failure(e *snapshot.Entry, requests string) string {
	switch {
	case p.rejects(e):
		return requests + " is rejected"
	case failsClosed(e) && e.Bindings != nil:
		return requests + " gets this error as a warning or in its audit event"
	case failsClosed(e) && p.Partial:
		return "a binding with the action Deny rejects " + requests
	}
	return "the expression has no effect on " + requests
}

// denying returns the bindings that enforce a policy.
func (p *pass) denying(policy *snapshot.Entry) (list []*snapshot.Entry) {
	if policy.Bindings == nil {
		return nil
	}
	for i := range policy.Bindings.Groups {
		for _, b := range policy.Bindings.Groups[i].Bindings {
			if denies(b) {
				list = append(list, b)
			}
		}
	}
	return list
}

// denies reports whether a binding rejects requests that violate its policy.
func denies(b *snapshot.Entry) bool {
	return b.Source != registration.ValidatingBindings || slices.Contains(b.Binding.Actions, v1.Deny)
}
