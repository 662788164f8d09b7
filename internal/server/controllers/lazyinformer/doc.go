// Package lazyinformer keeps informers of empty collections waiting at no cost.
//
// A cluster has about a hundred kinds, and most of them have no object. An informer of such a kind
// keeps a watch open for nothing, and the watch keeps a watch cache. A Transport answers the list
// of an empty collection itself, from the number of its keys in etcd, and lets the watch that
// follows begin when the first object is stored. Until then there is one watch in etcd. The
// informer notices no difference: the list is correct, and the watch begins where the list ended.
//
// Informers that follow every kind want only the metadata of custom objects. A Transport answers
// these lists and watches itself, too, from the objects in etcd. A kind with objects then needs
// neither a watch cache nor a long request, unless a client asks for it.
//
// The informer of CRDs gets them as they are stored, in protobuf. Decoding a CRD and encoding it
// again costs milliseconds, and a request would do so for each event, and for the state before the
// event.
//
// A Transport passes on all other requests.
package lazyinformer
