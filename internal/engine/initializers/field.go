package initializers

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Annotation carries the field in typed objects. Clients can neither read nor write it.
const Annotation = "gatehouse.dev/metadata.initializers"

// Initializers is metadata.initializers. An object with the field, whatever its content, is
// uninitialized (S11.1). The tags have its protobuf numbers; numbers from 1000 on belong to fields
// that Kubernetes did not have.
type Initializers struct {
	// Pending lists the initializers that have yet to act, in order. Its merge key is name.
	Pending []Initializer `json:"pending" protobuf:"bytes,1,rep"`
	// Result, if set, is the status of the failed initialization.
	Result *metav1.Status `json:"result,omitempty" protobuf:"bytes,2,opt"`
	// Paired lists the initializers that were given to the object together with a finalizer,
	// whether they have acted or not (S11.54). The server maintains the list; its merge key is
	// name.
	Paired []Pair `json:"paired,omitempty" protobuf:"bytes,1000,rep"`
}

// Pair is an initializer and its finalizer.
type Pair struct {
	Name      string `json:"name" protobuf:"bytes,1,opt"`
	Finalizer string `json:"finalizer" protobuf:"bytes,2,opt"`
	// Claimed reports whether the initializer has begun to act: everything that it allocates
	// afterwards must be released. The initializer sets it, and it is never unset (S11.55).
	Claimed bool `json:"claimed,omitempty" protobuf:"varint,3,opt"`
}

// Initializer is one entry of the pending list.
type Initializer struct {
	Name string `json:"name" protobuf:"bytes,1,opt"`
}

// Empty reports whether no initializer is pending and none failed, so that initialization is
// complete (S11.38).
func (i *Initializers) Empty() bool { return len(i.Pending) == 0 && i.Result == nil }

// Leading returns the pending initializers whose turn it is: the first one and, if it is parallel,
// the parallel ones directly after it. The result shares memory with pending.
func Leading(pending []Initializer, parallel func(name string) bool) []Initializer {
	if len(pending) == 0 || !parallel(pending[0].Name) {
		return pending[:min(1, len(pending))]
	}
	n := 1
	for n < len(pending) && parallel(pending[n].Name) {
		n++
	}
	return pending[:n]
}

// Get returns the object's initializers; nil if it is initialized or has no metadata. It is an
// error if the object has the field but it cannot be parsed.
func Get(obj runtime.Object) (*Initializers, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if raw, found, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "initializers"); found && raw != nil {
			i, _, err := fromAny(raw)
			return i, err
		}
	}
	value, ok := carried(obj)
	if !ok {
		return nil, nil
	}
	i := &Initializers{}
	if err := json.Unmarshal([]byte(value), i); err != nil {
		return nil, fmt.Errorf("metadata.initializers: %w", err)
	}
	return i, nil
}

// Has reports whether the object has the field, without parsing it.
func Has(obj runtime.Object) bool {
	if u, ok := obj.(*unstructured.Unstructured); ok && Shows(u) {
		return true
	}
	_, ok := carried(obj)
	return ok
}

// Result returns the result set by an initializer of the object; nil if there is none. It parses
// the field only if there may be one.
func Result(obj runtime.Object) *metav1.Status {
	if value, ok := carried(obj); ok && !strings.Contains(value, `"result"`) {
		return nil
	}
	if i, err := Get(obj); err == nil && i != nil {
		return i.Result
	}
	return nil
}

// Shows reports whether the object has the field where users see it, rather than in the annotation.
func Shows(u *unstructured.Unstructured) bool {
	metadata, _ := u.Object["metadata"].(map[string]any)
	return metadata["initializers"] != nil
}

// Set writes the field: in metadata.initializers if an unstructured object has it there, and in the
// annotation of all other objects. Nil removes the field, also from the managedFields of its
// owners. Set panics on an object without metadata, because such an object cannot be initialized.
func Set(obj runtime.Object, i *Initializers) {
	if u, ok := obj.(*unstructured.Unstructured); ok && Shows(u) {
		setUnstructured(u, i)
		return
	}
	m := obj.(metav1.Object)
	annotations := m.GetAnnotations()
	if i == nil {
		if _, ok := annotations[Annotation]; ok {
			m.SetAnnotations(without(annotations))
			disown(m)
		}
		return
	}
	value, err := json.Marshal(i)
	if err != nil {
		panic(fmt.Sprintf("initializers cannot be encoded: %v", err))
	}
	// Objects may share their maps with a cache.
	next := make(map[string]string, len(annotations)+1)
	maps.Copy(next, annotations)
	next[Annotation] = string(value)
	m.SetAnnotations(next)
}

