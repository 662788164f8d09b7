// Package stage runs a server with objects in this process, to predict the responses of a cluster.
//
// # One way
//
// Open starts a whole server, with a temporary directory and the admission plugins of kube-apiserver. Load stores the
// objects of files or of a cluster, in an order in which no object is evaluated against registrations that come later
// (package order). Requests reach the server's handlers as bytes of a user, without a connection. Decoding, authentication
// and authorization happen in the server, and this package makes no admission decisions.
//
// # Three questions
//
//   - A Client makes requests that take effect.
//   - Ask and Judge answer a Question, a request that has no effect: Ask with the response that a client would get, Judge in
//     a fraction of the time, by admission and validation alone.
//   - Plan lists the registrations that would act on a request, and the reasons why the others would not.
//
// # Substitutes for the controllers of a cluster
//
// A namespace gets its service account "default", a quota its status, and an aggregated role its rules (furnish.go). No
// controller runs unless Options name one. Initializers never act.
package stage
