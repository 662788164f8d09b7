// Package initialization makes storage treat uninitialized objects as such.
//
// It stands in front of the store of every resource (Decorator), so that each
// rule holds for all kinds and all ways to write: readers that did not ask for
// uninitialized objects do not see them; an object whose initialization failed is
// deleted once everybody could see why; an initializer that does not act in time
// is removed, or keeps the creator waiting no longer, as its failure policy says;
// and an object that was left behind is repaired when a client reads it.
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
