package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// Params has the param objects of policies, as fresh as the policies (S20.8). Its methods end with
// the context. An error that wraps ErrUnknown means that the caller may not see the objects.
type Params interface {
	// Scope reports whether the kind is namespaced, and whether it is served at all.
	Scope(ctx context.Context, kind schema.GroupVersionKind) (namespaced, served bool, err error)
	// Get returns the object with a name; namespace is empty for a cluster-scoped kind. If the
	// object does not exist, the error is the API status NotFound.
	Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (runtime.Object, error)
	// List returns the objects that a selector selects, by name.
	List(ctx context.Context, kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]runtime.Object, error)
}

// Param is the param of an evaluation of a policy.
type Param struct {
	types.NamespacedName
	// Object is nil if the policy has no params, or the binding refers to none; the name is then
	// empty.
	Object runtime.Object
}

// PolicyError is a configuration error: a policy or one of its bindings could not be evaluated for
// a request. The failure policy applies, and no action of a binding counts (S17.13).
type PolicyError struct {
	Policy *registration.Entry
	// Binding is nil for an error of the policy that does not depend on a binding.
	Binding *registration.Entry
	Err     error
}

// Error returns the text of k8s.io/apiserver.
func (e *PolicyError) Error() string {
	if e.Binding == nil {
		return fmt.Sprintf("failed to configure policy: %v", e.Err)
	}
	return fmt.Sprintf("failed to configure binding: %v", e.Err)
}

// Unwrap returns Err.
func (e *PolicyError) Unwrap() error { return e.Err }

// Matched is a policy that is a candidate for a request, with its bindings.
type Matched struct {
	Candidate *Candidate
	// Decision is the decision about the policy. If the policy does not apply, or Err is its
	// configuration error, there are no groups.
	Decision
	// Groups are the groups of bindings with a rule for the request, in order. Other groups are
	// included only on request.
	Groups []MatchedGroup
}

// MatchedGroup is a group of bindings.
type MatchedGroup struct {
	*snapshot.Group
	// Decision applies to each of the bindings: Err is their configuration error.
	Decision
	// Params are the params of the policy's evaluations, by namespace and name (S15.12). There is
	// one without an Object if the policy is evaluated without a param, and none if the bindings
	// are satisfied without an evaluation (S15.7).
	Params []Param
}

// bindings returns the decisions about a policy and its bindings for a request.
func (c *Candidate) bindings(ctx context.Context, r *Request, e Equivalents, in *Input, all bool) Matched {
	m := Matched{Candidate: c, Decision: c.selected(ctx, r, in)}
	if m.Err != nil {
		m.Err = &PolicyError{Policy: c.Entry.Entry, Err: m.Err}
		return m
	}
	if !m.Applies {
		return m
	}
	if in.UserUnknown != "" || in.RightsUnknown != "" || in.NamespaceUnknown != "" {
		if err := in.unseenBy(c.Entry.Entry); err != nil {
			m.Decision = failed(Reason{entry: c.Entry}, err)
			return m
		}
	}
	namespaced, d := c.scope(ctx, in)
	if !d.Applies {
		m.Decision = d
		return m
	}
	bindings := c.Entry.Bindings
	if len(bindings.Groups) == 1 || all {
		// There is nothing to look up.
		target := targetOf(r)
		var others []schema.GroupVersionResource
		if e != nil {
			others = e.EquivalentResourcesFor(r.Resource, r.Subresource)
		}
		for i, entry := range bindings.Table().Entries() {
			if found, ok := match(entry, r, &target, others, e); ok {
				m.Groups = append(m.Groups, found.group(ctx, &bindings.Groups[i], c.Entry, namespaced, r, in))
			} else if all {
				reason := Reason{Code: NoRule, entry: entry, request: r, others: others}
				if excluded(entry, r, &target, others, e) {
					reason.Code = Excluded
				}
				m.Groups = append(m.Groups, MatchedGroup{Group: &bindings.Groups[i], Decision: Decision{Reason: reason}})
			}
		}
		return m
	}
	found := candidates(bindings.Table(), r, e, Everything)
	if len(found) > 0 {
		m.Groups = make([]MatchedGroup, len(found))
	}
	for i := range found {
		m.Groups[i] = found[i].group(ctx, &bindings.Groups[found[i].Entry.Position], c.Entry, namespaced, r, in)
	}
	return m
}

