// Package prediction checks that admission does what explanations predict.
//
// A World is generated from a seed: webhook configurations, stored objects, requests, and the answer of each
// webhook. A Session plays worlds on a server: it registers the webhooks, has each request explained in
// several ways, sends the request, and compares the reviews received by a Recorder with each explanation. The
// server may be any server with the API of Kubernetes.
//
// # Comparison
//
// An explanation cannot know the answers of webhooks. Expect therefore follows the steps of a plan with the
// answers of the World, and returns the reviews that must be sent and whether the request is rejected. Each
// of these is a difference: an unexpected review, a missing review, a review in another order, about another
// kind or in another version, and a request with another verdict.
//
// # Concurrency
//
// A World never changes. A Session plays one World at a time. A Recorder is safe for concurrent use.
package prediction
