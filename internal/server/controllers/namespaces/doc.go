// Package namespaces empties a namespace that is being deleted and then removes it.
//
// It counts keys in etcd to find the resources that have objects in the namespace, so that a
// deletion costs nothing for the many resources without any. It deletes the objects through the
// API, as the namespace controller of a cluster does, so that each deletion goes through admission.
// It lists and deletes the objects of other servers through their own APIs. A namespace is removed
// when it has no objects and no object is being created in it (Creations), or, when several servers
// share an etcd, when no object can be created in it any more (Fence).
package namespaces