// unseenBy returns ErrUnknown if an expression of a policy uses a fact that the Input does not
// have.
func (in *Input) unseenBy(e *registration.Entry) error {
	list := slices.Clone(e.MatchConditions)
	add := func(what, text string) {
		list = append(list, registration.MatchCondition{Name: what, Expression: text})
	}
	for _, v := range e.Policy.Variables {
		add(v.Name, v.Expression)
	}
	for _, v := range e.Policy.Validations {
		add(v.Expression, v.Expression)
		add(v.MessageExpression, v.MessageExpression)
	}
	for _, a := range e.Policy.AuditAnnotations {
		add(a.Key, a.ValueExpression)
	}
	for _, m := range e.Policy.Mutations {
		add(m.Expression, m.Expression)
	}
	if err := in.unseen("expression", list); err != nil || in.NamespaceUnknown == "" {
		return err
	}
	// Match conditions have no namespaceObject.
	for _, c := range list[len(e.MatchConditions):] {
		if expression.LooksAtNamespace(c.Expression) {
			return fmt.Errorf("%w: expression %q: %s", ErrUnknown, c.Name, in.NamespaceUnknown)
		}
	}
	return nil
}

// scope reports whether the params of a policy are namespaced. A kind that is not served is an
// error of the policy (S15.4).
func (c *Candidate) scope(ctx context.Context, in *Input) (namespaced bool, d Decision) {
	p := c.Entry.Entry.Policy
	if p.ParamKind == nil {
		return false, Decision{Applies: true}
	}
	err := p.ParamKindError
	if err == nil {
		served := false
		if in.Params != nil {
			namespaced, served, err = in.Params.Scope(ctx, *p.ParamKind)
		}
		if err == nil && !served {
			err = &ParamKindError{*p.ParamKind}
		}
	}
	switch {
	case err == nil:
		return namespaced, Decision{Applies: true}
	case errors.Is(err, ErrUnknown):
		return false, failed(Reason{entry: c.Entry}, err)
	}
	return false, failed(Reason{Code: ParamKindNotFound, entry: c.Entry}, &PolicyError{Policy: c.Entry.Entry, Err: err})
}

// ParamKindError is the error for a kind of params that is not served.
type ParamKindError struct{ Kind schema.GroupVersionKind }

// Error returns the text of k8s.io/apiserver (S15.4).
func (e *ParamKindError) Error() string {
	return fmt.Sprintf("failed to find resource referenced by paramKind: '%v'", e.Kind)
}

// group returns the decision about the bindings of a group for a request. c is the candidate of one
// of them.
func (c *Candidate) group(ctx context.Context, g *snapshot.Group, p *snapshot.Entry, namespaced bool, r *Request, in *Input) MatchedGroup {
	m := MatchedGroup{Group: g, Decision: c.selected(ctx, r, in)}
	if m.Err != nil {
		m.Err = &PolicyError{Policy: p.Entry, Binding: c.Entry.Entry, Err: m.Err}
		return m
	}
	if !m.Applies {
		return m
	}
	params, code, err := c.params(ctx, p, namespaced, r, in)
	switch {
	case errors.Is(err, ErrUnknown):
		m.Decision = failed(Reason{entry: c.Entry}, err)
	case err != nil:
		m.Decision = failed(Reason{Code: code, entry: c.Entry}, &PolicyError{Policy: p.Entry, Binding: c.Entry.Entry, Err: err})
	default:
		m.Params = params
	}
	return m
}

var (
	errClusterScoped  = errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	errNoNamespace    = errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	errParamsNotFound = errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
	errNoParamRef     = errors.New("one of name or selector must be provided")
)

// params returns the params with which a binding's policy is evaluated (S15.1 to S15.7).
func (c *Candidate) params(ctx context.Context, p *snapshot.Entry, namespaced bool, r *Request, in *Input) ([]Param, Code, error) {
	kind, ref := p.Entry.Policy.ParamKind, c.Entry.Entry.Binding.ParamRef
	if kind == nil || ref == nil {
		return noParam[:], None, nil
	}
	namespace := ref.Namespace
	switch {
	case !namespaced && namespace != "":
		return nil, BadParamRef, errClusterScoped
	case namespaced && namespace == "":
		if namespace = r.Namespace; namespace == "" || r.ClusterScoped {
			return nil, BadParamRef, errNoNamespace
		}
	}
	var params []Param
	switch {
	case ref.Name != "":
		object, err := in.Params.Get(ctx, *kind, namespace, ref.Name)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, ParamsUnreadable, err
		default:
			params = []Param{{types.NamespacedName{Namespace: namespace, Name: ref.Name}, object}}
		}
	case ref.Selector != nil:
		if c.Entry.ParamSelectorError != nil {
			return nil, BadParamRef, c.Entry.ParamSelectorError
		}
		objects, err := in.Params.List(ctx, *kind, namespace, c.Entry.ParamSelector)
		if err != nil {
			return nil, ParamsUnreadable, err
		}
		for _, object := range objects {
			m, err := meta.Accessor(object)
			if err != nil {
				return nil, ParamsUnreadable, err
			}
			params = append(params, Param{types.NamespacedName{Namespace: m.GetNamespace(), Name: m.GetName()}, object})
		}
	default:
		return nil, BadParamRef, errNoParamRef
	}
	if len(params) == 0 && ref.DenyMissing {
		return nil, ParamsNotFound, errParamsNotFound
	}
	return params, None, nil
}

