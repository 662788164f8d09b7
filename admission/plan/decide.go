package plan

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/admission/condition"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
)

// Input is what selectors and conditions look at.
type Input struct {
	// Object is the object as it is now, OldObject the stored one; nil when the
	// request has none. Their version does not matter.
	Object    runtime.Object
	OldObject runtime.Object
	// NamespaceLabels returns the labels of a namespace. When there is none of that
	// name, the error is the API status NotFound. It is asked only for a hook with
	// a namespaceSelector. Nil means that there are no namespaces.
	NamespaceLabels func(ctx context.Context, name string) (map[string]string, error)
	// Convert returns both objects in a kind. It is asked only for a hook with
	// match conditions. Nil means that the objects have every kind.
	Convert func(kind schema.GroupVersionKind) (object, oldObject runtime.Object, err error)
	// Authorizer is asked by conditions that ask it; with nil they fail.
	Authorizer authorizer.UnconditionalAuthorizer
}

// Decision is what Decide found. The hook is called if Applies; if Err is set, it
// cannot be known; else Reason says why it is not called.
type Decision struct {
	// Applies tells that the hook is to be called.
	Applies bool
	// Reason is why it is not. It is not set together with Err.
	Reason Reason
	// Err is an API status, and rejects the request whatever the failure policy is
	// (S2.3); or it is a *ConditionError, and the failure policy decides (S2.32).
	Err error
	// Evaluated tells that match conditions were evaluated, which took Elapsed, and
	// ConditionErrors counts the expressions that failed.
	Evaluated       bool
	Elapsed         time.Duration
	ConditionErrors int
}

// Decide says whether the step's hook is called. r is the request that the step was
// made for.
//
// An error in a selector is held back until it is clear that nothing else spares
// the hook (S2.2).
func (s *Step) Decide(ctx context.Context, r *Request, in *Input) Decision {
	reason, selects, held := selectNamespace(ctx, s.Hook, r, in)
	if held == nil && !selects {
		return Decision{Reason: reason}
	}
	reason, selects, err := selectObject(s.Hook, in)
	if err == nil && !selects {
		return Decision{Reason: reason}
	}
	switch {
	case s.Err != nil:
		return Decision{Err: s.Err}
	case held != nil:
		return Decision{Err: held}
	case err != nil:
		return Decision{Err: err}
	case s.Hook.Conditions == nil:
		return Decision{Applies: true}
	}
	return s.evaluate(ctx, r, in)
}

// selectNamespace asks the namespaceSelector (S2.10 to S2.17).
func selectNamespace(ctx context.Context, h *snapshot.Hook, r *Request, in *Input) (Reason, bool, error) {
	isNamespace := r.Resource.Group == "" && r.Resource.Resource == "namespaces"
	if r.Namespace == "" && !isNamespace {
		return Reason{}, true, nil
	}
	if h.NamespaceSelector == nil {
		return Reason{}, false, apierrors.NewInternalError(h.SelectorError)
	}
	if h.NamespaceSelector.Empty() {
		return Reason{}, true, nil
	}
	found, err := namespaceLabels(ctx, r, in, isNamespace)
	if err != nil {
		var status apierrors.APIStatus
		if apierrors.IsNotFound(err) && errors.As(err, &status) {
			return Reason{}, false, &apierrors.StatusError{ErrStatus: status.Status()}
		}
		return Reason{}, false, apierrors.NewInternalError(err)
	}
	if h.NamespaceSelector.Matches(found) {
		return Reason{}, true, nil
	}
	return Reason{Code: NamespaceNotSelected, hook: h, labels: found}, false, nil
}

// namespaceLabels returns the labels of the request's namespace. A Namespace that
// is written has its new labels (S2.12). One that is gone from the source while it
// is deleted has those it was stored with.
func namespaceLabels(ctx context.Context, r *Request, in *Input, isNamespace bool) (labels.Labels, error) {
	if isNamespace && r.Subresource == "" && (r.Operation == admission.Create || r.Operation == admission.Update) {
		found, ok := labelsOf(in.Object)
		if !ok {
			return nil, errors.New("the Namespace has no metadata")
		}
		return found, nil
	}
	var found map[string]string
	var err error
	if in.NamespaceLabels != nil {
		found, err = in.NamespaceLabels(ctx, r.Namespace)
	} else {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, r.Namespace)
	}
	if isNamespace && apierrors.IsNotFound(err) {
		if stored, ok := labelsOf(in.OldObject); ok {
			return stored, nil
		}
	}
	return labels.Set(found), err
}

// selectObject asks the objectSelector (S2.18, S2.19).
func selectObject(h *snapshot.Hook, in *Input) (Reason, bool, error) {
	if h.ObjectSelector == nil {
		return Reason{}, false, apierrors.NewInternalError(h.SelectorError)
	}
	if h.ObjectSelector.Empty() {
		return Reason{}, true, nil
	}
	found, ok := labelsOf(in.Object)
	if ok && h.ObjectSelector.Matches(found) {
		return Reason{}, true, nil
	}
	old, okOld := labelsOf(in.OldObject)
	if okOld && h.ObjectSelector.Matches(old) {
		return Reason{}, true, nil
	}
	return Reason{Code: ObjectNotSelected, hook: h, labels: found, oldLabels: old}, false, nil
}

// evaluate asks the match conditions (S2.29 to S2.36).
func (s *Step) evaluate(ctx context.Context, r *Request, in *Input) Decision {
	object, old := in.Object, in.OldObject
	if in.Convert != nil {
		var err error
		if object, old, err = in.Convert(s.Kind); err != nil {
			return Decision{Err: apierrors.NewInternalError(err)}
		}
	}
	result := s.Hook.Conditions.Eval(ctx, &condition.Input{
		Object:      object,
		OldObject:   old,
		Kind:        s.Kind,
		RequestKind: r.Kind,
		Resource:    r.Resource,
		Subresource: r.Subresource,
		Name:        r.Name,
		Namespace:   r.Namespace,
		Operation:   string(r.Operation),
		Options:     r.Options,
		DryRun:      r.DryRun,
		User:        r.User,
		Authorizer:  in.Authorizer,
	})
	d := Decision{Evaluated: true, Elapsed: result.Elapsed, ConditionErrors: result.Errors}
	switch {
	case result.False != nil:
		d.Reason = Reason{Code: ConditionFalse, hook: s.Hook, condition: result.False}
	case result.Err != nil:
		d.Err = &ConditionError{Hook: s.Hook.Hook, Resource: r.Resource.GroupResource(), Name: r.Name, Err: result.Err}
	default:
		d.Applies = true
	}
	return d
}

// ConditionError tells that a hook's match conditions could not be evaluated. With
// failure policy Fail the request is rejected with its Status; with Ignore the hook
// is not called (S2.32).
type ConditionError struct {
	Hook *registration.Hook
	// Resource and Name are what the request is about.
	Resource schema.GroupResource
	Name     string
	// Err is what went wrong in all expressions together. errors.Is tells whether it
	// is condition.ErrOutOfBudget.
	Err error
}

// Error says what the status says.
func (e *ConditionError) Error() string { return e.forbidden().Error() }

// Unwrap returns what went wrong.
func (e *ConditionError) Unwrap() error { return e.Err }

// Status is the 403 of a request that is rejected for it.
func (e *ConditionError) Status() metav1.Status { return e.forbidden().Status() }

func (e *ConditionError) forbidden() *apierrors.StatusError {
	return apierrors.NewForbidden(e.Resource, e.Name, e.Err)
}
