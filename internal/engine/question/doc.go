// Package question builds the request of an AdmissionExplanation, so that a server's own handlers
// decode, default and convert its object as for any request. It also checks the permissions that
// the caller needs. The main server and servers that embed the engine share it.
package question
