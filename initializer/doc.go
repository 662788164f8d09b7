// Package initializer is for writing initializer controllers: programs that
// complete new objects before other clients see them. The server's side is package initialization.
//
// A server with initializers gives a new object a list of names,
// metadata.initializers.pending, and hides the object until the list is empty. A
// Controller finds the objects on which it is one initializer's turn, calls a
// function on each, and writes the changes of the function together with the shorter list:
//
//	controller, err := initializer.New(initializer.Options{
//		Name:      "sidecar.example.com",
//		Config:    config,
//		Resources: []schema.GroupVersionResource{{Group: "apps", Version: "v1", Resource: "deployments"}},
//		Initialize: func(ctx context.Context, obj *unstructured.Unstructured) error {
//			obj.SetLabels(map[string]string{"initialized": "yes"})
//			return nil
//		},
//	})
//	if err != nil {
//		return err
//	}
//	return controller.Run(ctx)
//
// An InitializerConfiguration, which an administrator creates, selects the objects that get
// the name. The user of the controller needs the verbs list, watch, patch and initialize on the
// resources.
//
// # Turns
//
// It is an initializer's turn when its name is first in the list. A parallel initializer
// also has its turn when all names before it belong to parallel initializers; see
// Options.Parallel.
//
// # Guarantees
//
// The function is called at least once for each object on which it is the initializer's
// turn. It may see an object again, when a write conflicted or the program was restarted,
// so it must be idempotent. Its changes and the removal of the name are stored together or
// not at all. Several processes of the same initializer may run: the write of one makes
// the write of the other conflict, and the other reads the object again.
//
// # Releasing
//
// An initializer that allocates something outside of the object, such as an address, is
// registered with a finalizer of its own, and has a function Release:
//
//	Finalizer:  "example.com/address",
//	Initialize: allocate,
//	Release:    release,
//
// The server gives the finalizer to each object that gets the name. Before the controller calls Initialize it
// claims the object (metadata.initializers.paired has a field claimed). From then on the object remains until
// Release was called and the finalizer is removed: when another initializer fails the initialization, when the
// object is deleted before it is initialized, and when it is deleted later. Even if the controller or the
// server crashes in between, the allocations of Initialize for an object are released before the object is
// gone. There is one limit: an object that was never initialized is kept for an hour
// (--initializer-release-timeout), after which the server deletes it with an event.
//
// Both functions find the allocation by the uid of the object, and both may be called again. Of several
// processes of one initializer, only one may run at a time if it has a function Release: use leader election.
//
// # Failing
//
// A function that returns a *Failure (see Fail) ends the initialization: the
// server deletes the object and gives the status to the client that created it. Other
// errors are retried at growing intervals, until the server's timeout for
// initializers removes the name (failurePolicy Ignore) or for as long as the
// object exists (Fail).
package initializer
