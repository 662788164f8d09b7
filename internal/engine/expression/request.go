package expression

import (
	"context"
	"math"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/gatehouse-dev/gatehouse/internal/kit/upstream"
)

// Input has the data of a request for expressions. Expressions do not change it.
type Input struct {
	// Object and OldObject are in Kind; nil if the request has none.
	Object    runtime.Object
	OldObject runtime.Object
	// Kind is the kind in which the webhook or policy gets the objects.
	Kind schema.GroupVersionKind
	// RequestKind, Resource and Subresource are the request's own.
	RequestKind schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string

	Name      string
	Namespace string
	Operation string
	Options   runtime.Object
	DryRun    bool
	User      user.Info
	// Authorizer is the variable authorizer. If it is nil, an expression that uses it fails.
	Authorizer upstream.Authorizer
	// Plain reports whether objects of built-in kinds are maps and lists in expressions, like
	// custom ones. Otherwise they are Go types, which is cheaper, and equivalent unless an
	// expression joins parts of an object with its own values (S18.17).
	Plain bool
	// NamespaceObject is the namespace of the request; nil if the request has none, or is for a
	// Namespace (S16.6).
	NamespaceObject *corev1.Namespace
}

// Values has the values of the variables that are the same for all expressions for one request in
// one kind. Each value is created on first use.
type Values struct {
	in                           *Input
	object, oldObject, namespace ref.Val
	authorizer, resource         ref.Val
	// told are the values of the variable request, by request.resource. There is rarely more than
	// one.
	told []told
}

type told struct {
	resource schema.GroupVersionResource
	value    ref.Val
}

// NewValues returns the values of an input, which must not change afterwards.
func NewValues(in *Input) *Values { return &Values{in: in} }

// toldAs returns the variable request with the given request.resource.
func (r *Values) toldAs(resource schema.GroupVersionResource) ref.Val {
	for i := range r.told {
		if r.told[i].resource == resource {
			return r.told[i].value
		}
	}
	value := r.in.request(resource)
	r.told = append(r.told, told{resource, value})
	return value
}

// Run evaluates several expressions, one after the other, with one budget. It evaluates the
// variables of a policy once.
type Run struct {
	*Values
	o      Options
	ctx    context.Context
	params ref.Val
	// variables is the value of the variable variables, set when an expression first uses it.
	// borrowed is the cost of the variables that were evaluated since the last expression began.
	variables ref.Val
	borrowed  uint64
	// left is the remaining budget.
	left uint64
	// meter counts the values that the run produces. It is own, or the meter of the continued run.
	meter *meter
	own   meter
	// seen is the evaluation for a Witness; nil if there is none.
	seen *Seen
}

// Options has the variables and limits of a Run.
type Options struct {
	// Resource is request.resource: the resource of the request for match conditions (S2.31),
	// and the resource that matched for all other expressions of a policy (S16.5).
	Resource schema.GroupVersionResource
	// Namespace reports whether namespaceObject is the namespace of the request. Otherwise it
	// is null, as in match conditions.
	Namespace bool
	// Authorizer binds authorizer and authorizer.requestResource.
	Authorizer bool
	// Params is the value of the variable params; nil is null.
	Params runtime.Object
	// Variables are the variables of the policy; nil if it has none.
	Variables *Variables
	// Budget bounds the total cost of all expressions.
	Budget uint64
	// Witness, if not nil, observes the evaluations.
	Witness Witness
}

// NewRun starts a run. Its expressions end with an error when ctx ends. Call End when its values
// are no longer needed.
func (r *Values) NewRun(ctx context.Context, o Options) *Run {
	run := &Run{Values: r, o: o, ctx: ctx, left: o.Budget, own: meter{ctx: ctx}}
	run.meter = &run.own
	return run
}

// Continue starts another run with the remaining budget of this run. End of this run ends both. The
// new run evaluates variables anew (S16.9).
func (r *Run) Continue(o Options) *Run {
	return &Run{Values: r.Values, o: o, ctx: r.ctx, left: r.left, meter: r.meter}
}

// End ends the run and lets another run be large.
func (r *Run) End() { r.meter.end() }

// Eval evaluates the next expression. Its only error is ErrOutOfBudget; the run must not evaluate
// another expression after it.
func (r *Run) Eval(e *Expression) (Outcome, error) {
	start := time.Now()
	value, own, err := e.Eval(r.ctx, r)
	o := Outcome{Value: value, Err: err, Cost: own, Elapsed: time.Since(start)}
	borrowed := r.borrowed
	r.borrowed = 0
	if r.o.Witness != nil {
		r.show(r.o.Witness, e)
	}
	if o.Cost += borrowed; o.Cost < borrowed {
		o.Cost = math.MaxUint64
	}
	if o.Cost > r.left {
		r.left = 0
		return o, ErrOutOfBudget
	}
	r.left -= o.Cost
	return o, nil
}

