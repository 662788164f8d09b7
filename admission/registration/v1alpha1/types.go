package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InitializerConfiguration describes the configuration of initializers. The
// initializers of all configurations form one order: configurations by name,
// and in each of them by position.
type InitializerConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// Initializers is a list of resources and their initializers, in order.
	Initializers []Initializer `json:"initializers,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,2,rep,name=initializers"`
}

// InitializerConfigurationList is a list of InitializerConfiguration.
type InitializerConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// Items are the configurations.
	Items []InitializerConfiguration `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// Initializer describes the name and the failure policy of an initializer, and
// what resources it applies to.
type Initializer struct {
	// Name is the identifier of the initializer. It is added to the pending
	// initializers of an object that is created. It is a domain name with at least
	// three segments, such as podimage.example.com.
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// Rules describe what resources the initializer cares about. The initializer
	// cares about an object if it matches any rule.
	Rules []Rule `json:"rules,omitempty" protobuf:"bytes,2,rep,name=rules"`

	// FailurePolicy defines what happens when the initializer does not act in time.
	// Ignore removes it from the pending initializers. Fail leaves the object
	// uninitialized. It may be Fail only for an initializer that was created with
	// Ignore before. Defaults to Ignore.
	FailurePolicy *FailurePolicyType `json:"failurePolicy,omitempty" protobuf:"bytes,3,opt,name=failurePolicy"`

	// After names initializers that act before this one, when they apply to the
	// same object. Names that are not registered are ignored.
	After []string `json:"after,omitempty" protobuf:"bytes,1000,rep,name=after"`

	// Before names initializers that act after this one, when they apply to the
	// same object. Names that are not registered are ignored.
	Before []string `json:"before,omitempty" protobuf:"bytes,1001,rep,name=before"`

	// Parallel reports whether the initializer may act at the same time as those next to
	// it in the order that say the same.
	Parallel bool `json:"parallel,omitempty" protobuf:"varint,1002,opt,name=parallel"`

	// Finalizer is a finalizer of the initializer's own, of the form
	// example.com/name. An object that gets the initializer gets the finalizer, too.
	// When the initialization of the object fails or the object is deleted, the
	// object stays until an initializer that has acted has removed its finalizer.
	Finalizer string `json:"finalizer,omitempty" protobuf:"bytes,1003,opt,name=finalizer"`
}

// Rule is a tuple of API groups, versions and resources. It matches the product of
// the three lists.
type Rule struct {
	// APIGroups is the API groups the resources belong to. '*' is all groups; if it
	// is present, the length of the list must be one. Required.
	APIGroups []string `json:"apiGroups,omitempty" protobuf:"bytes,1,rep,name=apiGroups"`

	// APIVersions is the API versions the resources belong to. '*' is all versions;
	// if it is present, the length of the list must be one. Required.
	APIVersions []string `json:"apiVersions,omitempty" protobuf:"bytes,2,rep,name=apiVersions"`

	// Resources is a list of resources this rule applies to: 'pods' means pods,
	// 'pods/log' the log subresource of pods, '*' all resources but not
	// subresources, 'pods/*' all subresources of pods, '*/scale' all scale
	// subresources, '*/*' all resources and their subresources. Initializers do not
	// act on subresources. Required.
	Resources []string `json:"resources,omitempty" protobuf:"bytes,3,rep,name=resources"`
}

// FailurePolicyType is the policy for a request when a webhook fails, or for an object when
// an initializer does not act in time.
type FailurePolicyType string

const (
	// Ignore lets the request go on.
	Ignore FailurePolicyType = "Ignore"
	// Fail rejects the request, or leaves the object uninitialized.
	Fail FailurePolicyType = "Fail"
)

// ExternalAdmissionHookConfiguration describes the configuration of external
// admission hooks.
type ExternalAdmissionHookConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// ExternalAdmissionHooks is a list of external admission webhooks and the
	// resources and operations they are interested in.
	ExternalAdmissionHooks []ExternalAdmissionHook `json:"externalAdmissionHooks,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,2,rep,name=externalAdmissionHooks"`
}

// ExternalAdmissionHookConfigurationList is a list of
// ExternalAdmissionHookConfiguration.
type ExternalAdmissionHookConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// Items are the configurations.
	Items []ExternalAdmissionHookConfiguration `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// ExternalAdmissionHook describes an external admission webhook and the resources
