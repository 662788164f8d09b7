// Package fakenodes plays nodes for tests: Node objects with heartbeats, and pods that
// become ready without a container.
//
// It does what a scheduler and kubelets do, as far as the API shows it. A pod without a
// node is bound to the fake node with the fewest pods of those that its nodeSelector and
// its required node affinity allow, and that have its host ports; requests, taints,
// priorities and spreading are not looked at. A pod on a fake node runs at once, and its
// containers are ready when the initial delay of their readiness probes is over; the pod of
// a Job has succeeded at once; a pod that is being deleted goes. Nodes that are not fake,
// and their pods, are left alone.
package fakenodes
