// Package engines starts programs that judge requests next to a stage: webhooks of a service, and engines of
// policies.
//
// A Seat is what one program is given: a directory, a certificate for its service, ports, a kubeconfig. A
// Recipe says how an engine of policies is started, and how it says that it has a policy. An Engine is one
// that runs next to a stage. It registers its webhooks itself, as in a cluster.
package engines
