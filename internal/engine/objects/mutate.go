package objects

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/engine/mutation"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// errInitializers rejects changes that are reserved for initializers (D70).
var errInitializers = errors.New("metadata.initializers cannot be changed by a policy: only initializers do that")

// Mutate applies the change of a policy's mutation to the object of f, and makes the result, with
// its kind's defaults, the newest object (S18.3, S18.4). It reports whether the result differs from
// the previous object. After an error the object is unchanged.
//
// A JSON patch whose test fails changes nothing, and is not an error (S18.19). After a JSON patch,
// a typed object must have no unknown fields (S18.20). Applying a JSON patch ends when ctx ends.
func (s *Set) Mutate(ctx context.Context, f *Form, change *mutation.Change, schemas mutation.Schemas) (changed bool, err error) {
	object, err := s.mutated(ctx, f, change, schemas)
	if err != nil {
		return false, err
	}
	edited := object != nil
	if !edited || isUnstructured(object) {
		// The result shares memory with the previous object, and is compared with it.
		if !edited {
			object = f.object
		}
		object = object.DeepCopyObject()
	}
	s.o.GetObjectDefaulter().Default(object)
	if edited && !sameInitializers(f.object, object) {
		return false, errInitializers
	}
	changed = !asWritten.DeepEqual(f.object, object)
	if changed || edited {
		s.Replace(f, object)
	}
	return changed, nil
}

// mutated returns the object of f with a change applied, before defaulting; nil if nothing changes.
func (s *Set) mutated(ctx context.Context, f *Form, change *mutation.Change, schemas mutation.Schemas) (runtime.Object, error) {
	if change.Type == mutation.ApplyConfiguration {
		return s.merged(f, change.Configuration, schemas)
	}
	_, object, err := s.patched(f, &patching{ctx: ctx, patch: change.Patch, strict: true, edits: &change.Edits})
	failed := (*review.PatchError)(nil)
	switch {
	case err == nil:
		return object, nil
	case errors.Is(err, review.ErrTestFailed):
		return nil, nil
	case errors.As(err, &failed):
		payload, encoding := s.Encode(f)
		if encoding != nil {
			return nil, fmt.Errorf("failed to create JSON patch: %w", encoding)
		}
		return nil, mutation.PatchError(payload.Object, change.Patch, err)
	}
	return nil, err
}

// merged returns the object of f with an apply configuration merged into it. The list of
// initializers stays where the object has it; the configuration must not set it.
func (s *Set) merged(f *Form, configuration map[string]any, schemas mutation.Schemas) (runtime.Object, error) {
	if touchesInitializers(configuration) {
		return nil, errInitializers
	}
	content, err := mutation.Merge(schemas, f.kind, f.object, configuration)
	if err != nil {
		return nil, err
	}
	if u, ok := f.object.(*unstructured.Unstructured); ok {
		if initializers.Shows(u) {
			// Merge may have put the list into the annotation: move it to the field.
			if err := initializers.Expose(content); err != nil {
				return nil, err
			}
		}
		return &unstructured.Unstructured{Object: content}, nil
	}
	typed, err := s.o.GetObjectCreater().New(f.kind)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed); err != nil {
		return nil, fmt.Errorf("unable to convert unstructured object to %v: %w", f.kind, err)
	}
	return typed, nil
}

// touchesInitializers reports whether a configuration sets the list of initializers, or its
// annotation.
func touchesInitializers(configuration map[string]any) bool {
	metadata, _ := configuration["metadata"].(map[string]any)
	if _, field := metadata["initializers"]; field {
		return true
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	_, annotation := annotations[initializers.Annotation]
	return annotation
}

func isUnstructured(object runtime.Object) bool {
	_, ok := object.(*unstructured.Unstructured)
	return ok
}

// sameInitializers reports whether two objects have the same initializers.
func sameInitializers(a, b runtime.Object) bool {
	if !initializers.Has(a) && !initializers.Has(b) {
		return true
	}
	before, err := initializers.Get(a)
	if err != nil {
		return false
	}
	after, err := initializers.Get(b)
	if err != nil {
		return false
	}
	return equality.Semantic.DeepEqual(before, after)
}
