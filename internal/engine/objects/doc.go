// Package objects holds the objects of one request during admission: the current object, and the
// stored one, in every kind that a webhook or policy uses.
//
// A Set converts the objects once per kind and encodes them once per kind, for any number of
// webhooks, until the object changes (S5.3, S6.5). It applies patches (S5.4 to S5.12), and updates
// the request's own object (S5.11). Package plan gets the objects for match conditions from the
// Set, and package dispatch the objects for reviews, so both use the same object.
//
// # Initializers
//
// Typed objects carry metadata.initializers in an annotation. Seen and Encode move it to the field
// that users see, and Apply moves it back.
//
// # Concurrency
//
// A Set belongs to one request and is for one goroutine. The bytes and reviews that it returned do
// not change.
package objects
