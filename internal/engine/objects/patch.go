package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/internal/engine/initializers"
	"github.com/gatehouse-dev/gatehouse/internal/engine/review"
)

// KindError is the error of a patch that changes the kind of the object (S5.8).
type KindError struct {
	From, To schema.GroupVersionKind
}

func (e *KindError) Error() string {
	return fmt.Sprintf("it changes the object from %s to %s", e.From, e.To)
}

// Apply applies a patch to the object of f, and makes the result the newest object, with its kind's
// defaults (S5.4). It reports whether the patch changed the object before defaulting (S5.5); if so,
// edits are the Edits of the patch. If the patch cannot be applied, Apply returns an error,
// possibly a *KindError, and the object is unchanged (S5.12). Applying ends when ctx ends, and
// reserves memory of room, which may be nil (S5.33).
func (s *Set) Apply(ctx context.Context, room review.Room, f *Form, p review.Patch) (changed bool, edits []review.Edit, err error) {
	changed, object, err := s.patched(f, &patching{ctx: ctx, room: room, patch: p, edits: &edits})
	if err != nil {
		return false, nil, err
	}
	if changed {
		s.o.GetObjectDefaulter().Default(object)
		s.Replace(f, object)
		return true, edits, nil
	}
	// Defaults are set after every patch. If the patch changed nothing, a default is missing only
	// if an earlier plugin left the object incomplete.
	object = f.object.DeepCopyObject()
	s.o.GetObjectDefaulter().Default(object)
	if !equality.Semantic.DeepEqual(f.object, object) {
		s.Replace(f, object)
	}
	return false, nil, nil
}

// patching is the application of a patch until ctx ends, with memory of room; a nil room has no
// bound.
type patching struct {
	ctx   context.Context
	room  review.Room
	patch review.Patch
	// strict makes unknown fields of a typed object an error. Otherwise they are dropped.
	strict bool
	// edits is set to the Edits of the patch.
	edits *[]review.Edit
}

// patched returns the object of f with a patch applied, before defaulting, and whether the two
// differ (S5.4, S5.5). If they do not, it returns no object.
//
// The result may share memory with the previous object. Defaulting it in place is still safe: the
// previous object belongs to the same request, and is no longer used.
func (s *Set) patched(f *Form, p *patching) (changed bool, object runtime.Object, err error) {
	if u, ok := f.object.(*unstructured.Unstructured); ok {
		return p.content(u, f.kind)
	}
	if changed, object, ok, err := s.patchedPart(f, p); ok || err != nil {
		return changed, object, err
	}
	return s.patchedWhole(f, p)
}

// patchedWhole is patched for a typed object, by means of its JSON.
func (s *Set) patchedWhole(f *Form, p *patching) (changed bool, object runtime.Object, err error) {
	payload, err := s.Encode(f)
	if err != nil {
		return false, nil, err
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(payload.Object, &content); err != nil {
		return false, nil, err
	}
	content, changed, err = p.applied(content)
	if err != nil || !changed {
		return false, nil, err
	}
	if object, err = s.decoded(f, p, content); err != nil {
		return false, nil, err
	}
	return !asWritten.DeepEqual(f.object, object), object, nil
}

// decoded returns the typed object of patched content with the kind of f.
func (s *Set) decoded(f *Form, p *patching, content map[string]any) (runtime.Object, error) {
	object, err := s.o.GetObjectCreater().New(f.kind)
	if err == nil {
		err = decodeObject(content, object, p.strict)
	}
	if err != nil {
		return nil, err
	}
	if p.strict {
		restoreKind(object, f.kind)
	}
	return object, checkKind(object, f.kind)
}

// applied returns content with the patch applied, and whether the patch changed it. If so, applied
// sets edits.
func (p *patching) applied(content map[string]any) (patched map[string]any, changed bool, err error) {
	patched, changed, err = p.patch.ApplyToMap(p.ctx, p.room, content)
	if err == nil && changed {
		*p.edits = p.patch.Edits(p.ctx, content)
	}
	return patched, changed, err
}

// content is patched for an unstructured object.
func (p *patching) content(u *unstructured.Unstructured, kind schema.GroupVersionKind) (changed bool, object runtime.Object, err error) {
	content, shows := u.Object, initializers.Shows(u)
	if !shows && initializers.Has(u) {
		if content, err = exposed(u); err != nil {
			return false, nil, err
		}
	}
	content, changed, err = p.applied(content)
	if err != nil || !changed {
		return false, nil, err
	}
	if !shows {
		if err := hide(content); err != nil {
			return false, nil, err
		}
	}
	patched := &unstructured.Unstructured{Object: content}
	if err := checkKind(patched, kind); err != nil {
		return changed, patched, err
	}
	return changed, patched, checkContent(patched, p.patch)
}

var (
	errMetadata = errors.New("it leaves the object without metadata")
	errItems    = errors.New(`it adds an array named "items", which makes the object a list`)
)

// checkContent checks an unstructured object like the decoding of a typed one: metadata must be an
// object after the patch. The later validation of the object reports absent metadata.
func checkContent(u *unstructured.Unstructured, p review.Patch) error {
	if members, ok := p.Members(); ok && !slices.Contains(members, "metadata") && !slices.Contains(members, "items") {
		return nil
	}
	if u.IsList() {
		return errItems
	}
	raw, there := u.Object["metadata"]
	if !there {
		return nil
	}
	metadata, ok := raw.(map[string]any)
	if !ok {
		return errMetadata
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(metadata, &metav1.ObjectMeta{}); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

// asWritten is semantic equality of objects if one of them was converted to JSON, where times have
// whole seconds and microseconds. The object of a create has a finer time in its managed fields.
var asWritten = func() conversion.Equalities {
	e := conversion.Equalities{Equalities: maps.Clone(equality.Semantic.Equalities)}
	err := e.AddFuncs(
		func(a, b metav1.Time) bool { return a.Unix() == b.Unix() },
		func(a, b metav1.MicroTime) bool { return a.UnixMicro() == b.UnixMicro() },
	)
	if err != nil {
		panic(fmt.Sprintf("equality of times: %v", err))
	}
	return e
}()

func checkKind(object runtime.Object, want schema.GroupVersionKind) error {
	if got := object.GetObjectKind().GroupVersionKind(); got != want {
		return &KindError{From: want, To: got}
	}
	return nil
}

// restoreKind restores the apiVersion and kind of a typed object if a policy's patch removed them,
// because the type determines both (S18.20).
func restoreKind(object runtime.Object, kind schema.GroupVersionKind) {
	got := object.GetObjectKind().GroupVersionKind()
	got.Kind = cmp.Or(got.Kind, kind.Kind)
	if got.GroupVersion().Empty() {
		got.Group, got.Version = kind.Group, kind.Version
	}
	object.GetObjectKind().SetGroupVersionKind(got)
}
