// Package v1alpha1 has the kinds of admissionregistration.k8s.io/v1alpha1 for initializers and
// external admission hooks.
//
// Kubernetes dropped both kinds; this package defines them so that clients written for them
// continue to work. Defaults and validation are in the parent package, registration. AddToScheme
// adds the kinds to a scheme. They can be encoded in protobuf, with the field numbers of
// Kubernetes.
//
// Source: Dynamic Admission Control Configuration, "Specification" (S1.25 to S1.35).
package v1alpha1
