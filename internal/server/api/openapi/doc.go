// Package openapi describes the fields of every kind: as models for server-side apply, and as the
// OpenAPI documents that clients read.
//
// # Definitions
//
// The schemas of built-in kinds are upstream's generated definitions, with metadata.initializers
// added (S11.1). Reflect describes the kinds without generated definitions, from their Go types.
// Models holds all definitions.
//
// # Documents
//
// A Handler serves OpenAPI v3, one document for each group version, and OpenAPI v2, one document
// for everything, which kubectl up to 1.9 finds at a path of its own. The paths and operations come
// from upstream's route installer, run over the storage of the same endpoints that serve the
// requests, so a document describes a kind as kube-apiserver's document does. Custom resources have
// documents of their own.
//
// A document is built when a client asks for it, and kept compressed. The uncompressed text is in
// memory only while a client reads it; the ETag stays. The list of v3 documents has the hash of
// each, so that all documents are built for the first client that reads the list, which takes some
// tenths of a second. Later clients do not wait for that.
//
// # Guarantees
//
// A URL with a hash always gives the document with that hash, and may be cached for ever; if the
// document has changed since, the answer is a redirect to the current one, which may not be cached.
// A document that cannot be built, because of a broken CRD, is missing from the list and does not
// affect the others.
package openapi
