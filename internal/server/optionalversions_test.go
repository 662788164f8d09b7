package server_test

import (
	"net/http"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/harness/inside"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// optional are the group versions that kube-apiserver 1.37 serves only with --runtime-config, with
// a resource of each.
var optional = map[string]string{
	"certificates.k8s.io/v1beta1":        "clustertrustbundles",
	"coordination.k8s.io/v1alpha2":       "leasecandidates",
	"coordination.k8s.io/v1beta1":        "leasecandidates",
	"internal.apiserver.k8s.io/v1alpha1": "storageversions",
	"resource.k8s.io/v1alpha3":           "devicetaintrules",
	"resource.k8s.io/v1beta1":            "deviceclasses",
	"resource.k8s.io/v1beta2":            "deviceclasses",
	"storagemigration.k8s.io/v1beta1":    "storageversionmigrations",
}

// TestOptionalVersionsAreServed proves S9.8 for the versions that upstream has and does not serve
// by default.
func TestOptionalVersionsAreServed(t *testing.T) {
	versions := func(config ...string) (*harness.HTTP, map[string]bool) {
		s := inside.Start(t, server.Options{RuntimeConfig: config})
		h := s.HTTP(t, nil)
		served := map[string]bool{}
		for gv, resource := range optional {
			r := h.Do("GET", "/apis/"+gv, "")
			if r.Code != http.StatusOK {
				continue
			}
			found := false
			list, _ := r.At("resources").([]any)
			for _, one := range list {
				found = found || harness.At(one, "name") == resource
			}
			served[gv] = found
			if !found {
				t.Errorf("%q: %s does not have %s: %.300s", config, gv, resource, r.Raw)
			}
			if r := h.Do("GET", "/openapi/v3/apis/"+gv, ""); r.Code != http.StatusOK {
				t.Errorf("%q: OpenAPI of %s: %d", config, gv, r.Code)
			}
		}
		return h, served
	}
	h, served := versions("api/all=true")
	for gv := range optional {
		if !served[gv] {
			t.Errorf("api/all=true: %s is not served", gv)
		}
	}
	// Upstream removed the resources of these versions.
	for _, gv := range []string{"authentication.k8s.io/v1beta1", "certificates.k8s.io/v1alpha1", "networking.k8s.io/v1beta1", "storage.k8s.io/v1beta1"} {
		h.Must(http.StatusNotFound, "GET", "/apis/"+gv, "")
	}
	h.Must(http.StatusCreated, "POST", "/apis/resource.k8s.io/v1beta2/deviceclasses", `{"metadata":{"name":"a"},"spec":{"selectors":[{"cel":{"expression":"true"}}]}}`)
	for _, version := range []string{"v1", "v1beta1"} {
		if r := h.Must(http.StatusOK, "GET", "/apis/resource.k8s.io/"+version+"/deviceclasses/a", ""); r.Text("apiVersion") != "resource.k8s.io/"+version {
			t.Errorf("%s: %s", version, r.Raw)
		}
	}
	h.Must(http.StatusCreated, "POST", "/apis/coordination.k8s.io/v1beta1/namespaces/default/leasecandidates", `{"metadata":{"name":"a"},"spec":{"leaseName":"a","binaryVersion":"1.37.0","emulationVersion":"1.37.0","strategy":"OldestEmulationVersion"}}`)
	h.Must(http.StatusOK, "GET", "/apis/coordination.k8s.io/v1alpha2/namespaces/default/leasecandidates/a", "")
	h.Must(http.StatusCreated, "POST", "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions", `{"metadata":{"name":"a.b"},"spec":{}}`)
	h.Must(http.StatusOK, "GET", "/apis/admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicies", "")

	for _, tt := range speed.Some(t, 1, []struct {
		config []string
		want   int
	}{{[]string{"resource.k8s.io/v1beta2=true"}, 1}, {[]string{"resource.k8s.io/v1beta1/deviceclasses=true"}, 1}, {[]string{"api/alpha=true"}, 3}, {nil, 0}}) {
		if _, served := versions(tt.config...); len(served) != tt.want {
			t.Errorf("%q: %v are served, want %d", tt.config, served, tt.want)
		}
	}
}