// spend counts the cost of a variable.
func (r *Run) spend(cost uint64) {
	if r.borrowed += cost; r.borrowed < cost {
		r.borrowed = math.MaxUint64
	}
}

var _ interpreter.Activation = (*Run)(nil)

// Parent implements interpreter.Activation. A Run has no parent.
func (r *Run) Parent() interpreter.Activation { return nil }

// ResolveName implements interpreter.Activation.
func (r *Run) ResolveName(name string) (any, bool) {
	in := r.in
	switch name {
	case "object":
		return once(&r.object, func() ref.Val { return in.value(in.Object) }), true
	case "oldObject":
		return once(&r.oldObject, func() ref.Val { return in.value(in.OldObject) }), true
	case "request":
		return r.toldAs(r.o.Resource), true
	case "namespaceObject":
		if !r.o.Namespace || in.NamespaceObject == nil {
			return types.NullValue, true
		}
		return once(&r.namespace, func() ref.Val {
			return common.SchemalessTypedToVal(admissioncel.CreateNamespaceObject(in.NamespaceObject))
		}), true
	case "params":
		return once(&r.params, func() ref.Val { return objectValue(r.o.Params) }), true
	case "variables":
		if r.o.Variables == nil {
			return nil, false
		}
		return once(&r.variables, func() ref.Val { return r.o.Variables.values(r) }), true
	case meterName:
		return r.meter, true
	case seenName:
		if r.seen == nil {
			return nil, false
		}
		return r.seen, true
	}
	if in.Authorizer == nil || !r.o.Authorizer {
		return nil, false
	}
	switch name {
	case "authorizer":
		return once(&r.authorizer, func() ref.Val { return library.NewAuthorizerVal(in.User, in.Authorizer) }), true
	case "authorizer.requestResource":
		return once(&r.resource, func() ref.Val {
			return library.NewResourceAuthorizerVal(in.User, in.Authorizer, (*requested)(in))
		}), true
	}
	return nil, false
}

func once(value *ref.Val, make func() ref.Val) ref.Val {
	if *value == nil {
		*value = make()
	}
	return *value
}

// value returns one of the two objects as a CEL value.
func (in *Input) value(obj runtime.Object) ref.Val {
	if _, ok := obj.(*unstructured.Unstructured); ok || obj == nil || !in.Plain {
		return objectValue(obj)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.DefaultTypeAdapter.NativeToValue(content)
}

func objectValue(obj runtime.Object) ref.Val {
	if obj == nil {
		return types.NullValue
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return types.DefaultTypeAdapter.NativeToValue(u.Object)
	}
	return common.SchemalessTypedToVal(obj)
}

// request returns the variable request with the given request.resource. A field that is absent from
// a review because it is empty is absent here, too.
func (in *Input) request(as schema.GroupVersionResource) ref.Val {
	kind, requestKind := metav1.GroupVersionKind(in.Kind), metav1.GroupVersionKind(in.RequestKind)
	resource := metav1.GroupVersionResource(in.Resource)
	r := &admissionv1.AdmissionRequest{
		Kind:               kind,
		Resource:           metav1.GroupVersionResource(as),
		SubResource:        in.Subresource,
		RequestKind:        &requestKind,
		RequestResource:    &resource,
		RequestSubResource: in.Subresource,
		Name:               in.Name,
		Namespace:          in.Namespace,
		Operation:          admissionv1.Operation(in.Operation),
		DryRun:             &in.DryRun,
		Options:            runtime.RawExtension{Object: in.Options},
	}
	if u := in.User; u != nil {
		r.UserInfo = authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
		if extra := u.GetExtra(); len(extra) > 0 {
			r.UserInfo.Extra = make(map[string]authenticationv1.ExtraValue, len(extra))
			for k, v := range extra {
				r.UserInfo.Extra[k] = v
			}
		}
	}
	return common.SchemalessTypedToVal(r)
}

// requested implements the resource attributes of authorizer.requestResource.
type requested Input

func (r *requested) GetName() string                          { return r.Name }
func (r *requested) GetNamespace() string                     { return r.Namespace }
func (r *requested) GetResource() schema.GroupVersionResource { return r.Resource }
func (r *requested) GetSubresource() string                   { return r.Subresource }
