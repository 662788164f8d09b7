package webhookservices

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/admission/call"
)

// servicePort is a port of a service; 0 means every port.
type servicePort struct {
	namespace, name string
	port            int32
}

// Addresses has the addresses of services whose webhooks run outside of the cluster (S8.21).
type Addresses map[servicePort]string

// ParseAddresses reads entries NAMESPACE/NAME[:PORT]=HOST:PORT.
func ParseAddresses(entries []string) (Addresses, error) {
	addresses := Addresses{}
	for _, entry := range entries {
		service, address, err := parseServiceAddress(entry)
		if err != nil {
			return nil, fmt.Errorf("--service-address %q: %w; write it as NAMESPACE/NAME[:PORT]=HOST:PORT", entry, err)
		}
		if _, twice := addresses[service]; twice {
			return nil, fmt.Errorf("--service-address %q: the service has an address already", entry)
		}
		addresses[service] = address
	}
	return addresses, nil
}

func parseServiceAddress(entry string) (service servicePort, address string, err error) {
	of, address, ok := strings.Cut(entry, "=")
	if !ok {
		return service, "", fmt.Errorf("there is no =")
	}
	of, port, withPort := strings.Cut(of, ":")
	if withPort {
		if service.port, err = parsePort(port); err != nil {
			return service, "", err
		}
	}
	if service.namespace, service.name, ok = strings.Cut(of, "/"); !ok {
		return service, "", fmt.Errorf("%q names no namespace", of)
	}
	if problems := validation.IsDNS1123Label(service.namespace); problems != nil {
		return service, "", fmt.Errorf("namespace %q: %s", service.namespace, problems[0])
	}
	if problems := validation.IsDNS1035Label(service.name); problems != nil {
		return service, "", fmt.Errorf("service %q: %s", service.name, problems[0])
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return service, "", err
	}
	if host == "" {
		return service, "", fmt.Errorf("address %q has no host", address)
	}
	if _, err := parsePort(port); err != nil {
		return service, "", err
	}
	return service, address, nil
}

func parsePort(text string) (int32, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("port %q is not a number from 1 to 65535", text)
	}
	return int32(n), nil
}

// Has reports whether a service has an address for any port.
func (s Addresses) Has(namespace, name string) bool {
	for key := range s {
		if key.namespace == namespace && key.name == name {
			return true
		}
	}
	return false
}

// Of returns the address of a port of a service; ok is false for a port without an address.
// Port 0, of a hook without a port, means 443.
func (s Addresses) Of(namespace, name string, port int32) (address string, ok bool) {
	wanted := servicePort{namespace, name, port}
	if port == 0 {
		wanted.port = 443
	}
	for _, key := range []servicePort{wanted, {namespace: namespace, name: name}} {
		if address, ok = s[key]; ok {
			return address, true
		}
	}
	return "", false
}

// Before returns a resolver that uses these addresses first, and other for the remaining services.
func (s Addresses) Before(other call.Resolver) call.Resolver {
	if len(s) == 0 {
		return other
	}
	return call.ResolverFunc(func(ctx context.Context, namespace, name string, port int32) ([]string, error) {
		if address, ok := s.Of(namespace, name, port); ok {
			return []string{address}, nil
		}
		return other.Resolve(ctx, namespace, name, port)
	})
}
