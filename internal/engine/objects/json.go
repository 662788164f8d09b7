package objects

import (
	"encoding/json"
	"errors"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
)

// encodeObject encodes an object for webhooks. If the object carries metadata.initializers in an
// annotation, the result has the field instead.
func encodeObject(obj runtime.Object) ([]byte, error) {
	if !initializers.Has(obj) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			return encodeContent(u.Object)
		}
		return json.Marshal(obj)
	}
	content, err := exposed(obj)
	if err != nil {
		return nil, err
	}
	return encodeContent(content)
}

// exposed returns the content of an object with metadata.initializers in the field that users see.
// The object is not changed, but may share memory with the result.
func exposed(obj runtime.Object) (map[string]any, error) {
	var content map[string]any
	if u, ok := obj.(*unstructured.Unstructured); ok {
		content = maps.Clone(u.Object)
		ownMetadata(content)
	} else {
		var err error
		if content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err != nil {
			return nil, err
		}
	}
	if err := initializers.Expose(content); err != nil {
		return nil, err
	}
	return content, nil
}

// decodeObject decodes a JSON object into a typed one. Unknown fields are dropped; they
// are an error if strict is set. It changes content.
func decodeObject(content map[string]any, into runtime.Object, strict bool) error {
	unknown, err := initializers.Hide(content)
	if err != nil {
		return err
	}
	data, err := encodeContent(content)
	if err != nil {
		return err
	}
	if !strict {
		return kjson.UnmarshalCaseSensitivePreserveInts(data, into)
	}
	mistakes, err := kjson.UnmarshalStrict(data, into)
	for _, u := range unknown {
		mistakes = append(mistakes, errors.New(u))
	}
	if err == nil && len(mistakes) > 0 {
		err = runtime.NewStrictDecodingError(mistakes)
	}
	return err
}

// hide moves metadata.initializers to the annotation. It changes nothing below the top level of
// content.
func hide(content map[string]any) error {
	metadata, _ := content["metadata"].(map[string]any)
	if _, ok := metadata["initializers"]; ok {
		ownMetadata(content)
	}
	_, err := initializers.Hide(content)
	return err
}

// ownMetadata replaces the metadata of content, which may be shared, by a copy whose fields and
// annotations can be changed.
func ownMetadata(content map[string]any) {
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return
	}
	metadata = maps.Clone(metadata)
	content["metadata"] = metadata
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		metadata["annotations"] = maps.Clone(annotations)
	}
}

// asSeen returns an object as users see it: if it carries metadata.initializers in an annotation,
// the result has the field instead.
func asSeen(obj runtime.Object) (runtime.Object, error) {
	if obj == nil || !initializers.Has(obj) {
		return obj, nil
	}
	if u, ok := obj.(*unstructured.Unstructured); ok && initializers.Shows(u) {
		return obj, nil
	}
	content, err := exposed(obj)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}
