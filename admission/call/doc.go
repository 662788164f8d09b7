// Package call reaches one webhook: it finds the address, authenticates both sides by
// TLS and credentials, sends a review, and returns the checked answer or the reason why
// there is none.
//
// # In and out
//
// [New] makes a [Caller] from [Options]. [Caller.Call] sends one review to one
// hook and returns either a *review.Response, which may be a denial, or an
// *[Error], the one type for all failures of a webhook. Package dispatch decides whether
// such an error rejects the API request; [Error.Status] is the text of the rejection.
//
// [Caller.Post] is for webhooks that are not admission webhooks. It sends any body in the same
// way as Call, and the caller reads the answer. Its error is a [*Failure], the part of an Error
// that says nothing about admission.
//
// # Addresses
//
// A hook names a URL or a service. Services are turned into endpoints by a
// [Resolver] for every call; [ServiceResolver] does so from Service, EndpointSlice
// and Endpoints objects. When a Caller cannot connect to an endpoint, it tries the next
// one. It sends each review at most once, and does not follow redirects.
//
// # Connections
//
// Hooks with the same address, CA bundle and credentials share connections,
// whatever their names and paths. The least recently used targets are dropped, and
// their connections with them, once there are more than 200.
//
// # Webhook servers that are down or slow
//
// After five failed attempts in a row to connect to a server, a Caller does not call it until
// it answers again. One call at a time tries it, after a second at first and ten seconds at
// most, or at once when its endpoints have changed (type [Breaker]). Of the calls to one
// server, at most Options.MaxInFlight run at the same time; further ones wait for a slot, the
// one with the earliest deadline first, and a call fails immediately if it cannot meet its
// deadline. [Caller.Targets] returns the state of each server.
//
// # Concurrency
//
// A Caller, Credentials and resolvers are safe for concurrent use. A Caller keeps a connection
// open until it has been idle for 90 s; [Caller.Close] closes idle connections at once.
package call
