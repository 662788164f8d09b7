// Package mutation converts the values of the expressions of mutating policies to changes, and
// merges apply configurations into objects.
//
// An expression of type ApplyConfiguration returns an Object: fields that are merged into the
// request's object by the schema of its kind, as in server-side apply (S18.11 to S18.16). An
// expression of type JSONPatch returns a list of operations (S18.17 to S18.21). NewChange converts
// either to a Change.
//
//	expression --(CEL)--> value --NewChange--> Change --(package objects)--> object
//
// Package review applies JSON patches, as for webhooks. Merge applies apply configurations.
//
// # Schemas
//
// Merge needs the schema of the object's kind. The host of the engine provides it: see Schemas. The
// package keeps none.
//
// # Errors
//
// Every error is an error of one mutation: the policy's failurePolicy decides whether the request
// continues (S18.24). The texts are the same as in k8s.io/apiserver.
//
// # Concurrency
//
// A Change is immutable. All functions are safe for concurrent use.
package mutation
