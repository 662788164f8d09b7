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

// patch applies the patch of a response to the object of to, and makes the result
// the newest object. It returns what the call rejects with if the patch cannot be
// used; the object is then as before (S5.12).
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
	changed, edits, err := r.objects.Apply(to.form, p)
	if kind := (*objects.KindError)(nil); errors.As(err, &kind) {
		return refuse(c, apierrors.NewInternalError(fmt.Errorf("admission webhook %q returned a patch that is not allowed: %w", hook, err)))
	}
	if err != nil {
		return fail(to.step, c, call.PatchFailed, err)
	}
	c.Patch, c.Edits, c.Mutated = response.Patch, edits, changed
	return nil
}
