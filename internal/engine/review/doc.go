// Package review implements the AdmissionReview wire formats v1, v1beta1 and v1alpha1. It encodes
// reviews, decodes the answers of webhooks, and applies their patches to objects.
//
// # Requests
//
// A [Header] describes the API request, and a [Payload] has the objects, encoded once. [NewBody]
// joins them into a [Body], which any number of calls may read concurrently: they share its bytes
// and differ only in the uid.
//
// # Responses
//
// [Decode] converts an HTTP answer to a [Response], which is independent of its version, or returns
// an error. [Denial] returns the API status of a denial.
//
// # Patches
//
// [DecodePatch] decodes a JSON patch (RFC 6902). It applies to JSON text or to the content of an
// unstructured object; the latter copies only the parts that the patch changes, so its cost depends
// on the patch and not on the object.
//
// # Concurrency
//
// Everything here is safe for concurrent use except the reader of a [Body], which belongs to one
// call.
package review
