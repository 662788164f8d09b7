// Package namespaces empties a namespace that is being deleted and then lets it
// go.
//
// It counts keys in etcd to find the resources that have objects in the namespace, so
// that a deletion costs nothing for the many resources without any. It deletes the objects
// through the API, as the namespace controller of a cluster does: admission judges every object.
// It lists and deletes the objects of other servers through their own APIs. A namespace goes when
// nothing is in it and nothing is being created there (Creations), or, when several servers share
// an etcd, when nothing can be created there any more (Fence).
package namespaces
