// Command operator is a small operator as kubebuilder lays one out: a kind, a controller,
// webhooks, and a suite that tests them with envtest.
package main