// noParam is the param of a policy without params.
var noParam [1]Param

// Values caches the values of a request for policies, until the object changes. Policies that
// matched the same kind share the values in that kind.
type Values struct {
	request *Request
	in      *Input
	// plain is expression.Input.Plain.
	plain bool
	// namespace is the request's namespace, once it was read.
	namespace *corev1.Namespace
	kinds     []kindValues
}

type kindValues struct {
	kind    schema.GroupVersionKind
	input   *expression.Input
	request *expression.Values
	err     error
}

// NewValues returns the values of a request for policies. Discard them when the object changes.
func NewValues(r *Request, in *Input) *Values { return &Values{request: r, in: in} }

// ReadNamespace reads the namespace of the request for policies, if it has one. The error is an API
// status that rejects the request regardless of the failure policies (S17.5).
func (v *Values) ReadNamespace(ctx context.Context) error {
	r := v.request
	if v.namespace != nil || r.Namespace == "" || r.Kind == (schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}) {
		return nil
	}
	if v.in.NamespaceUnknown != "" {
		// The expressions do not use the namespace.
		return nil
	}
	if v.in.Namespace == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, r.Namespace)
	}
	namespace, err := v.in.Namespace(ctx, r.Namespace)
	if err != nil {
		return err
	}
	v.namespace = namespace
	for i := range v.kinds {
		if in := v.kinds[i].input; in != nil {
			in.NamespaceObject = namespace
		}
	}
	return nil
}

// Of returns the values in a kind. It fails if the objects cannot be converted.
func (v *Values) Of(kind schema.GroupVersionKind) (*expression.Values, error) {
	for i := range v.kinds {
		if v.kinds[i].kind == kind {
			return v.kinds[i].request, v.kinds[i].err
		}
	}
	one := kindValues{kind: kind}
	object, old, err := v.in.Objects.Seen(kind)
	if err != nil {
		one.err = err
	} else {
		one.input = v.request.input(v.in, kind, object, old, v.namespace)
		one.input.Plain = v.plain
		one.request = expression.NewValues(one.input)
	}
	v.kinds = append(v.kinds, one)
	return one.request, one.err
}

// input returns the variables of expressions for a request.
func (r *Request) input(in *Input, kind schema.GroupVersionKind, object, old runtime.Object, namespace *corev1.Namespace) *expression.Input {
	return &expression.Input{
		Object: object, OldObject: old, Kind: kind, RequestKind: r.Kind, Resource: r.Resource, Subresource: r.Subresource,
		Name: r.Name, Namespace: r.Namespace, Operation: string(r.Operation), Options: r.Options, DryRun: r.DryRun,
		User: r.User, Authorizer: in.Authorizer, NamespaceObject: namespace,
	}
}

// PolicyDenial returns the rejection of a request by policies: the first message, with the code of
// its reason, and all messages as causes (S17.15 to S17.17).
func (r *Request) PolicyDenial(object runtime.Object, reason metav1.StatusReason, messages []string) *apierrors.StatusError {
	err := apierrors.NewForbidden(r.Resource.GroupResource(), r.nameOf(object), errors.New(messages[0]))
	if reason == "" {
		reason = metav1.StatusReasonInvalid
	}
	err.ErrStatus.Reason, err.ErrStatus.Code = reason, codeOf(reason)
	for _, message := range messages {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: message})
	}
	return err
}

// codeOf returns the HTTP status code of a reason (S17.8).
func codeOf(reason metav1.StatusReason) int32 {
	switch reason {
	case metav1.StatusReasonForbidden:
		return 403
	case metav1.StatusReasonUnauthorized:
		return 401
	case metav1.StatusReasonRequestEntityTooLarge:
		return 413
	}
	return 422
}

// nameOf returns the name of the object in a rejection (S17.16).
func (r *Request) nameOf(object runtime.Object) string {
	if r.Name != "" {
		return r.Name
	}
	if object == nil {
		return "Unknown"
	}
	m, err := meta.Accessor(object)
	switch {
	case err != nil:
		return "Unknown/errorGettingName"
	case m.GetName() != "":
		return m.GetName()
	case m.GetGenerateName() != "":
		return m.GetGenerateName()
	}
	return "Unknown"
}
