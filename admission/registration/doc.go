// Package registration is the registration API: its kinds, their defaults and
// validation, and the one model that every version of them becomes.
//
// # Kinds
//
// The group admissionregistration.k8s.io has four kinds of webhooks and initializers, and four
// kinds of policies and their bindings. MutatingWebhookConfiguration and
// ValidatingWebhookConfiguration are served as v1 and v1beta1, with the types of k8s.io/api.
// InitializerConfiguration and ExternalAdmissionHookConfiguration are served as v1alpha1, with
// the types of the subpackage. AddToScheme makes all of them known to a scheme, and FromContent
// makes typed objects of decoded JSON or YAML.
//
// # For the server that stores registrations
//
// A write goes through Default (in the version the client wrote), Validate or
// ValidateUpdate, and Warnings. SpecChanged says whether metadata.generation grows, Convert turns
// one version into the other. All of them are pure functions; errors have the
// paths and the texts of Kubernetes' own.
//
// # For the engine
//
// Entries turns a stored object of any version into Entry values. They are complete: code
// that reads them need not know versions and defaults.
package registration
