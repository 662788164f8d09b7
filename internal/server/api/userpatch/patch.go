package userpatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

// Patch is a JSON patch or a JSON merge patch of a request. It is immutable.
type Patch struct {
	// Type is types.JSONPatchType or types.MergePatchType.
	Type types.PatchType
	// Body is valid JSON.
	Body []byte
	// Strict makes Apply report duplicate and unknown members of the patch.
	Strict bool
}

// jsonPatchOp has the name of the type of upstream, which is in errors.
type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// Apply returns a JSON object with the patch applied, and the errors of strict decoding of the patch. All errors
// equal the errors of k8s.io/apiserver. Apply returns when ctx ends.
func (p *Patch) Apply(ctx context.Context, object []byte) (patched []byte, strict []error, err error) {
	if p.Strict {
		if strict, err = p.read(); err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
	}
	if p.Type == types.MergePatchType {
		patched, err = merge(ctx, object, p.Body)
		if errors.Is(err, errBadPatch) {
			err = apierrors.NewBadRequest(err.Error())
		}
		return patched, strict, ended(ctx, err)
	}
	operationsOf := newText(p.Body).root()
	count, err := operations(operationsOf)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	if count > maxOperations {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, count))
	}
	if patched, err = operate(ctx, object, operationsOf); err != nil && ctx.Err() == nil {
		return nil, nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	return patched, strict, ended(ctx, err)
}

// ended returns the error of a patch, a timeout if the context has ended it.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return apierrors.NewTimeoutError("applying the patch: "+context.Cause(ctx).Error(), 0)
}

// read decodes the patch as upstream does for a strict reader.
func (p *Patch) read() (strict []error, err error) {
	if p.Type == types.MergePatchType {
		v := map[string]any{}
		return kjson.UnmarshalStrict(p.Body, &v)
	}
	var v []jsonPatchOp
	if strict, err = kjson.UnmarshalStrict(p.Body, &v); err != nil {
		return nil, fmt.Errorf("%s", strings.Replace(err.Error(), "userpatch.", "handlers.", 1))
	}
	for i, e := range strict {
		strict[i] = fmt.Errorf("json patch %v", e)
	}
	return strict, nil
}
