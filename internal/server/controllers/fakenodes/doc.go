// Package fakenodes plays nodes for tests: Node objects with heartbeats, and pods that
// become ready without a container.
//
// It does what a scheduler and kubelets do, as far as clients of the API can see it. A pod
// without a node is bound to the fake node with the fewest pods of those that its nodeSelector
// and its required node affinity allow, that have its host ports, and whose taints it tolerates;
// requests, priorities and spreading are not looked at. A taint NoExecute evicts pods. A pod on a
// fake node runs at once, and its containers are ready when the initial delay of their readiness
// probes is over; the pod of a Job has succeeded at once. Annotations of a pod change how and
// when the pod ends. The status of a pod follows its spec: images, resources, ephemeral
// containers. An image does not exist if its name says so, as in "nonexistent". A pod that is
// being deleted goes at once. Nodes that are not fake, and their pods, are left alone.
package fakenodes
