package requestlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// maxOperations bounds the operations of a JSON patch, as the API server does.
const maxOperations = 10_000

var errNotPatchable = errors.New("the patch cannot be applied to the object before the request")

// patched applies a patch to an object and returns the possible results. A log does not record the content type: a list
// is a JSON patch, and an object is a merge patch or a strategic merge patch.
func patched(old, patch json.RawMessage) ([]json.RawMessage, error) {
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
		return []json.RawMessage{out}, nil
	}
	merged, err := jsonpatch.MergePatch(old, patch)
	if err != nil {
		return nil, errNotPatchable
	}
	of, _ := headerOf(old)
	typed, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(of.APIVersion, of.Kind))
	if err != nil {
		// Custom resources do not support strategic merge patches.
		return []json.RawMessage{merged}, nil
	}
	strategic, err := strategicpatch.StrategicMergePatch(old, patch, typed)
	if err != nil || jsonpatch.Equal(merged, strategic) {
		return []json.RawMessage{merged}, nil
	}
	return []json.RawMessage{merged, strategic}, nil
}

// agreeing returns the one of two objects that agrees with the response to a request, or both if the response agrees with
// both or neither.
func agreeing(objects []json.RawMessage, answer json.RawMessage) []json.RawMessage {
	var a, b, is any
	if len(objects) != 2 || json.Unmarshal(objects[0], &a) != nil || json.Unmarshal(objects[1], &b) != nil || json.Unmarshal(answer, &is) != nil {
		return objects
	}
	switch first, second := apartIn(a, b, is); {
	case first && !second:
		return objects[:1]
	case second && !first:
		return objects[1:]
	}
	return objects
}

// apartIn reports whether is agrees with a, and with b, in the fields where a and b differ. is may contain more, such
// as defaults and changes of webhooks.
func apartIn(a, b, is any) (first, second bool) {
	if reflect.DeepEqual(a, b) {
		return true, true
	}
	x, ok := a.(map[string]any)
	y, also := b.(map[string]any)
	there, too := is.(map[string]any)
	if !ok || !also || !too {
		return review.Has(is, a), review.Has(is, b)
	}
	first, second = true, true
	for key := range x {
		if _, ok := y[key]; !ok {
			_, ok := there[key]
			first, second = first && ok && review.Has(there[key], x[key]), second && !ok
			continue
		}
		one, other := apartIn(x[key], y[key], there[key])
		first, second = first && one, second && other
	}
	for key := range y {
		if _, ok := x[key]; !ok {
			_, ok := there[key]
			first, second = first && !ok, second && ok && review.Has(there[key], y[key])
		}
	}
	return first, second
}
