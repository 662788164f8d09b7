package call

//lint:file-ignore SA1019 Services of old clusters have Endpoints and no EndpointSlices (S8.4).

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func service(spec corev1.ServiceSpec) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "check"}, Spec: spec}
}

func ports(p ...corev1.ServicePort) []corev1.ServicePort { return p }

// slice returns an EndpointSlice; addresses in endpoints that start with "!" are not ready.
func slice(port string, number int32, endpoints ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Name: &port, Port: &number}}}
	for _, e := range endpoints {
		address, notReady := strings.CutPrefix(e, "!")
		ready := !notReady
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return s
}

func TestServiceResolver(t *testing.T) {
	https := corev1.ServicePort{Name: "https", Port: 443, TargetPort: intstr.FromInt32(8443)}
	metrics := corev1.ServicePort{Name: "metrics", Port: 9090, TargetPort: intstr.FromString("prom")}
	plain := corev1.ServicePort{Port: 443, TargetPort: intstr.FromInt32(8443)}
	udp := corev1.ServicePort{Name: "dns", Port: 443, Protocol: corev1.ProtocolUDP}
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "endpoints"}, "check")
	cases := []struct {
		name       string
		service    *corev1.Service
		port       int32
		slices     []*discoveryv1.EndpointSlice
		endpoints  *corev1.Endpoints
		endpoint   error
		want       []string
		err        string
		wantLookup error
	}{
		{name: "S8.4 ready endpoints through targetPort", service: service(corev1.ServiceSpec{ClusterIP: "10.9.9.9", Ports: ports(metrics, https)}), port: 443,
			slices: []*discoveryv1.EndpointSlice{slice("metrics", 9102, "10.0.0.9"), slice("https", 8443, "10.0.0.1", "!10.0.0.2"), slice("https", 9443, "fd00::1")},
			want:   []string{"10.0.0.1:8443", "[fd00::1]:9443"}},
		{name: "S8.4 ready is the default of conditions", service: service(corev1.ServiceSpec{Ports: ports(https)}), port: 443,
			slices: func() []*discoveryv1.EndpointSlice {
				s := slice("https", 8443, "10.0.0.1")
				s.Endpoints[0].Conditions.Ready = nil
				return []*discoveryv1.EndpointSlice{s}
			}(), want: []string{"10.0.0.1:8443"}},
		{name: "S8.4 slices written by hand, without a port name", service: service(corev1.ServiceSpec{Ports: ports(https)}), port: 443,
			slices: []*discoveryv1.EndpointSlice{slice("", 8443, "10.0.0.1"), slice("", 1234, "10.0.0.2")}, want: []string{"10.0.0.1:8443"}},
		{name: "S8.4 a named targetPort", service: service(corev1.ServiceSpec{Ports: ports(metrics)}), port: 9090,
			slices: []*discoveryv1.EndpointSlice{slice("prom", 9102, "10.0.0.1")}, want: []string{"10.0.0.1:9102"}},
		{name: "S8.4 else Endpoints", service: service(corev1.ServiceSpec{ClusterIP: "10.9.9.9", Ports: ports(plain)}), port: 443,
			slices: []*discoveryv1.EndpointSlice{slice("", 8443, "!10.0.0.2")},
			endpoints: &corev1.Endpoints{Subsets: []corev1.EndpointSubset{
				{Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}}, NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.0.0.3"}}, Ports: []corev1.EndpointPort{{Port: 8443}}},
				{Addresses: []corev1.EndpointAddress{{IP: "10.0.0.4"}}, Ports: []corev1.EndpointPort{{Name: "x", Port: 1}}},
			}}, want: []string{"10.0.0.1:8443"}},
		{name: "S8.4 neither slices nor Endpoints: not the cluster IP, an error that names service and port", service: service(corev1.ServiceSpec{ClusterIP: "10.9.9.9", Ports: ports(https)}), port: 443,
			endpoint: notFound, err: `no endpoints available for service "shop/check": none is ready for port 443`},
		{name: "S8.4 no endpoint of a slice is ready", service: service(corev1.ServiceSpec{ClusterIP: "10.9.9.9", Ports: ports(https)}), port: 443, endpoint: notFound,
			slices: []*discoveryv1.EndpointSlice{slice("https", 8443, "!10.0.0.1"), slice("metrics", 9102, "10.0.0.1")}, err: `no endpoints available for service "shop/check"`},
		{name: "S8.4 no address of Endpoints is ready", service: service(corev1.ServiceSpec{ClusterIP: "10.9.9.9", Ports: ports(plain)}), port: 443,
			endpoints: &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.0.0.3"}}, Ports: []corev1.EndpointPort{{Port: 8443}}}}},
			err:       `no endpoints available for service "shop/check"`},
		{name: "S8.4 a headless service", service: service(corev1.ServiceSpec{ClusterIP: "None", Ports: ports(https)}), port: 443,
			slices: []*discoveryv1.EndpointSlice{slice("https", 8443, "10.0.0.1")}, want: []string{"10.0.0.1:8443"}},
		{name: "S8.4 a headless service without endpoints", service: service(corev1.ServiceSpec{ClusterIP: "None", Ports: ports(https)}), port: 443,
			endpoint: notFound, err: `no endpoints available for service "shop/check": none is ready for port 443`},
		{name: "S8.4 no such port", service: service(corev1.ServiceSpec{Ports: ports(https, metrics)}), port: 8443, err: "service shop/check has no port 8443, only 443, 9090"},
		{name: "S8.4 UDP does not count", service: service(corev1.ServiceSpec{Ports: ports(udp)}), port: 443, err: "service shop/check has no port 443, nor any other TCP port"},
		{name: "S8.4 ExternalName", service: service(corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "hook.example.com", Ports: ports(https)}), port: 8080, want: []string{"hook.example.com:8080"}},
		{name: "S8.4 ExternalName, no port", service: service(corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "hook.example.com"}), want: []string{"hook.example.com:443"}},
		{name: "S8.4 ExternalName without a name", service: service(corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}), port: 443, err: "has no externalName"},
		{name: "S8.4 no port named, the service has one", service: service(corev1.ServiceSpec{Ports: ports(metrics)}),
			slices: []*discoveryv1.EndpointSlice{slice("metrics", 9102, "10.0.0.1"), slice("https", 8443, "10.0.0.1")}, want: []string{"10.0.0.1:9102"}},
		{name: "S8.4 no port named, 443 of several", service: service(corev1.ServiceSpec{Ports: ports(metrics, https)}),
			slices: []*discoveryv1.EndpointSlice{slice("metrics", 9102, "10.0.0.1"), slice("https", 8443, "10.0.0.1")}, want: []string{"10.0.0.1:8443"}},
		{name: "S8.4 no port named, several without 443", service: service(corev1.ServiceSpec{Ports: ports(metrics, corev1.ServicePort{Name: "x", Port: 1})}), err: "service shop/check has no port 443, only 9090, 1"},
		{name: "S8.4 no service", err: `looking up service shop/check: services "check" not found`},
		{name: "S8.4 endpoints cannot be looked up", service: service(corev1.ServiceSpec{ClusterIP: "10.9.9.9", Ports: ports(https)}), port: 443, endpoint: errors.New("not synced"),
			err: "looking up endpoints of service shop/check: not synced"},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			r := ServiceResolver{
				Service: func(namespace, name string) (*corev1.Service, error) {
					if tt.service == nil {
						return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, name)
					}
					return tt.service, nil
				},
				EndpointSlices: func(namespace, service string) ([]*discoveryv1.EndpointSlice, error) { return tt.slices, nil },
				Endpoints:      func(namespace, name string) (*corev1.Endpoints, error) { return tt.endpoints, tt.endpoint },
			}
			got, err := r.Resolve(t.Context(), "shop", "check", tt.port)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.SortSlices(strings.Compare)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestServiceResolverSpreadsEvenly(t *testing.T) {
	r := ServiceResolver{
		Service: func(string, string) (*corev1.Service, error) {
			return service(corev1.ServiceSpec{Ports: ports(corev1.ServicePort{Port: 443})}), nil
		},
		EndpointSlices: func(string, string) ([]*discoveryv1.EndpointSlice, error) {
			return []*discoveryv1.EndpointSlice{slice("", 443, "10.0.0.1", "10.0.0.2", "10.0.0.3")}, nil
		},
	}
	const rounds = 3000
	first := map[string]int{}
	for range rounds {
		got, err := r.Resolve(t.Context(), "shop", "check", 443)
		if err != nil || len(got) != 3 || got[0] == got[1] || got[1] == got[2] || got[0] == got[2] {
			t.Fatalf("S8.4: got %v, %v", got, err)
		}
		first[got[0]]++
	}
	for endpoint, n := range first {
		if n < rounds/3-200 || n > rounds/3+200 { // 7 standard deviations
			t.Errorf("S8.4: %s came first %d times of %d", endpoint, n, rounds)
		}
	}
}
