// Package mutation turns the values of the expressions of mutating policies into changes, and
// merges apply configurations into objects.
//
// An expression of type ApplyConfiguration gives an Object: some fields that are merged into
// the request's object by the schema of its kind, as server-side apply does (S18.11 to S18.16).
// One of type JSONPatch gives a list of operations (S18.17 to S18.21). NewChange makes a Change
// of either.
//
//	expression --(CEL)--> value --NewChange--> Change --(package objects)--> object
//
// Package review applies JSON patches, as it does for webhooks. Merge is for apply
// configurations.
//
// # Schemas
//
// Merge needs the schema of the object's kind. The host of the engine provides it: see Schemas. The
// package keeps none.
//
// # Errors
//
// Every error is an error of one mutation: the policy's failurePolicy decides whether the
// request goes on (S18.24). The texts are upstream's.
//
// # Concurrency
//
// A Change is immutable. All functions are safe for concurrent use.
package mutation
