// Package registrations serves the kinds that configure admission: webhook configurations in v1 and
// v1beta1, initializer and external hook configurations in v1alpha1.
//
// These kinds are our own from end to end: package admission/registration has their defaults and
// their validation, and this package serves them by the same handlers as every other kind. Objects
// have the form of v1 (v1alpha1 for its two kinds) in memory and in etcd; an object in v1beta1 gets
// the defaults of v1beta1 and is then converted field by field (S1.2).
//
// A Hold delays the response to a write until this server enforces the new registration.
package registrations
