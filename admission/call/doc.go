// Package call calls webhooks: it finds the address, authenticates both sides by TLS and
// credentials, sends a review, and returns the checked answer or an error.
//
// # Input and output
//
// [New] returns a [Caller] for [Options]. [Caller.Call] sends one review to one webhook and returns
// either a *review.Response, which may be a denial, or an *[Error], the one type for all failures
// of a webhook. Package dispatch decides whether such an error rejects the API request;
// [Error.Status] is the text of the rejection.
//
// [Caller.Post] is for webhooks that are not admission webhooks. It sends any body in the same way
// as Call, and the caller reads the answer. Its error is a [*Failure], the part of an Error that is
// independent of admission.
//
// # Addresses
//
// A webhook has a URL or a service. A [Resolver] returns the endpoints of a service for every call;
// [ServiceResolver] uses Service, EndpointSlice and Endpoints objects. If a Caller cannot connect
// to an endpoint, it tries the next one. It sends each review at most once, and does not follow
// redirects.
//
// # Connections
//
// Webhooks with the same address, CA bundle and credentials share connections, whatever their names
// and paths. A Caller keeps 200 targets; it drops the least recently used ones and their
// connections.
//
// # Webhook servers that are down or slow
//
// After five failed attempts in a row to connect to a server, a Caller does not call it until it
// answers again. One call at a time tries it, after a second at first and at most ten seconds, or
// at once if its endpoints have changed (type [Breaker]). At most Options.MaxInFlight calls to one
// server run at the same time; further calls wait for a slot, the call with the earliest deadline
// first, and a call fails immediately if it cannot meet its deadline. [Caller.Targets] returns the
// state of each server.
//
// # Concurrency
//
// A Caller, Credentials and resolvers are safe for concurrent use. A Caller keeps a connection open
// until it has been idle for 90 s; [Caller.Close] closes idle connections at once.
package call
