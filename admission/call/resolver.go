package call

import (
	"context"
	"errors"
	"net"
	"strconv"
)

// Resolver finds the endpoints of a service.
type Resolver interface {
	// Resolve returns at least one host:port, in the order in which to try them, or an error that
	// names the service. Port is the service's port, or 0 if the webhook specifies none (S8.4). A
	// Caller calls Resolve for every call of a webhook, so Resolve should be quick. It must be safe
	// for concurrent use.
	Resolve(ctx context.Context, namespace, name string, port int32) ([]string, error)
}

// ResolverFunc is a function that implements Resolver.
type ResolverFunc func(ctx context.Context, namespace, name string, port int32) ([]string, error)

// Resolve calls f.
func (f ResolverFunc) Resolve(ctx context.Context, namespace, name string, port int32) ([]string, error) {
	return f(ctx, namespace, name, port)
}

// DNS is the Resolver for servers inside a cluster: the endpoint of a service is its DNS name,
// NAME.NAMESPACE.svc, and its port, 443 unless the webhook specifies one (S8.3).
var DNS Resolver = ResolverFunc(func(_ context.Context, namespace, name string, port int32) ([]string, error) {
	switch {
	case name == "":
		return nil, errors.New("cannot resolve an empty service name")
	case namespace == "":
		return nil, errors.New("cannot resolve an empty service namespace")
	}
	return []string{serviceHost(namespace, name, port)}, nil
})

// serviceName returns the name for which a service's certificate must be valid (S8.2).
func serviceName(namespace, name string) string { return name + "." + namespace + ".svc" }

func serviceHost(namespace, name string, port int32) string {
	if port == 0 {
		port = 443
	}
	return net.JoinHostPort(serviceName(namespace, name), strconv.Itoa(int(port)))
}
