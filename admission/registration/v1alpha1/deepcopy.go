package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
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
func (in *InitializerConfiguration) DeepCopy() *InitializerConfiguration {
	if in == nil {
		return nil
	}
	out := new(InitializerConfiguration)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyInto copies into out, which then shares nothing with the original.
func (in *InitializerConfiguration) DeepCopyInto(out *InitializerConfiguration) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Initializers = copyEach(in.Initializers, (*Initializer).DeepCopyInto)
}

// DeepCopy returns a copy that shares nothing with the original.
func (in *InitializerConfigurationList) DeepCopy() *InitializerConfigurationList {
	if in == nil {
		return nil
	}
	out := new(InitializerConfigurationList)
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = copyEach(in.Items, (*InitializerConfiguration).DeepCopyInto)
	return out
}

// DeepCopyInto copies into out, which then shares nothing with the original.
func (in *Initializer) DeepCopyInto(out *Initializer) {
	*out = *in
	out.Rules = copyEach(in.Rules, (*Rule).DeepCopyInto)
	out.FailurePolicy = copyPointer(in.FailurePolicy)
	out.After = slices.Clone(in.After)
	out.Before = slices.Clone(in.Before)
}

// DeepCopyInto copies into out, which then shares nothing with the original.
func (in *Rule) DeepCopyInto(out *Rule) {
	out.APIGroups = slices.Clone(in.APIGroups)
	out.APIVersions = slices.Clone(in.APIVersions)
	out.Resources = slices.Clone(in.Resources)
}

// DeepCopy returns a copy that shares nothing with the original.
func (in *ExternalAdmissionHookConfiguration) DeepCopy() *ExternalAdmissionHookConfiguration {
	if in == nil {
		return nil
	}
	out := new(ExternalAdmissionHookConfiguration)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyInto copies into out, which then shares nothing with the original.
func (in *ExternalAdmissionHookConfiguration) DeepCopyInto(out *ExternalAdmissionHookConfiguration) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.ExternalAdmissionHooks = copyEach(in.ExternalAdmissionHooks, (*ExternalAdmissionHook).DeepCopyInto)
}

// DeepCopy returns a copy that shares nothing with the original.
func (in *ExternalAdmissionHookConfigurationList) DeepCopy() *ExternalAdmissionHookConfigurationList {
	if in == nil {
		return nil
	}
	out := new(ExternalAdmissionHookConfigurationList)
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = copyEach(in.Items, (*ExternalAdmissionHookConfiguration).DeepCopyInto)
	return out
}

// DeepCopyInto copies into out, which then shares nothing with the original.
func (in *ExternalAdmissionHook) DeepCopyInto(out *ExternalAdmissionHook) {
	*out = *in
	out.ClientConfig.URLPath = copyPointer(in.ClientConfig.URLPath)
	out.ClientConfig.CABundle = slices.Clone(in.ClientConfig.CABundle)
	out.Rules = copyEach(in.Rules, (*RuleWithOperations).DeepCopyInto)
	out.FailurePolicy = copyPointer(in.FailurePolicy)
	out.NamespaceSelector = in.NamespaceSelector.DeepCopy()
}

// DeepCopyInto copies into out, which then shares nothing with the original.
func (in *RuleWithOperations) DeepCopyInto(out *RuleWithOperations) {
	out.Operations = slices.Clone(in.Operations)
	out.Verbs = slices.Clone(in.Verbs)
	in.Rule.DeepCopyInto(&out.Rule)
}

func copyEach[T any](in []T, into func(in, out *T)) []T {
	if in == nil {
		return nil
	}
	out := make([]T, len(in))
	for i := range in {
		into(&in[i], &out[i])
	}
	return out
}

func copyPointer[T any](in *T) *T {
	if in == nil {
		return nil
	}
	out := *in
	return &out
}
