package controllers

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

const kubernetesPath = "/api/v1/namespaces/default/services/kubernetes"

// Programs in a cluster, and Kubernetes' end-to-end suite, use this service.
func TestTheServiceKubernetesIsThere(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, "--advertise-address", "192.0.2.7", "--service-cluster-ip-range", "10.7.0.0/24")
	port := portOf(t, s)
	h := s.HTTP(t, nil)
	// When the server is ready, the service exists.
	service := h.Get(kubernetesPath)
	if diff := cmp.Diff(map[string]any{
		"type": "ClusterIP", "clusterIP": "10.7.0.1", "clusterIPs": []any{"10.7.0.1"}, "sessionAffinity": "None",
		"ipFamilies": []any{"IPv4"}, "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
		"ports": []any{map[string]any{"name": "https", "protocol": "TCP", "port": 443.0, "targetPort": port}},
	}, service.At("spec")); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"component": "apiserver", "provider": "kubernetes"}, service.At("metadata", "labels")); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	leadsTo(t, h, port, "192.0.2.7")
	if s.Log() != "" {
		t.Errorf("a first start logs no warning, but this:\n%s", s.Log())
	}

	// It is restored after a deletion.
	h.Must(http.StatusOK, "DELETE", kubernetesPath, "")
	harness.Eventually(t, "the service comes back", func() error {
		if r := h.Do("GET", kubernetesPath, ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d", r.Code)
		}
		return nil
	})

	// After a restart on another port, the endpoints have the new port.
	s.Stop(t)
	s = harness.StartOn(t, s.DataDir, "--advertise-address", "192.0.2.8", "--service-cluster-ip-range", "10.7.0.0/24")
	h = s.HTTP(t, nil)
	if got, want := h.Get(kubernetesPath).At("spec", "ports", "0", "targetPort"), portOf(t, s); got != want {
		t.Errorf("the service leads to port %v, want %v", got, want)
	}
	// The old address is gone.
	leadsTo(t, h, portOf(t, s), "192.0.2.8")
}

// Each of several servers is an endpoint while it runs.
func TestServersShareTheServiceKubernetes(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	etcd := harness.StartEtcd(t).URL
	start := func(address string) *harness.Server {
		return harness.Start(t, "--etcd-servers", etcd, "--advertise-address", address)
	}
	one, two := start("192.0.2.1"), start("192.0.2.2")
	leadsTo(t, one.HTTP(t, nil), portOf(t, two), "192.0.2.1", "192.0.2.2")
	two.Stop(t)
	leadsTo(t, one.HTTP(t, nil), nil, "192.0.2.1")
	three := start("192.0.2.3")
	leadsTo(t, three.HTTP(t, nil), portOf(t, three), "192.0.2.1", "192.0.2.3")
}

func portOf(t *testing.T, s *harness.Server) any {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	var port float64
	if _, err := fmt.Sscan(u.Port(), &port); err != nil {
		t.Fatal(err)
	}
	return port
}

// leadsTo waits until the service has the given endpoints, in both representations. A nil port matches any
// port.
func leadsTo(t *testing.T, h *harness.HTTP, port any, addresses ...string) {
	t.Helper()
	harness.Eventually(t, "the endpoints are those of the servers", func() error {
		endpoints := h.Do("GET", "/api/v1/namespaces/default/endpoints/kubernetes", "")
		slice := h.Do("GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", "")
		var want, wantSlice []any
		for _, a := range addresses {
			want = append(want, map[string]any{"ip": a})
			wantSlice = append(wantSlice, map[string]any{"addresses": []any{a}, "conditions": map[string]any{"ready": true}})
		}
		if diff := cmp.Diff(any(want), endpoints.At("subsets", "0", "addresses")); diff != "" {
			return fmt.Errorf("Endpoints (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(any(wantSlice), slice.At("endpoints")); diff != "" {
			return fmt.Errorf("EndpointSlice (-want +got):\n%s", diff)
		}
		for _, got := range []any{endpoints.At("subsets", "0", "ports", "0", "port"), slice.At("ports", "0", "port")} {
			if port != nil && got != port {
				return fmt.Errorf("port %v, want %v", got, port)
			}
		}
		return nil
	})
}

// A policy that denies everything neither prevents nor delays the start of a server.
func TestADenyAllPolicyDoesNotHoldUpTheStart(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	began := time.Now()
	s := harness.Start(t, "--advertise-address", "192.0.2.7")
	usual := time.Since(began)
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", toJSON(`
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: nothing.example.com},
 spec: {failurePolicy: Fail, validations: [{expression: "false"}],
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]}}}`))
	h.Must(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", toJSON(`
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: nothing.example.com},
 spec: {policyName: nothing.example.com, validationActions: [Deny]}}`))
	if r := h.Do("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"}}`); r.Code != http.StatusUnprocessableEntity {
		t.Fatalf("the policy does not deny: %d %s", r.Code, r.Raw)
	}
	s.Stop(t)
	began = time.Now()
	// On another port, the server must write the service.
	s = harness.StartOn(t, s.DataDir, "--advertise-address", "192.0.2.7")
	took := time.Since(began)
	t.Logf("a start takes %s, and %s under the policy", usual, took)
	// The load of the machine may change between the two starts.
	if took > 2*usual+20*time.Second {
		t.Errorf("a start takes %s under the policy, and %s without", took, usual)
	}
	// The rejected objects are created when the policy is deleted.
	h = s.HTTP(t, nil)
	h.Must(http.StatusOK, "DELETE", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/nothing.example.com", "")
	harness.Eventually(t, "the service leads to the server", func() error {
		if got, want := h.Get(kubernetesPath).At("spec", "ports", "0", "targetPort"), portOf(t, s); got != want {
			return fmt.Errorf("port %v, want %v", got, want)
		}
		return nil
	})
	leadsTo(t, h, portOf(t, s), "192.0.2.7")
}
