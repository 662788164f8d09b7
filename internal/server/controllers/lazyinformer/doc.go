// Package lazyinformer keeps informers of empty collections waiting at no cost.
//
// A cluster has about a hundred kinds, and most of them have no object. An informer of
// such a kind holds a watch open, and the watch a watch cache, for nothing. A Transport
// answers the list of an empty collection itself, from the number of its keys in etcd,
// and lets the watch that follows begin when the first object is stored. Until then
// there is one watch in etcd. The informer sees nothing of this: the list is true, and
// the watch begins where the list ended.
//
// Of custom objects, informers that follow every kind want the metadata alone. A Transport
// answers these lists and watches itself, too, from the objects in etcd: a kind with objects then
// has neither a watch cache nor a request that stays, unless a client wants it.
//
// A Transport passes on all other requests.
package lazyinformer
