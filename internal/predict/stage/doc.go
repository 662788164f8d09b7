// Package stage has a server with objects in this process, to ask what a cluster would do.
//
// # One way
//
// Open starts a whole server, with a temporary directory and the admission plugins of
// kube-apiserver. Load gives it the objects of files or of a cluster, in an order in which none is
// judged by registrations that come later (order.go). Requests reach the server's handlers as
// bytes of a user, without a connection: decoding, authentication and authorization stay, and
// nothing here judges an object.
//
// # Three questions
//
//   - A Client makes requests that take effect.
//   - Ask and Judge answer a Question, a request that is judged and not made: Ask as a client would
//     be answered, Judge in a fraction of the time, by admission and validation alone.
//   - Plan says which registrations would act on a request, and why the others would not.
//
// # What stands in for the controllers of a cluster
//
// A namespace gets its service account "default", a quota its status, and an aggregated role
// its rules (furnish.go). No controller runs unless Options name one. Initializers never act.
package stage
