// Package traces keeps the traces of the latest requests and serves them.
//
// A Ring holds traces, within a bound in bytes. It keeps traces in the form in which the engine
// wrote them, and makes records of them when a client reads them. So keeping a trace costs the
// request little. Traces of rejected requests, and of requests that were allowed although a webhook
// failed, are kept longer than the rest.
//
// Storage serves a Ring as the resource admissiontraces of gatehouse.dev. A trace is in the
// namespace of its request, so that readers of a namespace can be granted access to its traces.
// Traces of cluster-scoped requests are in no namespace, for readers of all traces.
//
// A Ring belongs to one server and ends with the server. Each server keeps the traces of the
// requests that it handled. When a client asks a server for a trace by its name and the server does
// not have the trace, it asks the other servers.
package traces
