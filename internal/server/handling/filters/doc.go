// Package filters puts the filters of k8s.io/apiserver in front of the API, in the order of
// kube-apiserver.
//
// It leaves out filters that no setting of this server can turn on. And a request pays for a span
// only when the span is exported: k8s.io/apiserver gives every request six spans and as many
// contexts, also when no spans are exported. They took six percent of the CPU time of a get.
package filters
