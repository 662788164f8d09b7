package aggregation

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/inside"
)

// A service is resolved through its EndpointSlices, or through Endpoints if there are no slices. Its
// APIService is available while it has either (S22.6, S22.8).
func TestServicesAreFoundByTheirEndpoints(t *testing.T) {
	t.Parallel()
	sliced, plain := newFake(t, "sliced.example.com", emptyList), newFake(t, "plain.example.com", emptyList)
	// Endpoints must not have loopback addresses, and the servers of a test have only these.
	routes := map[string]string{"10.9.0.1:8443": sliced.Listener.Addr().String(), "10.9.0.2:8443": plain.Listener.Addr().String()}
	// No controller creates slices for Endpoints here.
	main := inside.Start(t, server.Options{DialWebhook: func(ctx context.Context, network, address string) (net.Conn, error) {
		to, ok := routes[address]
		if !ok {
			return nil, fmt.Errorf("no route to %s", address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, to)
	}})
	admin := main.HTTP(t, nil)
	admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"fakes"}}`)
	for _, tc := range []struct {
		name, path, endpoints string
		fake                  *fake
	}{
		{"sliced", "/apis/discovery.k8s.io/v1/namespaces/fakes/endpointslices", `{"metadata":{"name":"sliced","labels":{"kubernetes.io/service-name":"sliced"}},
			"addressType":"IPv4","ports":[{"name":"","port":8443}],"endpoints":[{"addresses":["10.9.0.1"]}]}`, sliced},
		{"plain", "/api/v1/namespaces/fakes/endpoints", `{"metadata":{"name":"plain"},
			"subsets":[{"addresses":[{"ip":"10.9.0.2"}],"ports":[{"port":8443}]}]}`, plain},
	} {
		t.Run(tc.name, func(t *testing.T) {
			admin := main.HTTP(t, nil)
			answer := func(code int, message string) {
				t.Helper()
				harness.Eventually(t, fmt.Sprint("the answer is ", code), func() error {
					if r := admin.Do("GET", things(tc.fake.group), ""); r.Code != code || r.Text("message") != message {
						return fmt.Errorf("%d %s", r.Code, r.Raw)
					}
					return nil
				})
			}
			missing := fmt.Sprintf(`service fakes/%[1]s:443 of APIService "v1.%[2]s" is not available: cannot find endpointslices for service/%[1]s in "fakes" (EndpointsNotFound)`, tc.name, tc.fake.group)
			admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces/fakes/services", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"ports":[{"port":443,"targetPort":8443}]}}`, tc.name))
			admin.Must(http.StatusCreated, "POST", "/apis/apiregistration.k8s.io/v1/apiservices", fmt.Sprintf(
				`{"metadata":{"name":"v1.%[1]s"},"spec":{"group":%[1]q,"version":"v1","groupPriorityMinimum":500,"versionPriority":10,"caBundle":%[2]q,"service":{"name":%[3]q,"namespace":"fakes"}}}`,
				tc.fake.group, base64.StdEncoding.EncodeToString(tc.fake.bundle), tc.name))
			answer(http.StatusServiceUnavailable, missing)
			admin.Must(http.StatusCreated, "POST", tc.path, tc.endpoints)
			answer(http.StatusOK, "")
			if tc.fake.seen() == nil {
				t.Error("somebody else answered")
			}
			service := admin.Get("/apis/apiregistration.k8s.io/v1/apiservices/v1." + tc.fake.group)
			if got := service.Text("status", "conditions", "0", "status") + " " + service.Text("status", "conditions", "0", "reason"); got != "True Passed" {
				t.Errorf("condition: %s", got)
			}
			admin.Must(http.StatusOK, "DELETE", tc.path+"/"+tc.name, "")
			answer(http.StatusServiceUnavailable, missing)
		})
	}
}
