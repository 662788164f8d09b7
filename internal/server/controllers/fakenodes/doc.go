// Package fakenodes simulates nodes for tests: Node objects with heartbeats, and pods that become
// ready without a container.
//
// It imitates the scheduler and the kubelets as far as clients of the API can see them. A pod
// without a node is bound to a fake node that its nodeSelector and its required node affinity
// allow, that has its host ports free, and whose taints it tolerates; among several nodes, to the
// one with the fewest pods. Requests, priorities and spreading are ignored. A taint NoExecute
// evicts pods. A pod on a fake node runs at once, and its containers are ready when the initial
// delay of their readiness probes is over; the pod of a Job has succeeded at once. Annotations of a
// pod change how and when the pod ends. The status of a pod follows its spec: images, resources,
// ephemeral containers. An image with a name such as "nonexistent" does not exist. A pod that is
// being deleted is removed at once. Nodes that are not fake, and their pods, are left alone.
package fakenodes
