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

// Objects are the new and the stored object of a request. *objects.Set implements it. A type whose
// objects never change embeds Unchanging.
type Objects interface {
	// Newest returns the current object, and Old the stored one; nil if the request has none. They
	// may be in any version.
	Newest() runtime.Object
	Old() runtime.Object
	// Seen returns both objects in a kind, as users see them. An error that wraps ErrUnknown means
	// that this process cannot convert them.
	Seen(kind schema.GroupVersionKind) (object, old runtime.Object, err error)
	// Pend adds the initializers, in order, to the pending list of the newest object.
	Pend([]*registration.Entry)
	// Complete changes the metadata of the newest object, as a server does between the passes.
	Complete(change func(metav1.Object))
	// Changed records that a built-in admission plugin may have changed the newest object.
	Changed()
	// Settle brings the request's own object up to date after changes by Input.Change.
	Settle() error
}

// Unchanging implements the methods of Objects that change objects. They do nothing.
type Unchanging struct{}

// Pend implements Objects.
func (Unchanging) Pend([]*registration.Entry) {}

// Complete implements Objects.
func (Unchanging) Complete(func(metav1.Object)) {}

// Changed implements Objects.
func (Unchanging) Changed() {}

// Settle implements Objects.
func (Unchanging) Settle() error { return nil }

// ErrUnknown is the error of an Input that does not have a fact. If a test needs the fact, its
// result is unknown, and the plan leaves open whether the entry applies.
var ErrUnknown = errors.New("unknown")

// AsWritten returns the objects of a request in the kinds in which they were written. They cannot
// be converted to other kinds. Either object may be nil.
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

// Input has the facts that selectors, conditions and policies use.
type Input struct {
	// Objects are the objects of the request. It must be set.
	Objects Objects
	// Generates is for plans. It reports whether the server generates names between the passes.
	Generates bool
	// Prepare is for plans. It changes the object between the passes as a server does, and returns
	// the validation error of the result. A nil Prepare means that the plan cannot predict this.
	Prepare func(ctx context.Context, object runtime.Object) error
	// NamespaceLabels returns the labels of a namespace. If the namespace does not exist, the error
	// is the API status NotFound. It is called only for entries with a namespaceSelector. Nil means
	// that there are no namespaces.
	NamespaceLabels func(ctx context.Context, name string) (map[string]string, error)
	// Namespace returns a namespace for the variable namespaceObject. It is called when a
	// policy is evaluated about an object in a namespace. If the namespace does not exist, the
	// error is the API status NotFound. Nil means that there are no namespaces.
	Namespace func(ctx context.Context, name string) (*corev1.Namespace, error)
	// Params has the param objects of policies. Nil means that no kind is known.
	Params Params
	// Change applies the changes of mutating policies to Objects. Nil means that the result of
	// these changes is unknown.
	Change Changer
	// Fork returns a copy of Objects in a kind, and a Changer for the copy. Policies that are not
	// enforced change the copy, which is then discarded (S28.7). A nil Fork means that the result
	// of these changes is unknown.
	Fork func(kind schema.GroupVersionKind) (Objects, Changer, error)
	// Authorizer is the variable authorizer of conditions. If it is nil, conditions that use the
	// variable fail.
	Authorizer authorizer.UnconditionalAuthorizer
	// InitializerTimeout is for plans. It is the timeout of an initializer; zero means 5 s.
	InitializerTimeout time.Duration
	// UserUnknown, if set, is the reason why the requesting user is unknown, and RightsUnknown the
	// reason why the user's permissions are. Match conditions that use them are then unknown.
	UserUnknown, RightsUnknown string
	// NamespaceUnknown, if set, is the reason why the namespace of the request is unknown. Policies
	// with an expression that uses the namespace are then unknown. Namespace is not called for
	// other policies.
	NamespaceUnknown string
}

// Decision is the result of Decide. Either the entry applies, or this is Unknown, or Err rejects
// the request, or the entry does not apply for a Reason.
type Decision struct {
	// Applies reports whether the entry applies.
	Applies bool
	// Unknown reports whether the Input did not have a required fact.
	Unknown bool
	// Reason has the test that the entry failed, or that could not be made. It is zero if the entry
	// applies.
	Reason Reason
	// Err rejects the request. It is an API status that does not depend on the failure policy
	// (S2.3), or a *ConditionError of an entry with failure policy Fail (S2.32).
	Err error
	// Forgiven is the *ConditionError of an entry with failure policy Ignore. The entry does not
	// apply (S2.32).
	Forgiven error
	// Evaluated reports whether match conditions were evaluated. Elapsed is the duration of the
	// evaluation, and ConditionErrors counts the expressions that failed.
	Evaluated       bool
	Elapsed         time.Duration
	ConditionErrors int
	// Enforced is the enforcement of the entry, if the entry applies or would reject the request.
	Enforced Enforced
	// Spared is the error that would reject the request if the entry were enforced. The entry is
	// not enforced, and does not apply (S28.2).
	Spared error
}

