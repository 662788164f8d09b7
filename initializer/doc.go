// Package initializer is for writing initializer controllers: programs that
// complete new objects before other clients see them.
//
// A server with initializers gives a new object a list of names,
// metadata.initializers.pending, and hides the object until the list is empty. A
// Controller finds the objects on which it is one initializer's turn, calls a
// function on each, and writes what the function changed together with the shorter list:
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
// An InitializerConfiguration, which an administrator creates, says which objects get the
// name. The user of the controller needs the verbs list, watch, patch and initialize on the
// resources.
//
// # Turns
//
// It is an initializer's turn when its name is first in the list. One that is
// registered as parallel also has its turn when all names before it are those of
// parallel initializers; see Options.Parallel.
//
// # Guarantees
//
// The function is called at least once for each object on which it is the initializer's
// turn. It may see an object again, when a write conflicted or the program was restarted,
// so it must be idempotent. Its changes and the removal of the name are stored together or
// not at all. Several processes of the same initializer may run: the write of one makes
// the write of the other conflict, and the other reads the object again.
//
// # Failing
//
// A function that returns a *Failure (see Fail) ends the initialization: the
// server deletes the object and gives the status to whoever created it. Other
// errors are tried again, ever more slowly, until the server's timeout for
// initializers removes the name (failurePolicy Ignore) or for as long as the
// object is there (Fail).
package initializer
