package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// Objects are the two objects of a request, as *objects.Set has them. A type whose objects
// stay as they are embeds Unchanging.
type Objects interface {
	// Newest returns the object as it is now, Old the stored one; nil when the request
	// has none. Their version does not matter.
	Newest() runtime.Object
	Old() runtime.Object
	// Seen returns both in a kind, as users see them. An error that is ErrUnknown says
	// that they cannot be converted here.
	Seen(kind schema.GroupVersionKind) (object, old runtime.Object, err error)
	// Pend makes the newest object wait for the initializers, in order.
	Pend([]*registration.Entry)
	// Complete changes the metadata of the newest object, as a server does between the passes.
	Complete(change func(metav1.Object))
	// Changed notes that a compiled-in plugin may have changed the newest object.
	Changed()
	// Settle brings the request's own object up to date after what Input.Change changed.
	Settle() error
}

// Unchanging is the part of Objects that changes them, for objects that stay as they are.
type Unchanging struct{}

// Pend implements Objects.
func (Unchanging) Pend([]*registration.Entry) {}

// Complete implements Objects.
func (Unchanging) Complete(func(metav1.Object)) {}

// Changed implements Objects.
func (Unchanging) Changed() {}

// Settle implements Objects.
func (Unchanging) Settle() error { return nil }

// ErrUnknown is the error of an Input that cannot answer. A test that depends on the
// answer is then unknown: the plan says neither that the entry applies nor that it does
// not.
var ErrUnknown = errors.New("unknown")

// AsWritten returns the objects of a request that are known in the kinds they were
// written in, and cannot be converted. Either may be nil.
func AsWritten(object, old runtime.Object) Objects { return &written{object: object, old: old} }

type written struct {
	Unchanging
	object, old runtime.Object
}

func (w *written) Newest() runtime.Object { return w.object }
func (w *written) Old() runtime.Object    { return w.old }

func (w *written) Seen(kind schema.GroupVersionKind) (object, old runtime.Object, err error) {
	for _, obj := range []runtime.Object{w.object, w.old} {
		if obj != nil && obj.GetObjectKind().GroupVersionKind() != kind {
			return nil, nil, fmt.Errorf("%w: the object cannot be converted to %s here", ErrUnknown, kind)
		}
	}
	return w.object, w.old, nil
}

// Input is what selectors and conditions look at.
type Input struct {
	// Objects are the objects of the request. It must be set.
	Objects Objects
	// Status, if set, are the objects of a request that writes a status, as validating
	// webhooks see them if nothing but the status of what was sent counts. It is for plans:
	// while a request runs, the server has decided what counts.
	Status Objects
	// Generates reports whether the server generates names between the passes. It is for plans.
	Generates bool
	// Validate returns why the object is not valid once the mutating pass is over. It must not
	// change the object. It is for plans. Nil means that it is not known.
	Validate func(ctx context.Context, object runtime.Object) error
	// NamespaceLabels returns the labels of a namespace. When there is none of that
	// name, the error is the API status NotFound. It is asked only for an entry with
	// a namespaceSelector. Nil means that there are no namespaces.
	NamespaceLabels func(ctx context.Context, name string) (map[string]string, error)
	// Namespace returns a namespace with all that policies see of it. It is asked for every
	// policy that is to be evaluated about an object in a namespace. The error of one that
	// does not exist is the API status NotFound. Nil means that there are no namespaces.
	Namespace func(ctx context.Context, name string) (*corev1.Namespace, error)
	// Params has the objects that policies refer to. Nil means that no kind is known.
	Params Params
	// Change changes Objects as mutating policies say. Nil means that it is not known what
	// becomes of them.
	Change Changer
	// Fork returns objects of their own in a kind, which may be changed as Objects may, and what
	// changes them: what soft policies change is found out and thrown away (S28.7). Nil means
	// what a nil Change means.
	Fork func(kind schema.GroupVersionKind) (Objects, Changer, error)
	// Authorizer is asked by conditions that ask it; with nil they fail.
	Authorizer authorizer.UnconditionalAuthorizer
	// UserUnknown and RightsUnknown, if set, say why it cannot be seen who makes the
	// request, and what the caller may do. Match conditions that look at it are then
	// unknown.
	UserUnknown, RightsUnknown string
	// NamespaceUnknown, if set, says why the namespace of the request cannot be seen. Policies
	// with an expression that looks at it are then unknown; Namespace is not asked for others.
	NamespaceUnknown string
}

