// Controllermanager runs the kube-controller-manager of Kubernetes next to a gatehouse, and
// checks that it does its work: workloads, garbage, quotas, namespaces, tokens, certificates.
//
//	go run ./controllermanager
//
// In a first round the controllers of gatehouse are off, in a second one both act. The program
// prints how long each check took, and what the kube-controller-manager logged as errors. It
// exits with 1 when a check fails.
package main
