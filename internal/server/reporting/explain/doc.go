// Package explain answers AdmissionExplanations: what admission would do with a request
// that is not made.
//
// # How
//
// The request is handed to the server's own resource handlers, which decode, default and
// convert the object and find the stored one, as for any request. Where admission would
// run, the plan is made instead, which ends the request before anything is stored or any
// webhook is called. The plan is therefore about the very object
// that admission would judge.
//
// # What a caller may learn
//
// A caller learns nothing that it may not read. Entries of a kind of registration are
// hidden from callers that may not list it. Facts that depend on a namespace's labels are
// hidden from callers that may not get the namespace. A caller that explains a change of
// a stored object must be allowed to get it. To explain the request of another user needs
// the right to impersonate that user.
//
// # Concurrency
//
// Everything here is safe for concurrent use.
package explain
