package dispatch

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/gatehouse-dev/gatehouse/admission/call"
	"github.com/gatehouse-dev/gatehouse/admission/initializers"
	"github.com/gatehouse-dev/gatehouse/admission/review"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// kindError says that a patch changed what kind the object is (S5.8).
type kindError struct {
	from, to schema.GroupVersionKind
}

func (e *kindError) Error() string {
	return fmt.Sprintf("it changes the object from %s to %s", e.from, e.to)
}

// patch applies the patch of a response to the object of f, and makes the result
// the newest object. It returns what the call rejects with if the patch cannot be
// used; the object is then as before (S5.12).
func (r *run) patch(f *form, c *trace.Call, response *review.Response) (status *apierrors.StatusError) {
	defer func() {
		if p := recover(); p != nil {
			status = panicked(c, p)
		}
	}()
	hook := c.Hook.Name
	p, err := review.DecodePatch(response.Patch)
	switch {
	case err != nil:
		return fail(c, call.PatchUndecodable, err)
	case len(p) == 0:
		return nil
	case f.object == nil:
		return refuse(c, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", hook)))
	case response.PatchType != review.PatchTypeJSONPatch:
		return fail(c, call.PatchType, fmt.Errorf("unsupported patch type %q", response.PatchType))
	}
	changed, object, err := r.objects.patched(f, p)
	if kind := (*kindError)(nil); errors.As(err, &kind) {
		return refuse(c, apierrors.NewInternalError(fmt.Errorf("admission webhook %q returned a patch that is not allowed: %w", hook, err)))
	}
	if err != nil {
		return fail(c, call.PatchFailed, err)
	}
	if changed {
		r.objects.o.GetObjectDefaulter().Default(object)
		r.objects.replace(f, object)
	}
	c.Patch, c.Mutated = response.Patch, changed
	return nil
}

// patched returns the object of f with a patch applied, before defaulting, and
// whether the two differ (S5.4, S5.5). If they do not, there is no object to
// return.
//
// The result may share memory with the object it was made from. Defaulting it in
// place is safe nevertheless: the other one is the same request's, and about to
// be dropped.
func (s *objects) patched(f *form, p review.Patch) (changed bool, object runtime.Object, err error) {
	if u, ok := f.object.(*unstructured.Unstructured); ok {
		return patchedContent(u, f.kind, p)
	}
	if changed, object, ok, err := s.patchedPart(f, p); ok || err != nil {
		return changed, object, err
	}
	return s.patchedWhole(f, p)
}

// patchedWhole is patched for a typed object, by way of its JSON.
func (s *objects) patchedWhole(f *form, p review.Patch) (changed bool, object runtime.Object, err error) {
	payload, err := s.encode(f)
	if err != nil {
		return false, nil, err
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(payload.Object, &content); err != nil {
		return false, nil, err
	}
	content, changed, err = p.ApplyToMap(content)
	if err != nil || !changed {
		return false, nil, err
	}
	if object, err = s.o.GetObjectCreater().New(f.kind); err != nil {
		return false, nil, err
	}
	if err := decodeObject(content, object); err != nil {
		return false, nil, err
	}
	if err := checkKind(object, f.kind); err != nil {
		return false, nil, err
	}
	return !asWritten.DeepEqual(f.object, object), object, nil
}

// patchedContent is patched for an unstructured object.
func patchedContent(u *unstructured.Unstructured, kind schema.GroupVersionKind, p review.Patch) (changed bool, object runtime.Object, err error) {
	content, shows := u.Object, initializers.Shows(u)
	if !shows && initializers.Has(u) {
		if content, err = exposed(u); err != nil {
			return false, nil, err
		}
	}
	content, changed, err = p.ApplyToMap(content)
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
	return changed, patched, checkContent(patched, p)
}

var (
	errMetadata = errors.New("it leaves the object without metadata")
	errItems    = errors.New(`it adds an array named "items": that is a list, not an object`)
)

// checkContent does for an unstructured object what decoding does for a typed one:
// the metadata that a patch made must be some. An absent one is for whoever
// validates the object.
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

// asWritten is semantic equality of objects of which one has been through JSON,
// where times have whole seconds and microseconds. The object of a create has a
// finer time in its managed fields.
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
		return &kindError{from: want, to: got}
	}
	return nil
}
