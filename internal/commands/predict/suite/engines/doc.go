// Package engines starts programs that answer admission reviews next to a stage: webhooks of a service, and policy
// engines.
//
// A Seat is the environment of one program: a directory, a certificate for its service, ports, a kubeconfig. An Engine
// runs next to a stage as its recipe says. It registers its webhooks itself, as in a cluster.
package engines
