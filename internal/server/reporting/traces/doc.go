// Package traces keeps the traces of the latest requests and serves them.
//
// A Ring holds traces, within a bound in bytes. It keeps what the engine wrote, and makes
// records of it when a client reads them, so that keeping a trace costs the request
// little. Traces of rejected requests, and of those that went on although a webhook
// failed, are kept longer than the rest.
//
// Storage serves a Ring as the resource admissiontraces of gatehouse.dev. A trace is in
// the namespace that its request was in, so that a user who may read a namespace may
// be given the right to read its traces. Traces of requests outside of namespaces are in
// none, for users who may read all traces.
//
// A Ring belongs to one server and ends with it. Of several servers, each has the traces
// of the requests that it handled. A server that is asked for a trace by its name and does
// not have it asks the others.
package traces
