// Package filters puts the library's filters in front of the API, in the order of kube-apiserver.
//
// It leaves out what no setting of this server can ask for. And each request pays only for what
// somebody reads of it: the library gives every request six spans and as many contexts, also when
// no spans are exported. They took six percent of the CPU time of a get.
package filters