// Decision is what Decide found: the entry applies, or it is Unknown whether it does, or
// Err rejects the request; else it does not apply, and Reason says why.
type Decision struct {
	// Applies reports whether the entry applies.
	Applies bool
	// Unknown reports whether the Input could not say what had to be known.
	Unknown bool
	// Reason says which test the entry failed, or which test could not be made. It is
	// zero when the entry applies.
	Reason Reason
	// Err is what the request is rejected with. It is an API status, and rejects the
	// request whatever the failure policy is (S2.3); or it is a *ConditionError of an
	// entry with failure policy Fail (S2.32).
	Err error
	// Forgiven is the *ConditionError of an entry with failure policy Ignore, which does
	// not apply (S2.32).
	Forgiven error
	// Evaluated reports whether match conditions were evaluated, which took Elapsed, and
	// ConditionErrors counts the expressions that failed.
	Evaluated       bool
	Elapsed         time.Duration
	ConditionErrors int
	// Enforced says how hard an entry is that applies, or would reject the request.
	Enforced Enforced
	// Spared is what the request would be rejected with if the entry were hard: it is soft, and
	// does not apply (S28.2).
	Spared error
}

// Forgives reports whether the failure policy of an entry lets a request go on without it when
// it failed. It is where the failure policy is applied, and the only place (S7.1 to S7.3,
// S2.32, S11.47). Exclusion rules come on top of it, in Candidate.Forgives.
func Forgives(e *registration.Entry) bool { return e.FailurePolicy == registration.Ignore }

// Decide says whether the candidate's entry applies. r is the request that the
// candidate was found for.
//
// An error in a selector is held back until it is clear that nothing else spares
// the entry (S2.2).
func (c *Candidate) Decide(ctx context.Context, r *Request, in *Input) Decision {
	d := c.selected(ctx, r, in)
	if d.Applies && c.Entry.Conditions != nil {
		d = c.evaluate(ctx, r, in)
	}
	if d.Applies || d.Err != nil {
		if d.Enforced = c.enforced(ctx, r, in, nil); d.Enforced.Mode.Soft() && d.Err != nil {
			d.Spared, d.Err = d.Err, nil
		}
	}
	return d
}

// selected is the decision of the administrator's rules and of the selectors.
func (c *Candidate) selected(ctx context.Context, r *Request, in *Input) Decision {
	if c.Exclusion.Skips() {
		return Decision{Reason: Reason{Code: ExclusionRule, entry: c.Entry, rule: c.Exclusion.Skip}}
	}
	reason, selects, held := selectNamespace(ctx, c.Entry, r, in)
	if held == nil && !selects {
		return Decision{Reason: reason}
	}
	objectReason, selects, err := selectObject(c.Entry, in)
	if err == nil && !selects {
		return Decision{Reason: objectReason}
	}
	switch {
	case c.Err != nil:
		return failed(Reason{Code: UnknownKind, entry: c.Entry}, c.Err)
	case held != nil:
		return failed(reason, held)
	case err != nil:
		return failed(objectReason, err)
	}
	return Decision{Applies: true}
}

// failed is the decision about a test that could not be made.
func failed(reason Reason, err error) Decision {
	reason.err = err
	if errors.Is(err, ErrUnknown) {
		reason.Code = Unknown
		return Decision{Unknown: true, Reason: reason}
	}
	return Decision{Reason: reason, Err: err}
}

