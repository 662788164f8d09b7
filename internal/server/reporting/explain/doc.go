// Package explain answers AdmissionExplanations: plans of the steps that admission would take for a
// request, without making the request.
//
// # How
//
// The server's own resource handlers get the request. They decode, default and convert the object
// and find the stored one, as for any request. In the place of admission, the plan is made. It ends
// the request before an object is stored or a webhook is called. The plan is therefore about the
// same object that admission would evaluate.
//
// # Confidentiality
//
// A caller gets nothing that it may not read. Entries of a kind of registration are hidden from
// callers that may not list it. Facts that depend on a namespace's labels are hidden from callers
// that may not get the namespace. A caller that explains a change of a stored object must be
// allowed to get it. A caller that explains the request of another user must be allowed to
// impersonate that user.
//
// # Concurrency
//
// Everything here is safe for concurrent use.
package explain
