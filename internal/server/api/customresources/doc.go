// Package customresources serves CustomResourceDefinitions and the resources
// they define.
//
// # From definition to endpoints
//
// An informer watches the definitions. Each one whose names are accepted is
// made a served definition, and the set of all of them is swapped by one atomic
// pointer, so that Lookup takes no lock and allocates nothing. A served definition
// is immutable, but for what the next section describes.
//
// # What a definition costs
//
// A cluster may have a thousand definitions, and most are hardly ever used. A
// served definition has no more than what discovery shows, and its schemas, packed.
// The first request builds the rest: for every version a store, a request scope and
// the endpoints that package resources runs requests on. What is compiled from the
// schemas (structural schemas, validators with CEL rules, the type converter of
// server-side apply) takes by far the most memory. A keeper drops each part that was
// not needed for some seconds, and the next request that needs the part builds it
// again; a part that comes back is kept longer each time. An OpenAPI document is not
// kept at all: package openapi keeps the text.
//
// Schemas are checked before they are served, as ever: by the validation of the
// definition, and by compiling them before the definition is established.
//
// When a definition changes, the new one is swapped in, the watches of the old
// one are ended (clients resume them and find the new one), running
// requests finish on the old one, and then its stores are closed.
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
// # Conversion webhooks
//
// Options.Webhooks calls conversion webhooks as admission webhooks are called:
// services are resolved for each call, an endpoint that refuses connections is passed
// over, and a server that could not be connected to five times in a row is not called
// until it answers again. Upstream's metrics apiserver_conversion_webhook_* and
// apiserver_crd_conversion_webhook_duration_seconds count the conversions.
//
// A call has 30 s. It ends earlier with the request when admission has an object
// converted for a webhook that wants another version: only there does the library let
// the context of the request through (resources.Endpoint.Bind). It does not when
// objects are read from etcd, stored or encoded, nor when the managed fields are
// computed. These conversions are bounded by the 30 s alone.
//
// # metadata.initializers
//
// Inside the server the field is in the annotation that package
// internal/engine/initializers describes, for these objects too: their metadata makes
// trips through the typed ObjectMeta. Conversion webhooks see the field where
// clients see it, and cannot change it.
//
// # Deletion
//
// A definition under deletion refuses to create objects. Its finalizer deletes
// every object and then the definition; creations that were running when it
// started are waited for, so none is left behind in storage.
package customresources
