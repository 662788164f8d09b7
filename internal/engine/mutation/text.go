package mutation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// PatchError returns the error of a JSON patch that could not be applied to object, which is JSON,
// because of cause. The sentence is the same as in the patch library of k8s.io/apiserver (S18.18):
// people know it, and tools search for it.
func PatchError(object []byte, patch review.Patch, cause error) error {
	if limit := (*review.LimitError)(nil); errors.As(cause, &limit) {
		return fmt.Errorf("JSON Patch: %w", limit)
	}
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		// The library would apply the patch again, without a time limit.
		return fmt.Errorf("JSON Patch: %w", cause)
	}
	if err := libraryError(object, patch); err != nil && !errors.Is(err, jsonpatch.ErrTestFailed) {
		return fmt.Errorf("JSON Patch: %w", err)
	}
	return fmt.Errorf("JSON Patch: %w", cause)
}

// libraryError applies a patch with the patch library and returns its error.
func libraryError(object []byte, patch review.Patch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = nil
		}
	}()
	spelled := make(jsonpatch.Patch, len(patch))
	for i := range patch {
		o := &patch[i]
		spelled[i] = jsonpatch.Operation{"op": quote(o.Op), "path": quote(o.Path)}
		if o.From != "" {
			spelled[i]["from"] = quote(o.From)
		}
		if o.Value != nil {
			value, err := json.Marshal(o.Value)
			if err != nil {
				return nil
			}
			spelled[i]["value"] = (*json.RawMessage)(&value)
		}
	}
	_, err = spelled.Apply(object)
	return err
}

// quote formats a string in Go syntax, as k8s.io/apiserver does here.
func quote(s string) *json.RawMessage {
	raw := json.RawMessage(strconv.Quote(s))
	return &raw
}
