package initialization

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// Creation is one creator's view of the object that it created.
type Creation struct {
	entry  *entry
	failed error
	// stored is the object that Create returned. It is set for a creator that accepts it while it
	// still waits for initializers.
	stored runtime.Object
}

type creationKey struct{}

// WithCreation returns a context that tells the store to fill in c. The caller
// must then call Wait.
func WithCreation(ctx context.Context, c *Creation) context.Context {
	return context.WithValue(ctx, creationKey{}, c)
}

func creation(ctx context.Context) *Creation {
	c, _ := ctx.Value(creationKey{}).(*Creation)
	return c
}

// answerBefore is the time before the request's own deadline at which a creator gets its response, so that the
// response can still name the initializer.
const answerBefore = 250 * time.Millisecond

// Waits reports whether Wait has something to wait for.
func (c *Creation) Waits() bool { return c.entry != nil }

// TakeStored makes Wait return created, the object that Create returned, instead of an error when
// the object is stored but still waits for initializers (S11.64).
func (c *Creation) TakeStored(created runtime.Object) { c.stored = created }

// Wait returns the object when it is initialized; created is the object that Create returned;
// Wait returns it at once if there is nothing to wait for. The error is the initializer's failure
// result if it failed. It is 504 with the name of the pending initializer when ctx is about to
// end, or when the initializer's timeout passed and its policy is Fail. It is 500 when the object
// was deleted (S11.25).
func (c *Creation) Wait(ctx context.Context, created runtime.Object) (runtime.Object, error) {
	if c.failed != nil {
		return nil, c.failed
	}
	if c.entry == nil {
		return created, nil
	}
	deadline, _ := ctx.Deadline()
	return c.WaitUntil(ctx, deadline)
}

// WaitUntil is Wait for a Creation whose Waits returns true. It waits until the deadline or the end of ctx, and
// ignores the deadline of ctx. The zero time means no deadline. WaitUntil takes less memory than Wait with a
// context of that deadline.
func (c *Creation) WaitUntil(ctx context.Context, deadline time.Time) (runtime.Object, error) {
	final, err := c.entry.wait(ctx, deadline)
	if waits := (*waitsError)(nil); c.stored != nil && errors.As(err, &waits) {
		return c.stored, nil
	}
	return final, err
}

// waitsError means that the object is stored and still waits for initializers.
type waitsError struct{ *apierrors.StatusError }

// failure turns the result of an initialization into the error that the creator
// gets. Its code must be an error code that can be sent over HTTP.
func failure(result *metav1.Status) error {
	status := *result
	if status.Code < http.StatusBadRequest || status.Code > 999 {
		status.Code = http.StatusInternalServerError
	}
	status.Status = metav1.StatusFailure
	return &apierrors.StatusError{ErrStatus: status}
}

// rejection is failure for an object that an initializer rejected. Its message names the initializer whose turn
// it was, or all of them if they are parallel (S11.69).
func (s *store) rejection(field *initializers.Initializers) error {
	result := *field.Result
	if names := s.turn(field); names != "" && !strings.Contains(result.Message, names) {
		result.Message = strings.TrimSuffix(fmt.Sprintf("initializer %s rejected the object: %s", names, result.Message), ": ")
	}
	return failure(&result)
}

// turn returns the quoted names of the initializers whose turn it is.
func (s *store) turn(field *initializers.Initializers) string {
	leading := s.leading(field)
	names := make([]string, len(leading))
	for i, l := range leading {
		names[i] = strconv.Quote(l.Name)
	}
	return strings.Join(names, " or ")
}

// wait must need little of the stack: thousands may be here at once.
func (e *entry) wait(ctx context.Context, deadline time.Time) (runtime.Object, error) {
	e.begin()
	defer e.leave()
	var late <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline) - answerBefore)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-e.done:
		return e.final, e.err
	case <-late:
	case <-ctx.Done():
	case <-e.tracker.store.d.released.Done():
		return nil, e.ending()
	}
	return nil, e.unfinished()
}

func (e *entry) begin() {
	e.tracker.store.d.Observe(Event{Kind: WaitBegan, Resource: e.tracker.store.resource})
}

func (e *entry) leave() {
	e.tracker.leave(e)
	e.tracker.store.d.Observe(Event{Kind: WaitEnded, Resource: e.tracker.store.resource})
}

func (e *entry) ending() error {
	return &waitsError{apierrors.NewServiceUnavailable(fmt.Sprintf(
		"the server is shutting down: %s %q is stored and not yet initialized", e.tracker.store.resource, e.name))}
}

func (e *entry) unfinished() error {
	return &waitsError{apierrors.NewTimeoutError(fmt.Sprintf(
		"request did not complete within requested timeout: %s %q is stored and waits for %s",
		e.tracker.store.resource, e.name, described(e.tracker.turnOf(e))), 0)}
}

// described names initializers in a message.
func described(names []string) string {
	if len(names) == 1 {
		return fmt.Sprintf("initializer %q", names[0])
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return "initializers " + strings.Join(quoted, ", ")
}