// and operations it is interested in.
type ExternalAdmissionHook struct {
	// Name is the name of the external admission webhook. It is a domain name with
	// at least three segments, such as imagepolicy.example.com.
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// ClientConfig defines how to talk to the webhook. Required.
	ClientConfig AdmissionHookClientConfig `json:"clientConfig" protobuf:"bytes,2,opt,name=clientConfig"`

	// Rules describe what operations on what resources the webhook cares about. The
	// webhook cares about an operation if it matches any rule.
	Rules []RuleWithOperations `json:"rules,omitempty" protobuf:"bytes,3,rep,name=rules"`

	// FailurePolicy defines how unrecognized errors from the webhook are handled.
	// It may be Fail only for a webhook that was created with Ignore before.
	// Defaults to Ignore.
	FailurePolicy *FailurePolicyType `json:"failurePolicy,omitempty" protobuf:"bytes,4,opt,name=failurePolicy"`

	// NamespaceSelector decides by the labels of an object's namespace whether the
	// webhook is asked about the object. A Namespace is selected by its own labels;
	// other objects without a namespace are always selected. Defaults to the empty
	// selector, which selects everything.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty" protobuf:"bytes,5,opt,name=namespaceSelector"`
}

// RuleWithOperations is a tuple of operations and resources. All combinations
// match.
type RuleWithOperations struct {
	// Operations is the operations the webhook cares about: CREATE, UPDATE, DELETE,
	// CONNECT, or '*' for all of them. If '*' is present, the length of the list
	// must be one. Required.
	Operations []OperationType `json:"operations,omitempty" protobuf:"bytes,1,rep,name=operations"`

	// Verbs is another name of operations, for writing only: it is stored, and read, as
	// operations. Only one of the two may be present.
	Verbs []OperationType `json:"verbs,omitempty" protobuf:"bytes,1000,rep,name=verbs"`

	// Rule is embedded; it says which resources.
	Rule `json:",inline" protobuf:"bytes,2,opt,name=rule"`
}

// OperationType is an operation on a resource.
type OperationType string

const (
	// OperationAll is every operation.
	OperationAll OperationType = "*"
	// Create is the creation of an object.
	Create OperationType = "CREATE"
	// Update is the change of an object.
	Update OperationType = "UPDATE"
	// Delete is the deletion of an object.
	Delete OperationType = "DELETE"
	// Connect is a connection to an object, such as exec.
	Connect OperationType = "CONNECT"
)

// AdmissionHookClientConfig says how to make a TLS connection with a webhook.
type AdmissionHookClientConfig struct {
	// Service is a reference to the service of the webhook. If the service has one
	// port, that port is used; if it has several, port 443. Required.
	Service ServiceReference `json:"service" protobuf:"bytes,1,opt,name=service"`

	// URLPath is the path the webhook is at. Defaults to /.
	URLPath *string `json:"urlPath,omitempty" protobuf:"bytes,1000,opt,name=urlPath"`

	// CABundle is a PEM encoded CA bundle which is used to validate the webhook's
	// server certificate. Required.
	CABundle []byte `json:"caBundle" protobuf:"bytes,2,opt,name=caBundle"`
}

// ServiceReference holds a reference to a Service object.
type ServiceReference struct {
	// Namespace is the namespace of the service. Required.
	Namespace string `json:"namespace" protobuf:"bytes,1,opt,name=namespace"`
	// Name is the name of the service. Required.
	Name string `json:"name" protobuf:"bytes,2,opt,name=name"`
}
