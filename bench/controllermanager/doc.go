// Controllermanager runs the kube-controller-manager of Kubernetes next to a gatehouse, and checks its work:
// workloads, garbage collection, quotas, namespaces, tokens, certificates.
//
//	go run ./controllermanager
//
// In the first round the controllers of gatehouse are disabled, in the second round both run. The program prints the
// duration of each check, and the errors in the log of the kube-controller-manager. It exits with 1 if a check fails.
package main
