package resources

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
)

// ownFields keeps k8s.io/apiserver from decoding managed fields that admission has left as they were.
// k8s.io/apiserver checks the managed fields after the mutating pass by decoding all of them; fields
// that it has encoded itself just before are valid. ownFields takes such fields out of the object after
// the pass, and puts them back after the check. It is for one call, whose steps follow each other.
type ownFields struct {
	admission.Interface
	// fields were removed from the object taken.
	fields []metav1.ManagedFieldsEntry
	taken  metav1.Object
	// updated is set when k8s.io/apiserver has tried to update the object. If the object was too large, it
	// tries again, without the fields.
	updated bool
}

var (
	_ admission.MutationInterface   = &ownFields{}
	_ admission.ValidationInterface = &ownFields{}
)

// Admit implements admission.MutationInterface.
func (o *ownFields) Admit(ctx context.Context, a admission.Attributes, i admission.ObjectInterfaces) error {
	chain, ok := o.Interface.(admission.MutationInterface)
	if !ok {
		return nil
	}
	object, before := managedFields(a.GetObject())
	before = slices.Clone(before)
	if err := chain.Admit(ctx, a, i); err != nil || len(before) == 0 || o.updated {
		return err
	}
	// If the fields are the stored ones, k8s.io/apiserver has encoded nothing.
	_, old := managedFields(a.GetOldObject())
	if after := object.GetManagedFields(); slices.Equal(before, after) && !slices.Equal(before, old) {
		o.fields, o.taken = after, object
		object.SetManagedFields(nil)
	}
	return nil
}

// managedFields returns an object and its managed fields; none for an object whose fields are decoded
// on each read.
func managedFields(obj runtime.Object) (metav1.Object, []metav1.ManagedFieldsEntry) {
	if _, ok := obj.(runtime.Unstructured); ok || obj == nil {
		return nil, nil
	}
	object, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil
	}
	return object, object.GetManagedFields()
}

// Validate implements admission.ValidationInterface.
func (o *ownFields) Validate(ctx context.Context, a admission.Attributes, i admission.ObjectInterfaces) error {
	if chain, ok := o.Interface.(admission.ValidationInterface); ok {
		return chain.Validate(ctx, a, i)
	}
	return nil
}

// putBack restores the fields that were removed.
func (o *ownFields) putBack() {
	if o.taken != nil {
		o.taken.SetManagedFields(o.fields)
		o.taken, o.fields = nil, nil
	}
}

// completeUpdate is an update whose objects get their managed fields back.
type completeUpdate struct {
	rest.UpdatedObjectInfo
	own *ownFields
}

func (u completeUpdate) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	obj, err := u.UpdatedObjectInfo.UpdatedObject(ctx, old)
	u.own.putBack()
	return obj, err
}
