// Command operator is a small operator with the layout of kubebuilder: a kind, a controller, webhooks, and a
// suite that tests them with envtest.
package main
