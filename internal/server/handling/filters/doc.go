// Package filters puts the library's filters in front of the API, in the order of kube-apiserver.
//
// It leaves out what no setting of this server can ask for. And each request pays only for what
// somebody reads of it: the library gives every request a span and five contexts more, which took
// a tenth of the CPU time of a create.
package filters