// Forgives reports whether the failure policy of an entry ignores the entry's failure. No other
// code applies the failure policy (S7.1 to S7.3, S2.32, S11.47). Candidate.Forgives adds the
// exclusion rules.
func Forgives(e *registration.Entry) bool { return e.FailurePolicy == registration.Ignore }

// Decide reports whether the candidate's entry applies. r must be the request for which Candidates
// returned the candidate.
//
// An error in a selector counts only if no other test excludes the entry (S2.2).
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

// selected decides by exclusion rules and selectors alone.
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

// failed returns the decision for a test that could not be made.
func failed(reason Reason, err error) Decision {
	reason.err = err
	if errors.Is(err, ErrUnknown) {
		reason.Code = Unknown
		return Decision{Unknown: true, Reason: reason}
	}
	return Decision{Reason: reason, Err: err}
}

// selectNamespace applies the namespaceSelector (S2.10 to S2.17).
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
	if errors.Is(err, ErrUnknown) && byNameAlone(h.NamespaceSelector) {
		// Every namespace has this label.
		found, err = labels.Set{corev1.LabelMetadataName: r.Namespace}, nil
	}
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

// byNameAlone reports whether a selector uses only the name of a namespace.
func byNameAlone(s labels.Selector) bool {
	requirements, selectable := s.Requirements()
	return selectable && !slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() != corev1.LabelMetadataName })
}

// namespaceLabels returns the labels of the request's namespace. For a write of a Namespace these
// are its new labels (S2.12). For the deletion of a Namespace that no longer exists they are the
// labels of the stored object.
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

// selectObject applies the objectSelector (S2.18, S2.19).
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

// evaluate evaluates the match conditions (S2.29 to S2.36).
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
		// The conditions do not use the objects.
		object, old = nil, nil
	}
	result := c.Entry.Conditions.Eval(ctx, expression.NewValues(r.input(in, c.Kind, object, old, nil)), r.Resource, nil)
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

// unseen returns ErrUnknown if an expression uses a fact that the Input does not have. kind is the
// kind of the expressions.
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

// ConditionError is the error of an entry whose match conditions could not be evaluated. With
// failure policy Fail its Status rejects the request; with Ignore the entry does not apply (S2.32).
type ConditionError struct {
	Entry *registration.Entry
	// Resource and Name identify the request's object.
	Resource schema.GroupResource
	Name     string
	// Err joins the errors of all expressions. It may wrap expression.ErrOutOfBudget.
	Err error
}

// Error returns the message of the status.
func (e *ConditionError) Error() string { return e.forbidden().Error() }

// Unwrap returns Err.
func (e *ConditionError) Unwrap() error { return e.Err }

// Status returns the 403 status that rejects the request.
func (e *ConditionError) Status() metav1.Status { return e.forbidden().Status() }

func (e *ConditionError) forbidden() *apierrors.StatusError {
	return apierrors.NewForbidden(e.Resource, e.Name, e.Err)
}

// Beforehand returns the reason why a webhook that applies cannot be called, independent of the
// state of its server; the zero Reason if it can be called. final reports whether the request is
// rejected regardless of the failure policy (S7.6). Otherwise the webhook has failed, and the
// failure policy applies (S3.6, S7.4).
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

// Outcome returns the effect of a webhook that applies: the webhook is called, its failure is
// ignored, or the request is rejected. Plans and running requests use the same function.
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

// ReviewVersion returns the version of AdmissionReview for the webhook: the first version in the
// webhook's list that the source supports. ok is false if there is none (S3.6).
func (c *Candidate) ReviewVersion() (version review.Version, ok bool) {
	if c.Entry.Source == registration.External {
		return review.V1alpha1, true
	}
	return review.Choose(c.Entry.ReviewVersions)
}

// MayGoAhead reports whether the webhook may be called before its turn. The webhook must declare
// that an additional call is harmless.
func (c *Candidate) MayGoAhead() bool {
	w := c.Entry.Webhook
	return w != nil && w.MayReinvoke && w.SideEffects == "None"
}

// AsksAuthorizer reports whether an expression uses the variable authorizer.
func AsksAuthorizer(text string) bool {
	_, rights := expression.LooksAtCaller(text)
	return rights
}
