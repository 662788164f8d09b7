// Package kubernetesservice maintains the service "kubernetes" in the namespace default, through
// which pods reach the API servers.
//
// Upstream's own controller and reconciler maintain the service, its Endpoints and its
// EndpointSlice. Each server has a lease in etcd for the address under which it is advertised; the
// addresses of all leases are the endpoints of the service. A server that ends removes its address,
// and the address of a killed server is removed when its lease expires. Servers that share an etcd
// should listen on the same port: the endpoints have the port of the server that started last.
package kubernetesservice
