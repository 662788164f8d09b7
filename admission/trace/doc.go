// Package trace records what happened when hooks were called for a request.
//
// A Trace covers one pass of one webhook plugin over one request: which hooks
// were called, in which order, what each answered, and what the failure policy
// made of those that could not be asked. It is plain data. The package dispatch
// writes it while it runs a plan, and hands it to a Publisher when the pass is over.
//
// # Readers
//
// Everything anybody can observe of webhook calls is read from the Trace, by one
// function per reader, and nothing else counts or logs a call:
//
//   - metrics (S10) under the names that dashboards for Kubernetes
//     already use;
//   - audit annotations (S5.25 to S5.27, S6.7, S12.18, S4.17);
//   - warnings to the client (S4.18, S4.19);
//   - the log, where failures appear that the failure policy forgave, at every
//     verbosity, a webhook's at most once a second with the count of those left
//     out; a failure that rejects the request is returned instead, and not logged;
//   - the request's latency trackers (S10.7);
//   - an OpenTelemetry span per call, which StartSpan opens when the call begins,
//     since its context travels with the call.
//
// # Concurrency
//
// A Trace has one writer. Calls that run at the same time write to elements of
// Calls of their own. After Publish a Trace is read only and may be shared.
package trace
