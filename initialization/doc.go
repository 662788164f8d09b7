// Package initialization makes storage treat uninitialized objects as such.
//
// It stands in front of the store of every resource (Decorator), so that each
// rule holds for all kinds and all ways to write: readers that did not ask for
// uninitialized objects do not see them; an object whose initialization failed is
// deleted once everybody could see why; an initializer that does not act in time
// is removed, or keeps the creator waiting no longer, as its failure policy says;
// and an object that was left behind is repaired when a client reads it.
//
// # Use in other servers
//
// The package is for any server that is built on k8s.io/apiserver, and does not import the
// rest of this one. Such a server opens its stores by Decorator.RESTOptions, puts
// Decorator.Handler around the handler of its API, and reads and writes objects on the wire
// by NewCodec; Registered returns what is registered. Package examples/aggregated of this
// module is one. The server of this module gives its stores the Decorator itself, and has
// Reading and Creation for what Handler does.
//
// # Waiting
//
// A creator waits for its object with a Creation, which travels in the context of
// the request and is filled in by the store. All creators of one resource share
// one watch, which runs while there is anything to wait for.
//
// # What is kept where
//
// The state of an object is the object itself, in etcd. The list of waiting creators is
// in the memory of the server that handled the create; when that server ends, the repair
// at reading takes care of timeouts.
package initialization
