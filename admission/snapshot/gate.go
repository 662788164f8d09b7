package snapshot

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// ReasonLoadingConfiguration is the reason of the status if there is no usable snapshot for a
// request.
const ReasonLoadingConfiguration metav1.StatusReason = "LoadingConfiguration"

// Subject describes the request that needs a snapshot.
type Subject struct {
	// Source is the source of the entries that the request needs. It appears in the message of a
	// NotReadyError.
	Source    registration.Source
	Resource  schema.GroupResource
	Operation admission.Operation
}

// NotReadyError is the error of a request that cannot be evaluated now. It is an API status, to be
// retried after a second: 500 LoadingConfiguration (S11.11), or 503 ServiceUnavailable while the
// server is not announced to the main server (S22.20).
type NotReadyError struct {
	Subject Subject
	// Never reports whether no read has succeeded yet. Otherwise Since is the beginning of the last
	// successful read.
	Never bool
	Since time.Time
	// Err is the error of the last read; nil if it did not fail but has not ended, or none was
	// begun.
	Err error
}

var errNotRead = errors.New("configuration is not ready")

// notReady returns the error for a request without a usable snapshot.
func (r *Refresher) notReady(subject Subject) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &NotReadyError{Subject: subject, Never: true, Err: r.mu.err}
	if s := r.current.Load(); s != nil {
		e.Never, e.Since = false, s.ReadAt
	}
	return e
}

// cause returns the last error, or an error with a default text.
func (e *NotReadyError) cause() error {
	switch {
	case e.Err != nil:
		return e.Err
	case e.Never:
		return errNotRead
	}
	return fmt.Errorf("no read that began after %s has succeeded", e.Since.UTC().Format(time.RFC3339))
}

// pending reports whether the first read for initializers has neither ended nor failed yet.
func (e *NotReadyError) pending() bool {
	return e.Subject.Source == registration.Initializing && e.Never && e.Err == nil
}

// Error returns the message of the status.
func (e *NotReadyError) Error() string {
	if e.pending() {
		return fmt.Sprintf("Waiting for initialization configuration to load: %v", errNotRead)
	}
	return fmt.Sprintf("Unable to refresh the %s configuration: %v", e.Subject.Source.Descriptor().Noun, e.cause())
}

// Unwrap returns the error of the last read.
func (e *NotReadyError) Unwrap() error { return e.Err }

// Status implements apierrors.APIStatus.
func (e *NotReadyError) Status() metav1.Status {
	kind := e.Subject.Source.Descriptor().Kind
	name, blocked := string(e.Subject.Operation), "created, updated, deleted or connected to"
	if e.Subject.Source == registration.Initializing {
		name, blocked = "create", "created"
	}
	cause := metav1.StatusCause{
		Type:    metav1.CauseType(kind + "Failure"),
		Message: fmt.Sprintf("Cannot read the %s; nothing can be %s until a read succeeds.", kind, blocked),
	}
	if e.pending() {
		cause = metav1.StatusCause{
			Type:    metav1.CauseType(kind + "Pending"),
			Message: fmt.Sprintf("The %s has not been read yet; nothing can be %s until a read succeeds.", kind, blocked),
		}
	}
	code, reason := int32(http.StatusInternalServerError), ReasonLoadingConfiguration
	if errors.Is(e.Err, ErrUnannounced) {
		code, reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	}
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    code,
		Reason:  reason,
		Message: e.Error(),
		Details: &metav1.StatusDetails{
			Group:             e.Subject.Resource.Group,
			Kind:              e.Subject.Resource.Resource,
			Name:              name,
			Causes:            []metav1.StatusCause{cause},
			RetryAfterSeconds: 1,
		},
	}
}
