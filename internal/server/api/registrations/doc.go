// Package registrations serves the kinds that configure admission: webhook
// configurations in v1 and v1beta1, initializer and external hook configurations
// in v1alpha1.
//
// They are our own from end to end: package admission/registration says what
// their defaults are and what is valid, and this package puts it behind the same
// handlers as every other kind. Objects have the form of v1 (v1alpha1 for its two
// kinds) in memory and in etcd; an object in v1beta1 gets the defaults of v1beta1
// and is then converted, one field for one field (S1.2).
//
// The answer to a write waits until a Hold lets it go: the server waits until it judges
// requests by the new registration.
package registrations
