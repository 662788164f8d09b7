package replicas

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/test/harness"
)

func TestMain(m *testing.M) {
	// A fleet is six processes, and the tests measure the delays of servers.
	if err := flag.Set("test.parallel", "3"); err != nil {
		panic(err)
	}
	os.Exit(harness.Main(m))
}

// fleet is servers on one etcd, by default three servers and three members. Each server has its own links to the members.
type fleet struct {
	t       testing.TB
	etcd    *harness.EtcdCluster
	servers []*harness.Server
	// clients are the client configurations of the servers, which may be restarted meanwhile.
	clients []*rest.Config
	links   [][]*harness.Link
	hooks   *harness.WebhookServer

	// next is the latest version number of hooks; registered contains the registered hooks.
	next       int
	registered map[string]bool
	// fallen is the stopped member of etcd.
	fallen *harness.EtcdMember
}

type link = harness.Link

// each returns a function that calls a method on the first n links.
func each(links []*link, n int) func(func(*link)) {
	return func(call func(*link)) {
		for _, l := range links[:n] {
			call(l)
		}
	}
}

func newFleet(t testing.TB, flags ...string) *fleet {
	t.Helper()
	return newFleetOf(t, 3, 3, "", flags...)
}

// newPair starts two servers on an etcd of one member, for tests of registrations and namespaces of another server. The first server
// runs the controllers.
func newPair(t testing.TB, flags ...string) *fleet {
	t.Helper()
	return newFleetOf(t, 2, 1, "", flags...)
}

// newFleetOf starts servers of a program on etcd members; an empty path means the program under test.
func newFleetOf(t testing.TB, servers, members int, program string, flags ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, etcd: harness.StartEtcdCluster(t, members), hooks: harness.NewWebhookServer(t, nil), registered: map[string]bool{}}
	for range servers {
		var links []*harness.Link
		var urls []string
		for _, m := range f.etcd.Members {
			l := harness.NewLink(t, m.Address)
			links = append(links, l)
			urls = append(urls, "https://"+l.Address)
		}
		f.links = append(f.links, links)
		args := append([]string{"--etcd-servers", strings.Join(urls, ",")}, f.etcd.Flags...)
		s := harness.StartProgram(t, program, t.TempDir(), append(args, flags...)...)
		f.servers, f.clients = append(f.servers, s), append(f.clients, rest.CopyConfig(s.Admin))
	}
	return f
}

// shared is a fleet that several tests use, one at a time.
type shared struct {
	sync.Mutex
	fleet *fleet
	life  *harness.Life
	// since is the end of its last test.
	since time.Time
}

// retire ends the fleet if no test has used it for a while.
func (s *shared) retire(t *testing.T) {
	if !s.TryLock() {
		return
	}
	defer s.Unlock()
	if s.fleet != nil && time.Since(s.since) > harness.Idle {
		s.life.End(t)
		s.fleet = nil
	}
}

// fleetKind names a function that starts a fleet.
type fleetKind string

const (
	three  fleetKind = "three servers"
	pair   fleetKind = "two servers"
	joined fleetKind = "joined servers"
)

var starts = map[fleetKind]func(testing.TB, ...string) *fleet{three: newFleet, pair: newPair, joined: newJoinedFleet}

var fleets struct {
	sync.Mutex
	// byFlags are the fleets by the flags of their servers.
	byFlags map[string]*shared
}

// sharedFleet returns a fleet with the given start and flags for tests that repair the faults that they cause. The test
// has the fleet alone, without registrations and ConfigMaps of tests before. After a failure the fleet is not used again. The
// subtests are not parallel: tests that wait for the fleet may hold all places of parallel tests.
func sharedFleet(t *testing.T, kind fleetKind, flags ...string) *fleet {
	t.Helper()
	key := strings.Join(append([]string{string(kind)}, flags...), " ")
	fleets.Lock()
	s := fleets.byFlags[key]
	if s == nil {
		s = &shared{}
		if fleets.byFlags == nil {
			fleets.byFlags = map[string]*shared{}
		}
		fleets.byFlags[key] = s
	}
	all := slices.Collect(maps.Values(fleets.byFlags))
	fleets.Unlock()
	for _, other := range all {
		other.retire(t)
	}
	s.Lock()
	t.Cleanup(func() {
		defer s.Unlock()
		s.since = time.Now()
		if t.Failed() {
			s.fleet = nil
		}
	})
	used := s.fleet != nil
	if !used {
		s.life = harness.Lasting(t)
		s.fleet = starts[kind](s.life, flags...)
	}
	f := *s.fleet
	f.t, f.hooks, f.registered = t, harness.NewWebhookServer(t, nil), map[string]bool{}
	for _, server := range f.servers {
		server.Report(t)
	}
	if used {
		f.clear()
	}
	return &f
}

// clear deletes the objects of the test before, and waits until no server applies a deleted registration.
func (f *fleet) clear() {
	f.t.Helper()
	for _, path := range []string{
		collection("mutating"), collection("validating"), bindings, policies, mutatingBindings, mutatingPolicies,
		alpha + "initializerconfigurations", alpha + "externaladmissionhookconfigurations",
		configMaps + "?includeUninitialized=true", params + "?fieldSelector=metadata.name!=default",
	} {
		f.must(http.StatusOK, 0, "DELETE", path, nil)
	}
	for i := range f.servers {
		harness.Eventually(f.t, "no registration of the test is in force", func() error {
			a, err := f.client(i).send(harness.Context(f.t), "POST", configMaps+"?dryRun=All", configMap("clear"))
			if err == nil && (a.code != http.StatusCreated || len(a.header.Values("Warning")) > 0) {
				err = fmt.Errorf("%d %s", a.code, a.body)
			}
			return err
		})
	}
}

