// Package v1alpha1 has the kinds of admissionregistration.k8s.io/v1alpha1 that
// register initializers and external admission hooks.
//
// Upstream dropped both kinds; they are defined here so that clients written for them go on
// working. Defaults and validation are in the parent package, registration. AddToScheme makes
// the kinds known to a scheme. They can be written and read in protobuf, with the field numbers
// they had upstream.
//
// Source: Dynamic Admission Control Configuration, "Specification" (S1.25 to S1.35).
package v1alpha1
