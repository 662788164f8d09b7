package harness

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// sole is a server that several tests use, one at a time.
type sole struct {
	sync.Mutex
	server *Server
	life   *Life
	// since is the end of its last test.
	since time.Time
	// used contains the names of the tests that used the server.
	used map[string]bool
}

var soles struct {
	sync.Mutex
	// byFlags are the servers by their flags.
	byFlags map[string]*sole
}

// Sole returns a server with the flags of Shared and the given flags of serve, for tests whose registrations
// affect the requests of other tests. One test uses it at a time, without the registrations, CRDs,
// cluster roles and namespaces of tests before, and without their ConfigMaps, Secrets, pods and Deployments in default. After a
// failure the server is not used again. The subtests are not parallel: tests that wait for the server may hold
// all places of parallel tests.
func Sole(t testing.TB, flags ...string) *Server {
	t.Helper()
	speed.Server(t)
	key := strings.Join(flags, " ")
	soles.Lock()
	s := soles.byFlags[key]
	if s == nil {
		s = &sole{}
		if soles.byFlags == nil {
			soles.byFlags = map[string]*sole{}
		}
		soles.byFlags[key] = s
	}
	all := slices.Collect(maps.Values(soles.byFlags))
	soles.Unlock()
	for _, other := range all {
		other.retire(t)
	}
	s.Lock()
	t.Cleanup(func() {
		defer s.Unlock()
		s.since = time.Now()
		if t.Failed() || s.server == nil || s.server.runner == nil {
			s.server = nil
		}
	})
	if s.server != nil && s.used[t.Name()] {
		// The same test again: some objects outside namespaces remain.
		s.server.Stop(t)
		s.server = nil
	}
	if s.server != nil {
		reportFailure(t, s.server)
		s.server.clear(t)
	} else {
		s.life = Lasting(t)
		tokens := filepath.Join(s.life.TempDir(), "tokens.csv")
		if err := os.WriteFile(tokens, []byte(tokenFile()), 0o600); err != nil {
			t.Fatal(err)
		}
		s.used, s.server = map[string]bool{}, Start(s.life, append([]string{"--token-auth-file", tokens, "--runtime-config", legacy}, flags...)...)
		reportFailure(t, s.server)
	}
	s.used[t.Name()] = true
	return s.server
}

// Idle is the time without a test after which a server costs more CPU time than its start.
const Idle = 15 * time.Second

// retire ends the server if no test has used it for a while.
func (s *sole) retire(t testing.TB) {
	if !s.TryLock() {
		return
	}
	defer s.Unlock()
	if s.server != nil && time.Since(s.since) > Idle {
		s.life.End(t)
		s.server = nil
	}
}

// clear deletes the objects of the test before, and waits until no registration is active and the namespaces are gone.
func (s *Server) clear(t testing.TB) {
	t.Helper()
	h := s.HTTP(t, nil)
	const group = "/apis/admissionregistration.k8s.io/"
	for _, path := range []string{
		group + "v1/mutatingwebhookconfigurations", group + "v1/validatingwebhookconfigurations",
		group + "v1/validatingadmissionpolicybindings", group + "v1/validatingadmissionpolicies",
		group + "v1/mutatingadmissionpolicybindings", group + "v1/mutatingadmissionpolicies",
		group + "v1alpha1/initializerconfigurations", group + "v1alpha1/externaladmissionhookconfigurations",
	} {
		// An emulated release lacks some kinds.
		if r := h.Do("DELETE", path, ""); r.Code != http.StatusOK && r.Code != http.StatusNotFound {
			t.Fatalf("DELETE %s: %d %s", path, r.Code, r.Raw)
		}
	}
	Eventually(t, "no registration is active", func() error {
		if names := Names(h.Get("/apis/gatehouse.dev/v1alpha1/registrationstates")); len(names) > 0 {
			return fmt.Errorf("%q", names)
		}
		return nil
	})
	// A role of an earlier test would give its users rights in this one.
	const made = "?labelSelector=!kubernetes.io/bootstrapping"
	for _, path := range []string{
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings" + made, "/apis/rbac.authorization.k8s.io/v1/clusterroles" + made,
		"/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0",
		"/apis/apps/v1/namespaces/default/deployments", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	} {
		h.Must(http.StatusOK, "DELETE", path, "")
	}
	system := []string{"default", "kube-system", "kube-public", "kube-node-lease"}
	Eventually(t, "the namespaces are gone", func() error {
		names := slices.DeleteFunc(Names(h.Get("/api/v1/namespaces")), func(name string) bool { return slices.Contains(system, name) })
		for _, name := range names {
			h.Do("DELETE", "/api/v1/namespaces/"+name, "")
		}
		if len(names) > 0 {
			return fmt.Errorf("%q", names)
		}
		return nil
	})
}
