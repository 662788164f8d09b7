// Package objects holds the objects of one request while admission looks at them and changes
// them: the object as it is now, and the stored one, in every kind that a hook or policy uses.
//
// A Set converts the objects once per kind and encodes them once per kind, however many hooks
// want them, until the object changes (S5.3, S6.5). It applies patches (S5.4 to S5.12), and
// brings the request's own object up to date (S5.11). Package plan gets the objects for match
// conditions from the Set, and package dispatch those for reviews, so both use the same object.
//
// # Initializers
//
// Typed objects carry metadata.initializers in an annotation. Seen and Encode show the
// field where users see it, and Apply puts it back.
//
// # Concurrency
//
// A Set belongs to one request and is for one goroutine. The bytes and reviews that it
// handed out do not change.
package objects
