// Package traces keeps the traces of the latest requests and serves them.
//
// A Ring holds traces, within a bound in bytes. It keeps what the engine wrote, and makes
// records of it when somebody reads them: for the request, to be kept costs little. What
// was rejected, and what went on although a webhook failed, is kept longer than the rest.
//
// Storage serves a Ring as the resource admissiontraces of gatehouse.dev. A trace is in
// the namespace that its request was in, so that who may read a namespace may be given
// the right to read its traces; traces of requests outside of namespaces are in none, and
// are read by those who may read all.
//
// A Ring belongs to one server and ends with it. Of several servers, each has the traces
// of the requests that it handled.
package traces
