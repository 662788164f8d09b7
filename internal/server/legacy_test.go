package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/server/api/catalog"
	"github.com/gatehouse-dev/gatehouse/plugins"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// groupVersions lists the group versions in discovery.
func groupVersions(h *harness.HTTP) []string {
	var all []string
	groups, _ := h.Get("/apis").At("groups").([]any)
	for _, g := range groups {
		versions, _ := harness.At(g, "versions").([]any)
		for _, v := range versions {
			all = append(all, fmt.Sprint(harness.At(v, "groupVersion")))
		}
	}
	slices.Sort(all)
	return all
}

// S9.8: a server serves versions that upstream no longer serves, if its --runtime-config names
// them.
func TestOldVersionsAreServedOnDemand(t *testing.T) {
	t.Parallel()
	const oldDocument = "/swagger-2.0.0.pb-v1"
	dir := t.TempDir()
	for _, tt := range speed.Some(t, 2, []struct {
		name     string
		config   []string
		versions []string
		document int
	}{
		{"none by default", nil, nil, http.StatusNotFound},
		{"one", []string{"apps/v1beta2=true"}, []string{"apps/v1beta2"}, http.StatusNotFound},
		{"all", []string{"api/legacy=true"}, []string{"apps/v1beta1", "apps/v1beta2", "extensions/v1beta1"}, http.StatusOK},
		{"a version's own entry is stronger", []string{"api/legacy=true", "apps/v1beta1=false"}, []string{"apps/v1beta2", "extensions/v1beta1"}, http.StatusOK},
		{"none again, on the same data", []string{"api/legacy=false"}, nil, http.StatusNotFound},
	}) {
		t.Run(tt.name, func(t *testing.T) {
			s := harness.StartOn(t, dir, "--runtime-config", strings.Join(tt.config, ","))
			h := s.HTTP(t, nil)
			var got []string
			for gv := range catalog.LegacyVersions() {
				path := "/apis/" + gv.String() + "/deployments"
				if h.Do("GET", path, "").Code == http.StatusOK {
					got = append(got, gv.String())
				}
			}
			slices.Sort(got)
			harness.Want(t, "served", strings.Join(got, " "), strings.Join(tt.versions, " "))
			shown := slices.DeleteFunc(groupVersions(h), func(gv string) bool {
				return gv == "apps/v1" || (!strings.HasPrefix(gv, "apps/") && !strings.HasPrefix(gv, "extensions/"))
			})
			harness.Want(t, "discovered", strings.Join(shown, " "), strings.Join(tt.versions, " "))
			harness.Want(t, oldDocument, h.Do("GET", oldDocument, "").Code, tt.document)
			// An APIService of a version that is no longer served would never become available.
			harness.Eventually(t, "APIServices are those of the served versions", func() error {
				for gv := range catalog.LegacyVersions() {
					code, wanted := h.Do("GET", "/apis/apiregistration.k8s.io/v1/apiservices/"+gv.Version+"."+gv.Group, "").Code, http.StatusNotFound
					if slices.Contains(tt.versions, gv.String()) {
						wanted = http.StatusOK
					}
					if code != wanted {
						return fmt.Errorf("%s: %d, want %d", gv, code, wanted)
					}
				}
				return nil
			})
			s.Stop(t)
		})
	}
}

