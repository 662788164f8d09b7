// Package aggregation puts other API servers behind this one: it serves the kind APIService of
// apiregistration.k8s.io, and passes the requests for a group version whose APIService names a Service on to
// the server there (S22).
//
// # Parts
//
// Every group version of this server is registered by a local APIService, which the type registrar maintains.
// The APIServices that name a Service are remote. A Proxy passes requests on, with the identity of the caller
// in headers and the client certificate of this server (S22.9). Upstream's own controllers write whether an
// APIService is available, and keep the discovery and OpenAPI documents of remote servers.
//
// # Cost
//
// Without a remote APIService a request costs one additional atomic load, and none of the controllers of
// remote APIServices runs: they start with the first one.
//
// # Faults
//
// A remote server that is down, slow or wrong affects only the requests for its own group versions: they get
// 503, which names the APIService and the Service (S22.12). Its requests take places of their own among those
// that are handled at once (S22.13).
package aggregation
