package v1alpha1

import "github.com/gatehouse-dev/gatehouse/internal/engine/wire"

// The kinds in protobuf. The tags of the fields have their numbers: numbers below 1000 are the same
// as in Kubernetes 1.7 to 1.9, and numbers from 1000 on belong to fields that Kubernetes did not
// have. The serializers of k8s.io/apimachinery call Marshal and Unmarshal.

// Marshal returns the object in protobuf.
func (in *InitializerConfiguration) Marshal() ([]byte, error) { return wire.Marshal(in) }

// Marshal returns the list in protobuf.
func (in *InitializerConfigurationList) Marshal() ([]byte, error) { return wire.Marshal(in) }

// Marshal returns the object in protobuf.
func (in *ExternalAdmissionHookConfiguration) Marshal() ([]byte, error) { return wire.Marshal(in) }

// Marshal returns the list in protobuf.
func (in *ExternalAdmissionHookConfigurationList) Marshal() ([]byte, error) { return wire.Marshal(in) }

// Unmarshal decodes protobuf data into the object without resetting it.
func (in *InitializerConfiguration) Unmarshal(data []byte) error { return wire.Unmarshal(data, in) }

// Unmarshal decodes protobuf data into the list without resetting it.
func (in *InitializerConfigurationList) Unmarshal(data []byte) error { return wire.Unmarshal(data, in) }

// Unmarshal decodes protobuf data into the object without resetting it.
func (in *ExternalAdmissionHookConfiguration) Unmarshal(data []byte) error {
	return wire.Unmarshal(data, in)
}

// Unmarshal decodes protobuf data into the list without resetting it.
func (in *ExternalAdmissionHookConfigurationList) Unmarshal(data []byte) error {
	return wire.Unmarshal(data, in)
}

// Reset empties the object.
func (in *InitializerConfiguration) Reset() { *in = InitializerConfiguration{} }

// Reset empties the list.
func (in *InitializerConfigurationList) Reset() { *in = InitializerConfigurationList{} }

// Reset empties the object.
func (in *ExternalAdmissionHookConfiguration) Reset() { *in = ExternalAdmissionHookConfiguration{} }

// Reset empties the list.
func (in *ExternalAdmissionHookConfigurationList) Reset() {
	*in = ExternalAdmissionHookConfigurationList{}
}
