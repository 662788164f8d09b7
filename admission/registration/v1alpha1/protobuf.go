package v1alpha1

import "github.com/gatehouse-dev/gatehouse/internal/engine/wire"

// The kinds in protobuf. Field numbers are in the tags of the fields: numbers below 1000 are
// those of Kubernetes 1.7 to 1.9, and numbers from 1000 on belong to fields that Kubernetes did
// not have. The serializers of the library call Marshal and Unmarshal.

// Marshal returns the object in protobuf.
func (in *InitializerConfiguration) Marshal() ([]byte, error) { return wire.Marshal(in) }

// Marshal returns the list in protobuf.
func (in *InitializerConfigurationList) Marshal() ([]byte, error) { return wire.Marshal(in) }

// Marshal returns the object in protobuf.
func (in *ExternalAdmissionHookConfiguration) Marshal() ([]byte, error) { return wire.Marshal(in) }

// Marshal returns the list in protobuf.
func (in *ExternalAdmissionHookConfigurationList) Marshal() ([]byte, error) { return wire.Marshal(in) }

// Unmarshal adds the fields in data, which is protobuf, to the object.
func (in *InitializerConfiguration) Unmarshal(data []byte) error { return wire.Unmarshal(data, in) }

// Unmarshal adds the fields in data, which is protobuf, to the list.
func (in *InitializerConfigurationList) Unmarshal(data []byte) error { return wire.Unmarshal(data, in) }

// Unmarshal adds the fields in data, which is protobuf, to the object.
func (in *ExternalAdmissionHookConfiguration) Unmarshal(data []byte) error {
	return wire.Unmarshal(data, in)
}

// Unmarshal adds the fields in data, which is protobuf, to the list.
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
