// Package question makes the request of an AdmissionExplanation, so that a server's own handlers
// decode, default and convert its object as for any request, and says what the caller must be
// allowed to do. The main server and servers that embed the engine share it.
package question
