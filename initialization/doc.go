// Package initialization adds the rules for uninitialized objects to storage. It is the
// server's side; package initializer is for the controllers that complete objects.
//
// A Decorator wraps the store of every resource, so that each
// rule holds for all kinds and all writes: readers that did not ask for
// uninitialized objects do not see them; an object whose initialization failed is deleted after
// watches could show the failure; an initializer that does not act in time is removed, or its
// creator gets an error, as its failure policy says; and an object that was left behind is
// repaired when a client reads it.
//
// # Use in other servers
//
// The package is for any server that is built on k8s.io/apiserver, and does not import
// Gatehouse's server. Such a server opens its stores by Decorator.RESTOptions, puts
// Decorator.Handler around the handler of its API, and reads and writes objects on the wire
// by NewCodec; Registered returns functions that know the registered initializers. Package
// examples/aggregated of this module is such a server. The server of this module passes the
// Decorator to its stores itself, and uses Reading and Creation instead of Handler.
//
// # Waiting
//
// A creator waits for its object with a Creation, which travels in the context of
// the request and is filled in by the store. All creators of one resource share
// one watch, which runs while a creator waits or an initializer has a timer.
//
// # State
//
// The state of an object is the object itself, in etcd. The list of waiting creators is
// in the memory of the server that handled the create; after that server ends, the repair
// at reading handles timeouts.
package initialization