// Give sets the pending initializers of an object, in order, and adds their finalizers (S11.16,
// S11.54). Give panics on an object without metadata.
func Give(obj runtime.Object, list []*registration.Entry) {
	field := &Initializers{Pending: make([]Initializer, len(list))}
	m := obj.(metav1.Object)
	finalizers := slices.Clip(m.GetFinalizers())
	for i, e := range list {
		field.Pending[i].Name = e.Name
		if e.Initializer == nil || e.Initializer.Finalizer == "" {
			continue
		}
		field.Paired = append(field.Paired, Pair{Name: e.Name, Finalizer: e.Initializer.Finalizer})
		if !slices.Contains(finalizers, e.Initializer.Finalizer) {
			finalizers = append(finalizers, e.Initializer.Finalizer)
		}
	}
	if len(field.Paired) > 0 {
		m.SetFinalizers(finalizers)
	}
	Set(obj, field)
}

// Expose moves the field from the annotation to metadata.initializers, in the content of an
// unstructured object. It modifies content, unless the annotation is absent.
func Expose(content map[string]any) error {
	metadata, _ := content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	value, ok := annotations[Annotation].(string)
	if !ok {
		return nil
	}
	var field map[string]any
	if err := json.Unmarshal([]byte(value), &field); err != nil {
		return fmt.Errorf("metadata.initializers: %w", err)
	}
	delete(annotations, Annotation)
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	metadata["initializers"] = field
	return nil
}

// Hide is the inverse of Expose. It checks the field's types and returns an error if they are
// wrong; unknown lists the unknown fields below metadata.initializers.
func Hide(content map[string]any) (unknown []string, err error) {
	metadata, _ := content["metadata"].(map[string]any)
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		if _, reserved := annotations[Annotation]; reserved {
			return nil, fmt.Errorf("metadata.annotations[%s] is reserved: write metadata.initializers instead", Annotation)
		}
	}
	raw, ok := metadata["initializers"]
	if !ok {
		return nil, nil
	}
	delete(metadata, "initializers")
	if raw == nil {
		return nil, nil
	}
	i, unknown, err := fromAny(raw)
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(i)
	if err != nil {
		return nil, fmt.Errorf("metadata.initializers: %w", err)
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[Annotation] = string(value)
	return unknown, nil
}

func carried(obj runtime.Object) (string, bool) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		// The accessor of unstructured objects copies the whole map.
		metadata, _ := u.Object["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		value, ok := annotations[Annotation].(string)
		return value, ok
	}
	m, ok := obj.(metav1.Object)
	if !ok {
		accessor, isAccessor := obj.(metav1.ObjectMetaAccessor)
		if !isAccessor {
			return "", false
		}
		if m = accessor.GetObjectMeta(); m == nil {
			return "", false
		}
	}
	value, ok := m.GetAnnotations()[Annotation]
	return value, ok
}

func setUnstructured(u *unstructured.Unstructured, i *Initializers) {
	if i == nil {
		unstructured.RemoveNestedField(u.Object, "metadata", "initializers")
		disown(u)
		return
	}
	field, err := runtime.DefaultUnstructuredConverter.ToUnstructured(i)
	if err != nil {
		panic(fmt.Sprintf("initializers cannot be encoded: %v", err))
	}
	metadata, _ := u.Object["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		u.Object["metadata"] = metadata
	}
	metadata["initializers"] = field
}

func without(annotations map[string]string) map[string]string {
	if len(annotations) == 1 {
		return nil
	}
	// Objects may share their maps with a cache.
	next := maps.Clone(annotations)
	delete(next, Annotation)
	return next
}

// fromAny parses the field. unknown lists the unknown fields directly below metadata.initializers.
// The type Status checks the fields of result.
func fromAny(raw any) (i *Initializers, unknown []string, err error) {
	field, ok := raw.(map[string]any)
	if !ok {
		return nil, nil, fmt.Errorf("metadata.initializers: expected an object, got %T", raw)
	}
	i = &Initializers{}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(field, i, true)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, e := range strict.Errors() {
			unknown = append(unknown, e.Error())
		}
		err = nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("metadata.initializers: %w", err)
	}
	return i, unknown, nil
}
