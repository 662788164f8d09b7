// Package kubernetesservice keeps the service "kubernetes" in the namespace default,
// which leads pods to the API servers.
//
// The service, its Endpoints and its EndpointSlice are made and kept by upstream's
// own controller and reconciler. Each server has a lease in etcd for the address
// under which it is advertised; the addresses of all leases are the endpoints of the
// service. A server that ends removes its address, and the address of a server that is killed
// goes with its lease. Servers that share an etcd should listen on the same port: the endpoints
// have the port of the server that started last.
package kubernetesservice