// client sends requests to one server.
type client struct {
	base string
	http *http.Client
}

// client returns a client with separate connections.
func (f *fleet) client(server int) *client {
	f.t.Helper()
	config := f.clients[server]
	transport, err := rest.TransportFor(config)
	if err != nil {
		f.t.Fatal(err)
	}
	return &client{base: config.Host, http: &http.Client{Transport: transport}}
}

// answer is a server's response.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (c *client) send(ctx context.Context, method, path string, body any) (*answer, error) {
	data, ok := body.(string)
	if !ok && body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		data = string(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader([]byte(data)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	a := &answer{code: res.StatusCode, header: res.Header}
	a.body, err = io.ReadAll(res.Body)
	return a, err
}

// must sends a request and fails the test if its status code is unexpected.
func (f *fleet) must(code, server int, method, path string, body any) *answer {
	f.t.Helper()
	a, err := f.client(server).send(harness.Context(f.t), method, path, body)
	if err != nil || a.code != code {
		f.t.Fatalf("%s %s: %+v, %v", method, path, a, err)
	}
	return a
}

// revision returns the registration revision in the header of a write, or 0.
func (a *answer) revision() int64 {
	n, _ := strconv.ParseInt(a.header.Get("Gatehouse-Registration-Revision"), 10, 64)
	return n
}

// version returns the resourceVersion of the object.
func (a *answer) version() int64 {
	var object struct {
		Metadata struct {
			ResourceVersion int64 `json:"resourceVersion,string"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(a.body, &object); err != nil {
		panic(fmt.Sprintf("%s: %v", a.body, err))
	}
	return object.Metadata.ResourceVersion
}

// field returns a field of the body.
func field(t testing.TB, a *answer, path ...string) any {
	t.Helper()
	var body any
	if err := json.Unmarshal(a.body, &body); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	for _, name := range path {
		object, ok := body.(map[string]any)
		if !ok {
			t.Fatalf("%s has no %v", a.body, path)
		}
		body = object[name]
	}
	return body
}

// status returns the reason and the message of a Status.
func (a *answer) status() (reason, message string) {
	var status struct{ Reason, Message string }
	_ = json.Unmarshal(a.body, &status)
	return status.Reason, status.Message
}

const (
	configMaps = "/api/v1/namespaces/default/configmaps"
	group      = "/apis/admissionregistration.k8s.io/v1/"
	alpha      = "/apis/admissionregistration.k8s.io/v1alpha1/"
)

func configMap(name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}
}

// kinds maps the two hooks of a history to their kinds.
var kinds = map[string]string{
	"mutating": "MutatingWebhookConfiguration", "validating": "ValidatingWebhookConfiguration",
}

func collection(hook string) string { return group + strings.ToLower(kinds[hook]) + "s" }

// configuration returns a webhook configuration for a version of a hook, which matches the creation of
// ConfigMaps. The webhook's path contains the version.
func (f *fleet) configuration(hook string, version int) map[string]any {
	h := f.hooks.Hook(fmt.Sprintf("/%s/%d", hook, version), tell(hook, version))
	return map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": kinds[hook],
		"metadata": map[string]any{"name": "history"},
		"webhooks": []any{map[string]any{
			"name": hook + ".history.example.com", "clientConfig": h.ClientConfig(),
			"rules": []any{map[string]any{
				"operations": []string{"CREATE"}, "apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"configmaps"},
			}},
			"sideEffects": "None", "timeoutSeconds": 5, "admissionReviewVersions": []string{"v1"},
		}},
	}
}

// tell admits a request with a warning that names the hook and its version. Every third version of the
// validating hook rejects the request with the same text.
func tell(hook string, version int) harness.Answer {
	text := fmt.Sprintf("judged by %s %d", hook, version)
	if hook == "validating" && version%3 == 0 {
		return harness.Respond(map[string]any{"allowed": false, "status": map[string]any{"code": 403, "message": text}, "warnings": []string{text}})
	}
	return harness.Respond(map[string]any{"allowed": true, "warnings": []string{text}})
}

// versions extracts the versions of hooks and policies from the warnings.
func versions(header http.Header) map[string]int {
	found := map[string]int{}
	for _, text := range header.Values("Warning") {
		_, text, _ = strings.Cut(text, "judged by ")
		var hook string
		var version int
		if n, _ := fmt.Sscanf(strings.TrimSuffix(text, `"`), "%s %d", &hook, &version); n == 2 {
			found[hook] = version
		}
	}
	return found
}

// slowestRead returns an upper bound of the duration of the servers' reads of registrations, from their
// metrics.
func (f *fleet) slowestRead() time.Duration {
	f.t.Helper()
	slowest := time.Duration(0)
	for _, s := range f.servers {
		m := s.HTTP(f.t, nil).Metrics()
		const name = "gatehouse_admission_registrations_read_duration_seconds"
		total := m.Value(name+"_count", `result="success"`)
		bound := 30.0
		for _, le := range []string{"0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2", "5", "10"} {
			if m.Value(name+"_bucket", `result="success"`, `le="`+le+`"`) == total {
				bound, _ = strconv.ParseFloat(le, 64)
				break
			}
		}
		slowest = max(slowest, time.Duration(bound*float64(time.Second)))
	}
	return slowest
}
