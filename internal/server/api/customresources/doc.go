// Package customresources serves CustomResourceDefinitions and the resources they define.
//
// # From CRD to endpoints
//
// An informer watches the CRDs. The server makes a definition of each CRD whose names are accepted.
// One atomic pointer holds the set of all definitions, so that Lookup takes no lock and allocates
// nothing. A definition is immutable, except for the parts that the next section describes.
//
// # The memory of a CRD
//
// A cluster may have a thousand CRDs, and most are hardly ever used. A definition has no more than
// the data for discovery, and its schemas, packed. The first request builds the rest: for every
// version a store, a request scope and the endpoints that package resources runs requests on. The
// parts that are compiled from the schemas (structural schemas, validators with CEL rules, the type
// converter of server-side apply) take by far the most memory. A keeper drops each part that was
// not needed for some seconds, and the next request that needs the part builds it again; a part
// that is built again is kept longer each time. An OpenAPI document is not kept at all: package
// openapi keeps the text.
//
// Schemas are checked before they are served, as in kube-apiserver: the CRD is validated, and its
// schemas are compiled before the CRD is established.
//
// When a CRD changes, its new definition is swapped in, the watches of the old one are ended
// (clients resume them and reach the new one), running requests finish on the old one, and then its
// stores are closed.
//
// # Establishing
//
// A CRD becomes Established only after this server serves it, so a client that waits for the
// condition never gets a 404 from the server that set it. A server that no other server has to
// follow serves a CRD before it writes that the names are accepted, and writes both conditions at
// once. A request for the resource of a CRD that was created a moment ago waits until the resource
// is served (ArrivingResource).
//
// # Versions
//
// Every version has a store of its own, as in kube-apiserver: objects are validated, pruned and
// defaulted with the schema of the version they are written in, and converted once per change, not
// once per reader. A store opens when it is first used, so that a version that no client requests
// costs nothing.
//
// # Conversion webhooks
//
// Options.Webhooks calls conversion webhooks like admission webhooks: services are resolved for
// each call, an endpoint that refuses connections is skipped, and a server that could not be
// connected to five times in a row is not called until it answers again. Upstream's metrics
// apiserver_conversion_webhook_* and apiserver_crd_conversion_webhook_duration_seconds count the
// conversions.
//
// A call has 30 s. A call ends earlier, with its request, when admission has an object converted
// for a webhook that wants another version: only there does k8s.io/apiserver pass on the context of
// the request (resources.Endpoint.Bind). It does not pass it on when objects are read from etcd,
// stored or encoded, nor when the managed fields are computed. Only the 30 s bound these
// conversions.
//
// # metadata.initializers
//
// Inside the server the field is in the annotation that package internal/engine/initializers
// describes, for custom objects too: their metadata is converted to the typed ObjectMeta and back.
// Conversion webhooks see the field where clients see it, and cannot change it.
//
// # Deletion
//
// A CRD under deletion refuses to create objects. Its finalizer deletes every object and then the
// CRD. The finalizer first waits for creations that were running when it started, so that no object
// is left behind in storage.
package customresources
