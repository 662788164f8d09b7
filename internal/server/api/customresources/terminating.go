package customresources

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/generic/registry"
)

func errTerminating(resource schema.GroupResource, name string) error {
	return apierrors.NewForbidden(resource, name, errors.New("create not allowed while custom resource definition is terminating"))
}

// beginCreate counts the creations that are about to be stored. It refuses new creations once the
// CRD terminates. When the gate is closed and empty, no object will be stored any more.
func beginCreate(creations *gate, resource schema.GroupResource) registry.BeginCreateFunc {
	return func(_ context.Context, obj runtime.Object, _ *metav1.CreateOptions) (registry.FinishFunc, error) {
		if !creations.enter() {
			name := ""
			if m, ok := obj.(metav1.Object); ok {
				name = m.GetName()
			}
			return nil, errTerminating(resource, name)
		}
		return func(context.Context, bool) { creations.leave() }, nil
	}
}

// refuseCreate refuses creations before admission runs, because admission may have side
// effects.
func refuseCreate(next admission.Interface, creations *gate) admission.Interface {
	return ahead(next, admission.Create, func(a admission.Attributes) error {
		if creations.closed() {
			return errTerminating(a.GetResource().GroupResource(), a.GetName())
		}
		return nil
	})
}
