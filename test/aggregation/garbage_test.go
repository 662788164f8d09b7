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

// owner is an entry of metadata.ownerReferences.
type owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// missing returns a reference to an owner that never existed. An object that gets one is checked again by the
// garbage collector.
func missing(uid string) owner {
	return owner{APIVersion: "v1", Kind: "Secret", Name: "nobody", UID: "11111111-2222-3333-4444-" + uid}
}

func owned(name string, owners ...owner) string {
	refs, err := json.Marshal(owners)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"metadata":{"name":%q,"ownerReferences":%s}}`, name, refs)
}

// collectGarbage has objects of the sample server own objects of the main server and vice versa. While the
// sample server is down or unregistered, no object with a live owner is deleted; when it is back, garbage is
// collected.
func collectGarbage(t *testing.T, main *harness.Server, s *sample) {
	kubectl, admin := main.Kubectl(t, "wardle"), main.HTTP(t, main.Admin)
	const configMaps = "/api/v1/namespaces/wardle/configmaps"
	gone := func(path string) {
		t.Helper()
		harness.Eventually(t, path+" is gone", func() error {
			if code, err := admin.Try(t.Context(), "GET", path, ""); code != http.StatusNotFound {
				return fmt.Errorf("%d, %v", code, err)
			}
			return nil
		})
	}
	uid := func(path, body string) string {
		t.Helper()
		return admin.Must(http.StatusCreated, "POST", path, body).Text("metadata", "uid")
	}
	suspect := func(name string, owners ...owner) {
		t.Helper()
		admin.Must(http.StatusOK, "PATCH", configMaps+"/"+name, owned(name, owners...), "Content-Type", "application/merge-patch+json")
	}
	// Only the first owner is left, and it exists.
	cleared := func(name string, first owner) {
		t.Helper()
		harness.Eventually(t, "the other owner of "+name+" is gone", func() error {
			var got struct {
				Metadata struct{ OwnerReferences []owner }
			}
			if err := json.Unmarshal(admin.Get(configMaps+"/"+name).Raw, &got); err != nil {
				return err
			}
			if refs := got.Metadata.OwnerReferences; len(refs) != 1 || refs[0] != first {
				return fmt.Errorf("%v", refs)
			}
			return nil
		})
	}

	root := owner{"v1", "ConfigMap", "root", uid(configMaps, `{"metadata":{"name":"root"}}`)}
	uid(flunders, strings.Replace(owned("leaf", root), "{", `{"apiVersion":"wardle.example.com/v1alpha1","kind":"Flunder",`, 1))
	// The collector watches the objects in the preferred version, and knows this owner from there.
	lives := owner{"wardle.example.com/v1beta1", "Flunder", "lives", uid(flunders, flunder("lives"))}
	uid(configMaps, owned("kept", lives, missing("000000000001")))
	cleared("kept", lives)
	admin.Must(http.StatusOK, "DELETE", configMaps+"/root", "")
	gone(flunders + "/leaf")

	// The server is down.
	s.stop(t)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		touch(admin, version, "down")
		available(t, admin, version+".wardle.example.com", "False")
	}
	suspect("kept", lives, missing("000000000002"))
	uid(configMaps, owned("left", missing("000000000003")))
	gone(configMaps + "/left")
	s.launch(t)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		touch(admin, version, "up")
		available(t, admin, version+".wardle.example.com", "True")
	}
	// The collector retries with increasing delays; another change makes it check at once.
	suspect("kept", lives, missing("000000000007"))
	cleared("kept", lives)

	// The server is unregistered.
	kubectl.Must("delete", "apiservice", "v1alpha1.wardle.example.com", "v1beta1.wardle.example.com")
	suspect("kept", lives, missing("000000000004"))
	gone(flunders + "/lives")
	// The collector's watch ends, and its next list must not see an empty collection.
	s.stop(t)
	for i := range 10 {
		uid(configMaps, owned("left", missing(fmt.Sprintf("%012d", 500+i))))
		gone(configMaps + "/left")
	}
	s.launch(t)
	s.register(t, kubectl)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		available(t, admin, version+".wardle.example.com", "True")
	}
	suspect("kept", lives, missing("000000000008"))
	cleared("kept", lives)
	harness.Eventually(t, "the owner is deleted", func() error {
		if code, err := admin.Try(t.Context(), "DELETE", flunders+"/lives", ""); code != http.StatusOK {
			return errors.Join(fmt.Errorf("code %d", code), err)
		}
		return nil
	})
	// The collector may observe the deletion much later, because of the increasing delays between its watches
	// of a server that was down. This change makes it check the object at once.
	if code, err := admin.Try(t.Context(), "PATCH", configMaps+"/kept", owned("kept", lives, missing("000000000006")), "Content-Type", "application/merge-patch+json"); code != http.StatusOK && code != http.StatusNotFound {
		t.Errorf("%d, %v", code, err)
	}
	gone(configMaps + "/kept")
}
