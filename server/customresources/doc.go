// Package customresources serves CustomResourceDefinitions and the resources
// they define.
//
// # From definition to endpoints
//
// An informer watches the definitions. Each one whose names are accepted is
// built into a served definition: for every version a store, a request scope and
// the endpoints that package resources runs requests on. Building (structural
// schemas, compiled CEL rules) happens in Run, never while a request waits; the
// result is immutable, and the set of all of them is swapped by one atomic
// pointer, so that Lookup takes no lock and allocates nothing.
//
// When a definition changes, the new one is swapped in, the watches of the old
// one are ended (clients resume them and find the new one), the requests under
// way finish on the old one, and then its stores are closed.
//
// # Establishing
//
// A definition becomes Established only after this server serves it, so a client
// that waits for the condition never gets a 404 from the server that set it.
//
// # Versions
//
// Every version has a store of its own, as in kube-apiserver: objects are
// validated, pruned and defaulted with the schema of the version they are
// written in, and converted once per change, not once per reader. Stores open
// when first used, so that a version nobody asks for costs nothing.
//
// A conversion webhook behind a service is called at the endpoints that
// Options.Resolve finds, anew for each call, with the name of the service.
//
// # metadata.initializers
//
// Inside the server the field is in the annotation that package
// admission/initializers describes, for these objects too: their metadata makes
// trips through the typed ObjectMeta. Conversion webhooks see the field where
// clients see it, and cannot change it.
//
// # Deletion
//
// A definition under deletion refuses to create objects. Its finalizer deletes
// every object and then the definition; creations that were under way when it
// started are waited for, so none is left behind in storage.
package customresources
