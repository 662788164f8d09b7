// Package namespaces empties a namespace that is being deleted and then lets it
// go.
//
// Which resources have anything in the namespace is asked of etcd by counting
// keys, so that a deletion costs nothing for the many resources that have
// nothing there. What is there is deleted through the API, as the namespace
// controller of a cluster does it: admission judges every object. A namespace goes
// when nothing is in it and nothing is being created there (Creations), or, when
// several servers share an etcd, when nothing can be created there any more (Fence).
package namespaces
