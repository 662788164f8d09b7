package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/internal/engine/deepcopy"
)

// DeepCopyObject implements runtime.Object.
func (in *InitializerConfiguration) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (in *InitializerConfigurationList) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (in *ExternalAdmissionHookConfiguration) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyObject implements runtime.Object.
func (in *ExternalAdmissionHookConfigurationList) DeepCopyObject() runtime.Object {
	return in.DeepCopy()
}

// DeepCopy returns a copy that shares nothing with the original.
func (in *InitializerConfiguration) DeepCopy() *InitializerConfiguration { return deepcopy.Of(in) }

// DeepCopy returns a copy that shares nothing with the original.
func (in *InitializerConfigurationList) DeepCopy() *InitializerConfigurationList {
	return deepcopy.Of(in)
}

// DeepCopy returns a copy that shares nothing with the original.
func (in *ExternalAdmissionHookConfiguration) DeepCopy() *ExternalAdmissionHookConfiguration {
	return deepcopy.Of(in)
}

// DeepCopy returns a copy that shares nothing with the original.
func (in *ExternalAdmissionHookConfigurationList) DeepCopy() *ExternalAdmissionHookConfigurationList {
	return deepcopy.Of(in)
}

// DeepCopyInto copies into out, which then shares nothing with the original.
func (in *InitializerConfiguration) DeepCopyInto(out *InitializerConfiguration) {
	deepcopy.Into(in, out)
}

// DeepCopyInto copies into out, which then shares nothing with the original.
func (in *Initializer) DeepCopyInto(out *Initializer) { deepcopy.Into(in, out) }

// DeepCopyInto copies into out, which then shares nothing with the original.
func (in *Rule) DeepCopyInto(out *Rule) { deepcopy.Into(in, out) }

// DeepCopyInto copies into out, which then shares nothing with the original.
func (in *ExternalAdmissionHookConfiguration) DeepCopyInto(out *ExternalAdmissionHookConfiguration) {
	deepcopy.Into(in, out)
}

// DeepCopyInto copies into out, which then shares nothing with the original.
func (in *ExternalAdmissionHook) DeepCopyInto(out *ExternalAdmissionHook) { deepcopy.Into(in, out) }

// DeepCopyInto copies into out, which then shares nothing with the original.
func (in *RuleWithOperations) DeepCopyInto(out *RuleWithOperations) { deepcopy.Into(in, out) }