// workload returns a workload object of a resource.
func workload(apiVersion, resource, metadata string) string {
	kinds := map[string]string{"controllerrevisions": "ControllerRevision", "daemonsets": "DaemonSet", "deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet"}
	rest := `"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`
	if resource == "controllerrevisions" {
		rest = `"revision":1,"data":{}`
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"generateName":"w-"%s},%s}`, apiVersion, kinds[resource], metadata, rest)
}

// S9.19: the built-in admission plugins decide a write through an old version like a write through
// the stored version.
func TestPluginsJudgeOldVersionsAsWhatIsStored(t *testing.T) {
	t.Parallel()
	var enable []string
	for _, p := range plugins.All() {
		// These plugins refuse everything, or create objects that a test needs to be missing.
		if !p.Default && !p.NeedsConfiguration && !slices.Contains([]string{"AlwaysDeny", "NamespaceAutoProvision"}, p.Name) {
			enable = append(enable, p.Name)
		}
	}
	s := harness.Start(t, "--enable-admission-plugins", strings.Join(enable, ","), "--runtime-config", "api/legacy=true", "--controllers", "namespace-controller")
	h := s.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"writer"},"rules":[{"apiGroups":["apps","extensions"],"resources":["*"],"verbs":["create"]}]}`)
	h.Must(http.StatusCreated, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"writer"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"writer"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"}]}`)
	alice := s.HTTP(t, s.As("alice"))

	// verdicts writes a resource through a version, and returns the answers.
	verdicts := func(t *testing.T, version, resource string) []string {
		ns := s.Namespace(t)
		path := "/apis/" + version + "/namespaces/" + ns + "/" + resource
		h.Must(http.StatusOK, "PATCH", "/api/v1/namespaces/"+ns, `{"metadata":{"labels":{"pod-security.kubernetes.io/warn":"restricted","pod-security.kubernetes.io/enforce":"privileged"}}}`, "Content-Type", harness.MergePatch)
		var list []string
		note := func(what string, r *harness.Response) {
			line := fmt.Sprintf("%s: %d %s", what, r.Code, r.Text("message"))
			for _, w := range r.Header.Values("Warning") {
				if strings.Contains(w, "PodSecurity") {
					line += " " + w
				}
			}
			name := r.Text("details", "name")
			if name != "" {
				line = strings.ReplaceAll(line, name, "NAME")
			}
			list = append(list, strings.ReplaceAll(line, ns, "NS"))
		}
		var first *harness.Response
		harness.Eventually(t, "the namespace's labels are in force", func() error {
			first = h.Do("POST", path, workload(version, resource, ""))
			if resource != "controllerrevisions" && !strings.Contains(strings.Join(first.Header.Values("Warning"), " "), "PodSecurity") {
				return fmt.Errorf("no warning of PodSecurity: %d %s", first.Code, first.Raw)
			}
			return nil
		})
		note("create", first)
		harness.Eventually(t, "the owner's rights are in force", func() error {
			if r := alice.Do("POST", path+"?dryRun=All", workload(version, resource, "")); r.Code != http.StatusCreated {
				return fmt.Errorf("%d %s", r.Code, r.Raw)
			}
			return nil
		})
		owned := alice.Do("POST", path, workload(version, resource, `,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u","blockOwnerDeletion":true}]`))
		note("with an owner", owned)
		count := "count/" + resource + ".apps"
		h.Must(http.StatusCreated, "POST", "/api/v1/namespaces/"+ns+"/resourcequotas", fmt.Sprintf(`{"metadata":{"name":"q"},"spec":{"hard":{%q:"1"}}}`, count))
		// No controller counts here: the test sets the status, which admission enforces.
		h.Must(http.StatusOK, "PATCH", "/api/v1/namespaces/"+ns+"/resourcequotas/q/status", fmt.Sprintf(`{"status":{"hard":{%q:"1"},"used":{%[1]q:"1"}}}`, count), "Content-Type", harness.MergePatch)
		var over *harness.Response
		harness.Eventually(t, "the quota is in force", func() error {
			if over = h.Do("POST", path, workload(version, resource, "")); over.Code != http.StatusForbidden {
				return fmt.Errorf("%d %s", over.Code, over.Raw)
			}
			return nil
		})
		note("beyond the quota", over)
		return list
	}

	stored := map[string][]string{}
	for old, now := range catalog.StoredVersions() {
		t.Run(old.GroupVersion().String()+" "+old.Resource, func(t *testing.T) {
			if stored[now.Resource] == nil {
				stored[now.Resource] = verdicts(t, now.GroupVersion().String(), now.Resource)
				text := strings.Join(stored[now.Resource], "\n")
				harness.Contains(t, "verdicts on "+now.String(), text, "exceeded quota", "blockOwnerDeletion")
			}
			harness.Want(t, "verdicts", strings.Join(verdicts(t, old.GroupVersion().String(), old.Resource), "\n"), strings.Join(stored[now.Resource], "\n"))
		})
	}
}
