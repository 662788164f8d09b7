package call

//lint:file-ignore SA1019 Services of old clusters have Endpoints and no EndpointSlices (S8.4).

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// ServiceResolver is a [Resolver] for servers with access to the objects of a cluster: it uses
// EndpointSlices, Endpoints and external names, in the order of S8.4. It never returns a cluster
// IP, which requires a service proxy. The functions are usually methods of listers; the resolver
// does not modify their results.
type ServiceResolver struct {
	// Service returns a Service, or an error. Required.
	Service func(namespace, name string) (*corev1.Service, error)
	// EndpointSlices returns the slices of a service, selected by the label
	// kubernetes.io/service-name. Nil means that there are none.
	EndpointSlices func(namespace, service string) ([]*discoveryv1.EndpointSlice, error)
	// Endpoints returns the Endpoints with a service's name; a NotFound error means that there are
	// none. Nil means that there are never any.
	Endpoints func(namespace, name string) (*corev1.Endpoints, error)
}

// Resolve implements Resolver. It puts a random ready endpoint first, so that the calls of all
// replicas of a server are spread evenly without coordination.
func (r ServiceResolver) Resolve(_ context.Context, namespace, name string, port int32) ([]string, error) {
	if name == "" || namespace == "" {
		return DNS.Resolve(context.Background(), namespace, name, port)
	}
	service, err := r.Service(namespace, name)
	if err != nil {
		return nil, fmt.Errorf("looking up service %s/%s: %w", namespace, name, err)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return r.externalName(service, port)
	}
	wanted, err := servicePort(service, port)
	if err != nil {
		return nil, err
	}
	ready, err := r.ready(service, wanted)
	if err != nil {
		return nil, fmt.Errorf("looking up endpoints of service %s/%s: %w", namespace, name, err)
	}
	if n := len(ready); n > 0 {
		first := rand.IntN(n)
		return append(ready[first:n:n], ready[:first]...), nil
	}
	return nil, fmt.Errorf("no endpoints available for service %q: none is ready for port %d", namespace+"/"+name, wanted.Port)
}

// servicePort finds the port of a service by number; 0 means the only port or, if there are
// several, 443 (S8.4).
func servicePort(s *corev1.Service, port int32) (*corev1.ServicePort, error) {
	ports := s.Spec.Ports
	if port == 0 {
		port = 443
		if len(ports) == 1 {
			port = ports[0].Port
		}
	}
	var known []string
	for i := range ports {
		if p := &ports[i]; p.Protocol == "" || p.Protocol == corev1.ProtocolTCP {
			if p.Port == port {
				return p, nil
			}
			known = append(known, strconv.Itoa(int(p.Port)))
		}
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("service %s/%s has no port %d, nor any other TCP port", s.Namespace, s.Name, port)
	}
	return nil, fmt.Errorf("service %s/%s has no port %d, only %s", s.Namespace, s.Name, port, strings.Join(known, ", "))
}

// externalName returns the external name with the webhook's port. It ignores targetPort: an
// external name has no endpoints, and the Service often lists no ports at all.
func (r ServiceResolver) externalName(s *corev1.Service, port int32) ([]string, error) {
	if s.Spec.ExternalName == "" {
		return nil, fmt.Errorf("service %s/%s is of type ExternalName and has no externalName", s.Namespace, s.Name)
	}
	if port == 0 {
		port = 443
		if len(s.Spec.Ports) > 0 {
			p, err := servicePort(s, 0)
			if err != nil {
				return nil, err
			}
			port = p.Port
		}
	}
	return []string{hostPort(s.Spec.ExternalName, port)}, nil
}

func (r ServiceResolver) ready(s *corev1.Service, port *corev1.ServicePort) ([]string, error) {
	if r.EndpointSlices != nil {
		slices, err := r.EndpointSlices(s.Namespace, s.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		var ready []string
		for _, slice := range slices {
			ready = appendSlice(ready, slice, port)
		}
		if len(ready) > 0 {
			return ready, nil
		}
	}
	if r.Endpoints == nil {
		return nil, nil
	}
	endpoints, err := r.Endpoints(s.Namespace, s.Name)
	if apierrors.IsNotFound(err) || endpoints == nil && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var ready []string
	for i := range endpoints.Subsets {
		subset := &endpoints.Subsets[i]
		for _, p := range subset.Ports {
			if isPort(port, p.Name, p.Port, p.Protocol) {
				for _, a := range subset.Addresses {
					ready = append(ready, hostPort(a.IP, p.Port))
				}
				break
			}
		}
	}
	return ready, nil
}

func appendSlice(ready []string, slice *discoveryv1.EndpointSlice, port *corev1.ServicePort) []string {
	for _, p := range slice.Ports {
		if p.Port == nil || !isPort(port, ptr.Deref(p.Name, ""), *p.Port, ptr.Deref(p.Protocol, "")) {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			// EndpointSlices give no meaning to addresses after the first.
			if ptr.Deref(e.Conditions.Ready, true) && len(e.Addresses) > 0 {
				ready = append(ready, hostPort(e.Addresses[0], *p.Port))
			}
		}
		break
	}
	return ready
}

// isPort reports whether an endpoint's port belongs to a service's port. Endpoints made by a
// controller have the name of the service's port; manually written ones may lack the name, and are
// then recognized by the targetPort.
func isPort(want *corev1.ServicePort, name string, number int32, protocol corev1.Protocol) bool {
	if protocol != "" && protocol != corev1.ProtocolTCP {
		return false
	}
	if name == want.Name {
		return true
	}
	if want.TargetPort.Type == intstr.String {
		return name == want.TargetPort.StrVal
	}
	target := want.TargetPort.IntVal
	if target == 0 {
		target = want.Port
	}
	return name == "" && number == target
}

func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
