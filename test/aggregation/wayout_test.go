package aggregation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// S22.22, S22.28: an APIService that assigns any of the server's group versions to another server can be
// reverted through the API, even after a restart. The group apiregistration.k8s.io is tested first: while
// only that group is reassigned, no other server is involved.
func TestAnAPIServiceCanAlwaysBeTakenBack(t *testing.T) {
	t.Parallel()
	s := harness.Start(t)
	admin := s.HTTP(t, nil)
	const services = "/apis/apiregistration.k8s.io/v1/apiservices"
	type version struct{ group, version, path string }
	all := []version{{"", "v1", "/api/v1"}}
	var groups struct {
		Groups []struct {
			Name     string
			Versions []struct{ Version string }
		}
	}
	if err := json.Unmarshal(admin.Get("/apis").Raw, &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		if g.Name == "gatehouse.dev" {
			// S22.29: this group cannot be assigned to another server.
			continue
		}
		for _, v := range g.Versions {
			all = append(all, version{g.Name, v.Version, "/apis/" + g.Name + "/" + v.Version})
		}
	}
	own := func(v version) bool { return v.group == "apiregistration.k8s.io" }
	slices.SortStableFunc(all, func(a, b version) int { return strings.Compare(fmt.Sprint(own(b)), fmt.Sprint(own(a))) })
	// The own group is the first.
	all = append(all[:1:1], speed.Some(t, 4, all[1:])...)
	for _, v := range all {
		name := v.version + "." + v.group
		spec := fmt.Sprintf(`"spec":{"group":%q,"version":%q,"groupPriorityMinimum":1000,"versionPriority":10,"insecureSkipTLSVerify":true,"service":{"namespace":"nowhere","name":"nobody"}}}`, v.group, v.version)
		if own(v) {
			admin.Must(http.StatusCreated, "POST", services, `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"`+name+`"},`+spec)
			harness.Eventually(t, name+" has a condition", func() error {
				if r := admin.Get(services + "/" + name); !strings.Contains(string(r.Raw), "ServiceNotFound") {
					return fmt.Errorf("%s", r.Raw)
				}
				return nil
			})
			if speed.IsLong() {
				s.Stop(t)
				s.Restart(t)
				admin = s.HTTP(t, nil)
			}
			admin.Must(http.StatusOK, "GET", "/healthz/parts", "")
			continue
		}
		// Without the label, the server does not restore the APIService.
		admin.Must(http.StatusOK, "PATCH", services+"/"+name, `{"metadata":{"labels":null},`+spec, "Content-Type", "application/merge-patch+json")
	}
	taken := func(when string) {
		t.Helper()
		for _, v := range all {
			want := http.StatusServiceUnavailable
			if own(v) {
				want = http.StatusOK
			}
			harness.Eventually(t, when+": "+v.path, func() error {
				if code, err := admin.Try(t.Context(), "GET", v.path, ""); code != want {
					return fmt.Errorf("%d, %v; want %d", code, err, want)
				}
				return nil
			})
		}
	}
	taken("the other server has what is its own")
	s.Stop(t)
	s.Restart(t)
	admin = s.HTTP(t, nil)
	taken("after a restart")
	for _, v := range all {
		name := v.version + "." + v.group
		// The controller of conditions writes at the same time.
		harness.Eventually(t, name+" is changed", func() error {
			if r := admin.Do("PUT", services+"/"+name, changed(t, admin.Get(services+"/"+name))); r.Code != http.StatusOK {
				return fmt.Errorf("%d %s", r.Code, r.Raw)
			}
			return nil
		})
		admin.Must(http.StatusOK, "DELETE", services+"/"+name, "")
		harness.Eventually(t, v.path+" is back", func() error {
			if code, err := admin.Try(t.Context(), "GET", v.path, ""); code != http.StatusOK {
				return fmt.Errorf("%d, %v", code, err)
			}
			return nil
		})
	}
	admin.Must(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"after"}}`)
	admin.Must(http.StatusOK, "DELETE", "/api/v1/namespaces/after", "")
	harness.Eventually(t, "a namespace ends", func() error {
		if code, err := admin.Try(t.Context(), "GET", "/api/v1/namespaces/after", ""); code != http.StatusNotFound {
			return fmt.Errorf("%d, %v", code, err)
		}
		return nil
	})
}

// S22.29: the group of the server's own kinds cannot be assigned to another server, such as an agent of
// another cluster.
func TestNoOtherServerHasTheOwnGroup(t *testing.T) {
	t.Parallel()
	admin := harness.Shared(t).HTTP(t, nil)
	const services = "/apis/apiregistration.k8s.io/v1/apiservices"
	const remote = `"insecureSkipTLSVerify":true,"service":{"namespace":"gatehouse-agent","name":"gatehouse-agent"}}}`
	for _, r := range []*harness.Response{
		admin.Do("PATCH", services+"/v1alpha1.gatehouse.dev", `{"spec":{`+remote, "Content-Type", "application/merge-patch+json"),
		admin.Do("POST", services, `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v7.gatehouse.dev"},"spec":{"group":"gatehouse.dev","version":"v7","groupPriorityMinimum":1000,"versionPriority":10,`+remote),
	} {
		message := r.Refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid).Message
		harness.Contains(t, "the rejection", message, "spec.service: Forbidden: this server serves gatehouse.dev itself")
	}
	admin.Must(http.StatusOK, "PATCH", services+"/v1alpha1.gatehouse.dev", `{"spec":{"versionPriority":14}}`, "Content-Type", "application/merge-patch+json")
	admin.Get("/apis/gatehouse.dev/v1alpha1/admissiontraces")
}

// changed returns the APIService with another priority.
func changed(t *testing.T, service *harness.Response) string {
	t.Helper()
	service.Body["spec"].(map[string]any)["versionPriority"] = 11
	data, err := json.Marshal(service.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
