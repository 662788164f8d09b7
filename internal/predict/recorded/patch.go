package recorded

import (
	"bytes"
	"encoding/json"
	"errors"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxOperations bounds how many operations of a JSON patch are applied, as the API server does.
const maxOperations = 10_000

var (
	errPatchKind    = errors.New("the log does not say what kind of patch it is, and the kinds differ")
	errNotPatchable = errors.New("the patch cannot be applied to the object before the request")
)

// patched applies a patch to an object. A log has no content type: a list is a JSON patch, and of a
// merge patch and a strategic one both are tried.
func patched(old, patch json.RawMessage) (json.RawMessage, error) {
	patch = bytes.TrimSpace(patch)
	if len(patch) == 0 {
		return nil, errNotPatchable
	}
	if patch[0] == '[' {
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil || len(operations) > maxOperations {
			return nil, errNotPatchable
		}
		out, err := operations.Apply(old)
		if err != nil {
			return nil, errNotPatchable
		}
		return out, nil
	}
	merged, err := jsonpatch.MergePatch(old, patch)
	if err != nil {
		return nil, errNotPatchable
	}
	var of struct{ APIVersion, Kind string }
	if err := json.Unmarshal(old, &of); err != nil {
		return nil, errNotPatchable
	}
	gv, err := schema.ParseGroupVersion(of.APIVersion)
	if err != nil {
		return nil, errNotPatchable
	}
	typed, err := scheme.Scheme.New(gv.WithKind(of.Kind))
	if err != nil {
		// A custom resource takes no strategic patch.
		return merged, nil
	}
	strategic, err := strategicpatch.StrategicMergePatch(old, patch, typed)
	switch {
	case err != nil:
		return nil, errPatchKind
	case jsonpatch.Equal(merged, strategic):
		return merged, nil
	}
	return nil, errPatchKind
}
