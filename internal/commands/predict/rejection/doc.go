// Package rejection reads the responses of a stage's server: which plugin, policy or webhook rejected a request, and at
// which fields of the object the faults are. It also knows the fields that an emulated release does not have.
package rejection
