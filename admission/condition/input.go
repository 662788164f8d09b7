package condition

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"
)

// Input is what expressions can see of a request. Nothing of it is changed.
type Input struct {
	// Object and OldObject are in Kind; nil when the request has none.
	Object    runtime.Object
	OldObject runtime.Object
	// Kind is the kind in which the hook gets the objects.
	Kind schema.GroupVersionKind
	// RequestKind, Resource and Subresource are the request's own. The variable
	// request.resource has the request's own resource even if the hook is told of
	// an equivalent one (S2.31).
	RequestKind schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string

	Name      string
	Namespace string
	Operation string
	Options   runtime.Object
	DryRun    bool
	User      user.Info
	// Authorizer answers the variable authorizer. With nil, an expression that
	// uses it fails.
	Authorizer authorizer.UnconditionalAuthorizer
}

// activation has the variables of one evaluation.
type activation struct {
	in                         *Input
	object, oldObject, request ref.Val
	authorizer, resource       ref.Val
}

var _ interpreter.Activation = (*activation)(nil)

// Parent implements interpreter.Activation: there is none.
func (a *activation) Parent() interpreter.Activation { return nil }

// ResolveName implements interpreter.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	in := a.in
	switch name {
	case "object":
		return once(&a.object, func() ref.Val { return objectValue(in.Object) }), true
	case "oldObject":
		return once(&a.oldObject, func() ref.Val { return objectValue(in.OldObject) }), true
	case "request":
		return once(&a.request, in.request), true
	case "namespaceObject":
		return types.NullValue, true
	case "authorizer":
		if in.Authorizer == nil {
			return nil, false
		}
		return once(&a.authorizer, func() ref.Val { return library.NewAuthorizerVal(in.User, in.Authorizer) }), true
	case "authorizer.requestResource":
		if in.Authorizer == nil {
			return nil, false
		}
		return once(&a.resource, func() ref.Val {
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

func objectValue(obj runtime.Object) ref.Val {
	if obj == nil {
		return types.NullValue
	}
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return types.DefaultTypeAdapter.NativeToValue(u.Object)
	}
	return common.SchemalessTypedToVal(obj)
}

// request makes the variable of that name. What a hook would not be sent because
// it is empty, an expression does not find either.
func (in *Input) request() ref.Val {
	kind, requestKind := metav1.GroupVersionKind(in.Kind), metav1.GroupVersionKind(in.RequestKind)
	resource := metav1.GroupVersionResource(in.Resource)
	r := &admissionv1.AdmissionRequest{
		Kind:               kind,
		Resource:           resource,
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

// requested is an Input as the resource that a request is about.
type requested Input

func (r *requested) GetName() string                          { return r.Name }
func (r *requested) GetNamespace() string                     { return r.Namespace }
func (r *requested) GetResource() schema.GroupVersionResource { return r.Resource }
func (r *requested) GetSubresource() string                   { return r.Subresource }
