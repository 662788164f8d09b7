// Package prediction checks that admission does what was explained.
//
// A World is what a seed makes: webhook configurations, stored objects, requests, and how
// each webhook answers. A Session plays worlds on a server: it registers the webhooks, has
// each request explained in several ways, makes the request, and compares what the
// webhooks of a Recorder received with what each explanation said. The server may be any
// that has the API of Kubernetes.
//
// # What is compared
//
// An explanation cannot know what webhooks answer. Expect therefore follows the steps of a
// plan with the answers of the World, and says which reviews have to be sent and whether
// the request is rejected. A review that was sent and not expected is a difference, and so
// is one that was expected and not sent, one in another order, about another kind or in
// another version, and a request with another verdict.
//
// # Concurrency
//
// A World never changes. A Session plays one World at a time. A Recorder is safe for
// concurrent use.
package prediction