// selectNamespace asks the namespaceSelector (S2.10 to S2.17).
func selectNamespace(ctx context.Context, h *snapshot.Entry, r *Request, in *Input) (Reason, bool, error) {
	isNamespace := r.Resource.Group == "" && r.Resource.Resource == "namespaces"
	if (r.Namespace == "" || r.ClusterScoped) && !isNamespace {
		return Reason{}, true, nil
	}
	if h.NamespaceSelector == nil {
		return Reason{Code: BadSelector, entry: h}, false, apierrors.NewInternalError(h.NamespaceSelectorError)
	}
	if h.NamespaceSelector.Empty() {
		return Reason{}, true, nil
	}
	found, err := namespaceLabels(ctx, r, in, isNamespace)
	if err != nil {
		reason := Reason{Code: NamespaceNotFound, entry: h, request: r}
		var status apierrors.APIStatus
		switch {
		case errors.Is(err, ErrUnknown):
			return reason, false, err
		case apierrors.IsNotFound(err) && errors.As(err, &status):
			return reason, false, &apierrors.StatusError{ErrStatus: status.Status()}
		}
		reason.Code = NamespaceUnreadable
		return reason, false, apierrors.NewInternalError(err)
	}
	if h.NamespaceSelector.Matches(found) {
		return Reason{}, true, nil
	}
	return Reason{Code: NamespaceNotSelected, entry: h, request: r, labels: found}, false, nil
}

// namespaceLabels returns the labels of the request's namespace. A Namespace that
// is written has its new labels (S2.12). One that is gone from the source while it
// is deleted has those it was stored with.
func namespaceLabels(ctx context.Context, r *Request, in *Input, isNamespace bool) (labels.Labels, error) {
	if isNamespace && r.Subresource == "" && (r.Operation == admission.Create || r.Operation == admission.Update) {
		found, ok := labelsOf(in.Objects.Newest())
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
		if stored, ok := labelsOf(in.Objects.Old()); ok {
			return stored, nil
		}
	}
	return labels.Set(found), err
}

// selectObject asks the objectSelector (S2.18, S2.19).
func selectObject(h *snapshot.Entry, in *Input) (Reason, bool, error) {
	if h.ObjectSelector == nil {
		return Reason{Code: BadSelector, entry: h}, false, apierrors.NewInternalError(h.ObjectSelectorError)
	}
	if h.ObjectSelector.Empty() {
		return Reason{}, true, nil
	}
	found, ok := labelsOf(in.Objects.Newest())
	if ok && h.ObjectSelector.Matches(found) {
		return Reason{}, true, nil
	}
	old, okOld := labelsOf(in.Objects.Old())
	if okOld && h.ObjectSelector.Matches(old) {
		return Reason{}, true, nil
	}
	return Reason{Code: ObjectNotSelected, entry: h, labels: found, oldLabels: old}, false, nil
}

// evaluate asks the match conditions (S2.29 to S2.36).
func (c *Candidate) evaluate(ctx context.Context, r *Request, in *Input) Decision {
	if in.UserUnknown != "" || in.RightsUnknown != "" {
		if err := in.unseen("match condition", c.Entry.MatchConditions); err != nil {
			return failed(Reason{Code: ConditionFailed, entry: c.Entry}, err)
		}
	}
	object, old, err := in.Objects.Seen(c.Kind)
	if err != nil {
		reason := Reason{Code: NotConvertible, entry: c.Entry}
		if !errors.Is(err, ErrUnknown) {
			return failed(reason, apierrors.NewInternalError(err))
		}
		looks := func(m registration.MatchCondition) bool { return expression.LooksAtObjects(m.Expression) }
		if slices.ContainsFunc(c.Entry.MatchConditions, looks) {
			return failed(reason, err)
		}
		// The conditions do not need what is not known.
		object, old = nil, nil
	}
	result := c.Entry.Conditions.Eval(ctx, expression.NewRequest(&expression.Input{
		Object:      object,
		OldObject:   old,
		Kind:        c.Kind,
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
	}), r.Resource, nil)
	d := Decision{Evaluated: true, Elapsed: result.Elapsed, ConditionErrors: result.Errors}
	switch {
	case result.False != nil:
		d.Reason = Reason{Code: ConditionFalse, entry: c.Entry, condition: result.False}
	case result.Err != nil:
		err := &ConditionError{Entry: c.Entry.Entry, Resource: r.Resource.GroupResource(), Name: r.Name, Err: result.Err}
		d.Reason = Reason{Code: ConditionFailed, entry: c.Entry, err: err}
		if c.Forgives() {
			d.Forgiven = err
		} else {
			d.Err = err
		}
	default:
		d.Applies = true
	}
	return d
}

