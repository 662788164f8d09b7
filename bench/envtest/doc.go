// Package envtest compares Gatehouse's lists of kube-apiserver's flags and plugins with the real program. It has
// tests only.
package envtest
