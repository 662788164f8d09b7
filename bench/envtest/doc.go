// Package envtest compares what Gatehouse knows of kube-apiserver's command line with the
// real one. It has tests only.
package envtest
