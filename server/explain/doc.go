// Package explain answers AdmissionExplanations: what admission would do with a request
// that is not made.
//
// # How
//
// The request is handed to the server's own resource handlers, which decode, default and
// convert the object and find the stored one, as for any request. Where admission would
// run, the plan is made instead, which ends the request before anything is stored or any
// webhook is called. What is explained is therefore what would
// be judged.
//
// # What a caller may learn
//
// Nothing that the caller may not read. Entries of a kind of registration are hidden from
// those who may not list it, what depends on a namespace's labels from those who may not
// get the namespace, and whoever explains a change of a stored object must be allowed to
// get it. To explain the request of somebody else needs the right to impersonate them.
//
// # Concurrency
//
// Everything here is safe for concurrent use.
package explain
