package dispatch

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/engine/objects"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// patch applies the patch of a response to the object of to, and makes the result the newest
// object. If the patch cannot be used, it returns the rejection by the call, and the object
// stays as before (S5.12).
func (r *run) patch(to ready, c *trace.Call, response *review.Response) (status *apierrors.StatusError) {
	defer func() {
		if p := recover(); p != nil {
			status = panicked(to.step, c, p)
		}
	}()
	hook := c.Entry.Name
	p, err := review.DecodePatch(response.Patch)
	switch {
	case err != nil:
		return fail(to.step, c, call.PatchUndecodable, err)
	case len(p) == 0:
		return nil
	case !to.form.HasObject():
		return refuse(c, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", hook)))
	case response.PatchType != review.PatchTypeJSONPatch:
		return fail(to.step, c, call.PatchType, fmt.Errorf("unsupported patch type %q", response.PatchType))
	}
	set, form := r.objects, to.form
	if c.Enforcement.Mode.Soft() {
		// A soft hook changes a copy, which is then discarded (S28.7).
		if set, err = r.objects.Fork(to.step.Kind); err == nil {
			form, err = set.As(to.step.Kind)
		}
		if err != nil {
			return refuse(c, apierrors.NewInternalError(err))
		}
	}
	changed, edits, err := set.Apply(form, p)
	if kind := (*objects.KindError)(nil); errors.As(err, &kind) {
		return refuse(c, apierrors.NewInternalError(fmt.Errorf("admission webhook %q returned a patch that is not allowed: %w", hook, err)))
	}
	if err != nil {
		return fail(to.step, c, call.PatchFailed, err)
	}
	switch c.Edits = edits; {
	case !c.Enforcement.Mode.Soft():
		c.Patch, c.Mutated = response.Patch, changed
	case changed:
		c.WouldPatch = response.Patch
	}
	return nil
}
