// Package engines starts programs that answer admission reviews next to a stage: webhooks of a service, and policy
// engines.
//
// A Seat is the environment of one program: a directory, a certificate for its service, ports, a kubeconfig. A Recipe
// describes how a policy engine is started, and how it reports that it has a policy. An Engine runs next to a stage. It
// registers its webhooks itself, as in a cluster.
package engines