// unseen is ErrUnknown if an expression looks at what the Input does not know; kind says
// what the expressions are.
func (in *Input) unseen(kind string, conditions []registration.MatchCondition) error {
	for _, c := range conditions {
		user, rights := expression.LooksAtCaller(c.Expression)
		switch {
		case user && in.UserUnknown != "":
			return fmt.Errorf("%w: %s %q: %s", ErrUnknown, kind, c.Name, in.UserUnknown)
		case rights && in.RightsUnknown != "":
			return fmt.Errorf("%w: %s %q: %s", ErrUnknown, kind, c.Name, in.RightsUnknown)
		}
	}
	return nil
}

// ConditionError means that an entry's match conditions could not be evaluated. With
// failure policy Fail the request is rejected with its Status; with Ignore the entry
// does not apply (S2.32).
type ConditionError struct {
	Entry *registration.Entry
	// Resource and Name are what the request is about.
	Resource schema.GroupResource
	Name     string
	// Err is what went wrong in all expressions together. errors.Is reports whether it
	// is expression.ErrOutOfBudget.
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

// Beforehand says what keeps a webhook that applies from being called, whatever is the
// matter with its server: the zero Reason when nothing does. Final reports whether the request
// is rejected for it whatever the failure policy is (S7.6); otherwise the webhook has
// failed (S3.6, S7.4).
func (c *Candidate) Beforehand(r *Request) (reason Reason, final bool) {
	w := c.Entry.Webhook
	switch {
	case w == nil:
		return Reason{}, false
	case r.DryRun && w.SideEffects == "" && c.Entry.Source != registration.External:
		return Reason{Code: NoSideEffects, entry: c.Entry}, false
	case r.DryRun && w.SideEffects != "None" && w.SideEffects != "NoneOnDryRun":
		return Reason{Code: NoDryRun, entry: c.Entry}, true
	}
	if _, ok := c.ReviewVersion(); !ok {
		return Reason{Code: NoReviewVersion, entry: c.Entry}, false
	}
	return Reason{}, false
}

// Outcome says what becomes of a webhook that applies, before its server is asked: it is called,
// or its failure is ignored, or the request is rejected. It is the same for a plan and for
// the run.
func (c *Candidate) Outcome(r *Request) (Effect, Reason) {
	switch reason, final := c.Beforehand(r); {
	case reason.Code == None:
		return Call, reason
	case !final && c.Forgives():
		return Ignored, reason
	default:
		return Reject, reason
	}
}

// ReviewVersion returns the version of AdmissionReview that the webhook is sent, the
// first that it lists and the source has; ok is false when there is none (S3.6).
func (c *Candidate) ReviewVersion() (version review.Version, ok bool) {
	if c.Entry.Source == registration.External {
		return review.V1alpha1, true
	}
	return review.Choose(c.Entry.ReviewVersions)
}

// MayGoAhead reports whether the webhook may be called before its turn, with the object as
// it is then: one call too many does no harm, by its own word.
func (c *Candidate) MayGoAhead() bool {
	w := c.Entry.Webhook
	return w != nil && w.MayReinvoke && w.SideEffects == "None"
}

// AsksAuthorizer reports whether an expression asks what the caller may do.
func AsksAuthorizer(text string) bool {
	_, rights := expression.LooksAtCaller(text)
	return rights
}
