// Package review implements the AdmissionReview wire formats v1, v1beta1 and v1alpha1. It
// encodes reviews, decodes the answers of webhooks, and applies their patches to objects.
//
// # Requests
//
// A [Request] describes the API request, and a [Payload] has the objects, encoded once.
// [NewBody] joins them into a [Body], which any number of calls may read at the same time: they
// share its bytes and differ in the uid only.
//
// # Responses
//
// [Decode] turns an HTTP answer into a [Response], which no longer depends on the
// version it came in, or says what is wrong with the answer. [Denial] makes the
// API status of a refusal.
//
// # Patches
//
// [DecodePatch] reads a JSON patch (RFC 6902). It applies to JSON text or to the
// content of an unstructured object; the latter copies only what the patch
// touches, so its cost depends on the patch and not on the object.
//
// # Concurrency
//
// Everything here is safe for concurrent use except the reader of a [Body], which belongs to
// one call.
package review
