package aggregation

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// Every group version of the server has a local APIService. APIServices of custom resources are created and
// deleted with their CRDs, and APIServices of built-in kinds are restored at a start (S22.1 to S22.5).
func TestLocalAPIServices(t *testing.T) {
	t.Parallel()
	s := harness.Start(t)
	kubectl := s.Kubectl(t, "default")
	admin := s.HTTP(t, nil)
	type service struct {
		Metadata struct {
			Name   string
			Labels map[string]string
		}
		Spec struct {
			Group, Version                        string
			GroupPriorityMinimum, VersionPriority int
		}
		Status struct {
			Conditions []struct{ Type, Status, Reason, Message string }
		}
	}
	list := func() map[string]service {
		var found struct{ Items []service }
		if err := json.Unmarshal(admin.Get("/apis/apiregistration.k8s.io/v1/apiservices").Raw, &found); err != nil {
			t.Fatal(err)
		}
		byName := map[string]service{}
		for _, one := range found.Items {
			byName[one.Metadata.Name] = one
		}
		return byName
	}
	// When the server is ready, all APIServices exist.
	services := list()
	for _, root := range []string{"/api", "/apis"} {
		var groups struct {
			Versions []string
			Groups   []struct {
				Name     string
				Versions []struct{ Version string }
			}
		}
		if err := json.Unmarshal(admin.Get(root).Raw, &groups); err != nil {
			t.Fatal(err)
		}
		want := groups.Versions
		for i := range want {
			want[i] += "."
		}
		for _, g := range groups.Groups {
			for _, v := range g.Versions {
				want = append(want, v.Version+"."+g.Name)
			}
		}
		for _, name := range want {
			one, ok := services[name]
			if name == "v1.apiregistration.k8s.io" {
				if ok {
					t.Errorf("S22.3: there is a %s", name)
				}
				continue
			}
			if !ok {
				t.Errorf("S22.3: there is no %s", name)
				continue
			}
			if c := one.Status.Conditions; len(c) != 1 || c[0].Type != "Available" || c[0].Status != "True" || c[0].Reason != "Local" || c[0].Message != "Local APIServices are always available" {
				t.Errorf("S22.5 %s: %+v", name, c)
			}
		}
	}
	if apps := services["v1.apps"]; apps.Spec.GroupPriorityMinimum != 17800 || apps.Spec.VersionPriority != 15 || apps.Metadata.Labels["kube-aggregator.kubernetes.io/automanaged"] != "onstart" {
		t.Errorf("S22.3 v1.apps: %+v", apps)
	}
	if out := kubectl.Must("get", "apiservice", "v1.apps"); !strings.Contains(out, "Local") || !strings.Contains(out, "True") || !strings.Contains(out, "SERVICE") {
		t.Errorf("S22.1 columns: %s", out)
	}
	for name, spec := range map[string]string{
		"v1.other.example.com": `{"group":"x.example.com","version":"v1","groupPriorityMinimum":1,"versionPriority":1}`,
		"v1.x.example.com":     `{"group":"x.example.com","version":"v1","groupPriorityMinimum":20001,"versionPriority":1}`,
		"v2.x.example.com":     `{"group":"x.example.com","version":"v2","groupPriorityMinimum":1,"versionPriority":1,"caBundle":"Zm9v","insecureSkipTLSVerify":true,"service":{"namespace":"a","name":"b"}}`,
	} {
		body := fmt.Sprintf(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":%q},"spec":%s}`, name, spec)
		if status := admin.Refused(422, "Invalid", "POST", "/apis/apiregistration.k8s.io/v1/apiservices", body); status == nil {
			t.Errorf("S22.2 %s was accepted", name)
		}
	}

	admin.Must(http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"widgets.local.example.com"},"spec":{
		"group":"local.example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	harness.Eventually(t, "S22.4 the custom version is registered", func() error {
		one, ok := list()["v1.local.example.com"]
		if !ok || one.Spec.GroupPriorityMinimum != 1000 || one.Spec.VersionPriority != 100 || one.Metadata.Labels["kube-aggregator.kubernetes.io/automanaged"] != "true" {
			return fmt.Errorf("%+v", one)
		}
		return nil
	})
	const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices/"
	admin.Must(http.StatusOK, "PATCH", apiServices+"v1.batch/status", `{"status":{"conditions":[{"type":"Available","status":"False","reason":"Test","message":"down"}]}}`, "Content-Type", "application/merge-patch+json")
	harness.Eventually(t, "S22.5 a condition that somebody changed is written again", func() error {
		if c := list()["v1.batch"].Status.Conditions; len(c) != 1 || c[0].Status != "True" || c[0].Reason != "Local" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	for _, name := range []string{"v1.local.example.com", "v1.apps"} {
		admin.Must(http.StatusOK, "DELETE", apiServices+name, "")
	}
	harness.Eventually(t, "S22.4 what was deleted comes back", func() error {
		if _, ok := list()["v1.local.example.com"]; !ok {
			return errors.New("there is none")
		}
		return nil
	})
	admin.Must(http.StatusOK, "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.local.example.com", "")
	harness.Eventually(t, "S22.4 it goes with its definition", func() error {
		if one, ok := list()["v1.local.example.com"]; ok {
			return fmt.Errorf("%+v", one)
		}
		return nil
	})
	if _, ok := list()["v1.apps"]; ok {
		t.Error("S22.3: v1.apps came back without a start")
	}
	s.Stop(t)
	s.Restart(t)
	admin = s.HTTP(t, nil)
	if _, ok := list()["v1.apps"]; !ok {
		t.Error("S22.3: v1.apps did not come back at the start")
	}
}

// The ConfigMap with the certificate authorities for aggregated servers exists when the server is ready, is
// restored after a deletion, and can be read by users with its role (S22.18).
func TestAuthenticationIsPublished(t *testing.T) {
	t.Parallel()
	s := harness.Shared(t)
	admin, alice := s.HTTP(t, nil), s.HTTP(t, s.WithToken("alice-token"))
	const configMaps = "/api/v1/namespaces/kube-system/configmaps"
	const published = configMaps + "/extension-apiserver-authentication"
	var cm struct{ Data map[string]string }
	if err := json.Unmarshal(admin.Get(published).Raw, &cm); err != nil {
		t.Fatal(err)
	}
	got := cm.Data
	for key, want := range map[string]string{
		"client-ca-file": "-----BEGIN CERTIFICATE-----", "requestheader-client-ca-file": "-----BEGIN CERTIFICATE-----",
		"requestheader-allowed-names": `["front-proxy-client"]`, "requestheader-username-headers": `["X-Remote-User"]`,
		"requestheader-uid-headers": "", "requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	} {
		if !strings.HasPrefix(got[key], want) || want == "" && got[key] != "" {
			t.Errorf("%s: %q", key, got[key])
		}
	}
	admin.Must(http.StatusOK, "DELETE", published, "")
	harness.Eventually(t, "the ConfigMap comes back", func() error {
		if r := admin.Do("GET", published, ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
	admin.Must(http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings", `{"metadata":{"name":"reader"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"extension-apiserver-authentication-reader"},"subjects":[{"kind":"User","name":"alice"}]}`)
	harness.Eventually(t, "alice may read it", func() error {
		if r := alice.Do("GET", published, ""); r.Code != http.StatusOK {
			return fmt.Errorf("%d %s", r.Code, r.Raw)
		}
		return nil
	})
	alice.Must(http.StatusForbidden, "GET", configMaps, "")
}
