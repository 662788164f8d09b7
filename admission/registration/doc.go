// Package registration is the API of webhook configurations, initializers, policies and bindings:
// its kinds, their defaults and validation, and a common model of all versions. It calls the
// objects registrations.
//
// # Kinds
//
// The group admissionregistration.k8s.io has four kinds of webhooks and initializers, and four
// kinds of policies and their bindings. MutatingWebhookConfiguration and
// ValidatingWebhookConfiguration are served as v1 and v1beta1, with the types of k8s.io/api.
// InitializerConfiguration and ExternalAdmissionHookConfiguration are served as v1alpha1, with the
// types of the subpackage. AddToScheme adds all of them to a scheme, and FromContent converts
// decoded JSON or YAML to typed objects.
//
// # For the server that stores registrations
//
// A write goes through Default (in the version that the client wrote), Validate or ValidateUpdate,
// and Warnings. SpecChanged reports whether metadata.generation grows, and Convert converts between
// versions. All of them are pure functions; errors have the paths and the texts of Kubernetes.
//
// # For the engine
//
// Entries turns a stored object of any version into Entry values. They are complete: their readers
// need not know versions and defaults.
package registration
