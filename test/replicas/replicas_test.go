package replicas

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

// TestHistories verifies S11.8 and S11.10 with several servers, for webhooks, policies and bindings of both
// kinds (S20.7), and S15.13 and S20.8 for params. With --admission-consistency=bounded, no write escapes a
// registration if it begins more than a second, plus the duration of the read, after the acknowledgement;
// with strict, no write escapes if it begins after the acknowledgement. The test runs without faults and
// while etcd members, servers and links fail; with faults, bounded means that no server uses registrations
// older than --admission-max-staleness.
func TestHistories(t *testing.T) {
	t.Parallel()
	const maxStaleness = 5 * time.Second
	judged, scheduling := extent()
	some := speed.Of(1, 6)
	// The ordinary run has the strict mode in TestHistoriesOfJoinedServers.
	modes := []string{"bounded", "strict"}[:speed.Of(1, 2)]
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			flags := controllers
			if mode == "strict" {
				flags = []string{"--admission-consistency", mode}
			}
			f := sharedFleet(t, three, flags...)
			f.tellers()
			t.Run("in peace", func(t *testing.T) {
				h := newHistory()
				// Long enough for several regular reads.
				f.record(t, h, judged, func(ctx context.Context) { pause(ctx, 4*time.Second) })
				bound := time.Duration(0)
				if mode == "bounded" {
					bound = interval + f.slowestRead() + scheduling
				}
				// The server that received a registration applies it at once, in either mode.
				h.report(t, bound, 0)
				for answer, n := range h.refused {
					t.Errorf("%d writes were answered %s", n, answer)
				}
			})
			t.Run("while things fail", func(t *testing.T) {
				h := newHistory()
				f.record(t, h, judged, f.faults(t, h, judged, some))
				bound := time.Duration(0)
				if mode == "bounded" {
					bound = maxStaleness + scheduling
				}
				h.report(t, bound, bound)
			})
		})
	}
}

// interval is the period of a server's regular reads of registrations.
const interval = time.Second

// extent returns the number of writes, and the tolerated scheduling delay of a process: with other tests on
// the machine, or alone.
func extent() (judged int, scheduling time.Duration) {
	if n, err := strconv.Atoi(os.Getenv("GATEHOUSE_JUDGED")); err == nil {
		return n, 250 * time.Millisecond
	}
	return 300, time.Second
}

// report fails the test for every escape.
func (h *history) report(t *testing.T, bound, own time.Duration) {
	t.Helper()
	escapes, longest := h.check(bound, own)
	unknown := 0
	for _, versions := range h.unknown {
		unknown += len(versions)
	}
	t.Logf("%d writes judged, %d registrations and params written, %d not acknowledged; not judged: %v; bound %s, longest escape %s",
		len(h.judgements), len(h.registrations), unknown, h.refused, bound, longest)
	for _, escape := range escapes[:min(len(escapes), 20)] {
		t.Error(escape)
	}
	if len(escapes) > 20 {
		t.Errorf("and %d more", len(escapes)-20)
	}
}

// record writes registrations to one server after the other, and ConfigMaps to all servers, until enough
// writes were evaluated and the faults are over.
func (f *fleet) record(t *testing.T, h *history, judged int, faults func(context.Context)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first := f.next
	for i, subject := range subjects {
		harness.Eventually(t, subject+" is registered", func() error {
			if f.register(ctx, h, 0, subject); len(h.registrations) == i {
				return errors.New("the write was not acknowledged")
			}
			return nil
		})
	}
	var all, writers sync.WaitGroup
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			f.register(ctx, h, i%len(f.servers), subjects[i%len(subjects)])
			select {
			case <-ctx.Done():
			case <-time.After(50*time.Millisecond + breath()):
			}
		}
	})
	over := make(chan struct{})
	all.Go(func() {
		defer close(over)
		faults(ctx)
	})
	const each = 2
	for server := range f.servers {
		c := f.client(server)
		for w := range each {
			writers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					f.judge(ctx, h, c, server, fmt.Sprintf("j-%d-%d-%d-%d", first, server, w, i))
					if h.count() < judged {
						pause(ctx, breath())
						continue
					}
					select {
					case <-over:
						return
					case <-time.After(20*time.Millisecond + 2*breath()):
					}
				}
			})
		}
	}
	writers.Wait()
	stop()
	all.Wait()
}

// breath returns the pause of a writer after each write, which leaves the machine to other tests. It is 0 if
// the environment asks for many writes or many faults.
func breath() time.Duration {
	if os.Getenv("GATEHOUSE_JUDGED") != "" || os.Getenv("GATEHOUSE_FAULTS") != "" {
		return 0
	}
	return 50 * time.Millisecond
}

// register writes the next version of a subject.
func (f *fleet) register(ctx context.Context, h *history, server int, subject string) {
	f.next++
	version := f.next
	c := f.client(server)
	defer c.http.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	at, object := f.subject(subject, version)
	if param := paramOf(object); param != nil {
		// The param of a binding exists before the binding.
		if a, err := c.send(ctx, http.MethodPost, params, param); err != nil || a.code != http.StatusCreated {
			return
		}
	}
	method, path := http.MethodPatch, at+"/history"
	if !f.registered[subject] {
		method, path = http.MethodPost, at
	}
	a, err := c.send(ctx, method, path, object)
	if err != nil || a.code >= 300 {
		// An earlier write that was not acknowledged may have created it.
		f.registered[subject] = f.registered[subject] || err == nil && a.code == http.StatusConflict
		h.lost(subject, version)
		return
	}
	r := registration{hook: subject, version: version, server: server, acknowledged: time.Now()}
	if strings.Contains(fmt.Sprint(a.header.Values("Warning")), "not yet active") {
		// The server answered because the time limit was reached (S11.8).
		r.server = -1
	}
	if subject != "param" {
		r.revision = a.version()
	}
	f.registered[subject] = true
	h.registered(r)
}

// judge sends a write that all subjects evaluate.
func (f *fleet) judge(ctx context.Context, h *history, c *client, server int, name string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	began := time.Now()
	a, err := c.send(ctx, http.MethodPost, configMaps, configMap(name))
	switch {
	case err != nil:
		h.notJudged("nothing")
	case a.code == http.StatusCreated || a.code == http.StatusForbidden && !a.unread() || a.withoutParams():
		j := judgement{server: server, began: began, revision: a.revision(), versions: versions(a.header)}
		j.answer = strconv.Itoa(a.code)
		if a.code == http.StatusCreated {
			j.created = name
		} else if len(j.versions) == 0 {
			j.answer += " " + string(a.body)
		}
		h.judged(j)
	default:
		reason, _ := a.status()
		h.notJudged(fmt.Sprintf("%d %s", a.code, reason))
	}
	if err != nil {
		// Do not retry an unavailable server in a tight loop.
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// faults causes and repairs some faults, one after the other.
func (f *fleet) faults(t *testing.T, h *history, judged, some int) func(context.Context) {
	length := 4 * time.Second
	if judged > 1000 {
		length = 8 * time.Second
	}
	return func(ctx context.Context) {
		faults := []struct {
			name         string
			fail, repair func()
		}{
			{"the leader of etcd is killed", func() { f.fallen = f.etcd.Leader(t); f.fallen.Kill(t) }, func() { f.fallen.Start(t) }},
			{"a member hangs", func() { f.etcd.Members[1].Pause(t) }, func() { f.etcd.Members[1].Resume(t) }},
			{"the leader hangs", func() { f.fallen = f.etcd.Leader(t); f.fallen.Pause(t) }, func() { f.fallen.Resume(t) }},
			{"a server is killed", func() { f.servers[2].Kill(t) }, func() { f.servers[2].Restart(t) }},
			{"a server's links to two members are cut", func() { f.links[1][0].Cut(); f.links[1][1].Cut() }, func() { f.links[1][0].Restore(); f.links[1][1].Restore() }},
			{"all links of a server hang", func() { each(f.links[0], 3)((*link).Hang) }, func() { each(f.links[0], 3)((*link).Restore) }},
		}
		for _, i := range speed.Pick(t, some, len(faults)) {
			fault := faults[i]
			before := h.count()
			t.Logf("%s", fault.name)
			fault.fail()
			pause(ctx, length)
			during := h.count()
			fault.repair()
			pause(ctx, length/2)
			t.Logf("%s: %d writes judged, %d after", fault.name, during-before, h.count()-during)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// controllers are the flags of the fleet of tests that need no others.
var controllers = []string{"--controllers", "*"}

// TestStrictNamespaces verifies for strict mode that the labels of a namespace are as fresh as registrations
// (S2.14): webhooks match a write by the labels that another server acknowledged before the write began.
func TestStrictNamespaces(t *testing.T) {
	t.Parallel()
	f := sharedFleet(t, joined, "--admission-consistency", "strict")
	configuration := f.configuration("validating", 3)
	hook := configuration["webhooks"].([]any)[0].(map[string]any)
	hook["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"judged": "yes"}}
	f.must(http.StatusCreated, 0, "POST", collection("validating"), configuration)
	prefix := f.servers[0].EmptyNamespace(t)
	for i := range speed.Of(6, 30) {
		name, at := fmt.Sprintf("%s-%d", prefix, i/2), i%3
		code, labels := http.StatusForbidden, map[string]any{"judged": "yes"}
		if i%2 == 0 {
			f.must(http.StatusCreated, at, "POST", "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name, "labels": labels}})
		} else {
			code, labels = http.StatusCreated, map[string]any{"judged": "no"}
			f.must(http.StatusOK, at, "PATCH", "/api/v1/namespaces/"+name, map[string]any{"metadata": map[string]any{"labels": labels}})
		}
		for other := range f.servers {
			f.must(code, (at+other)%3, "POST", "/api/v1/namespaces/"+name+"/configmaps", configMap(fmt.Sprintf("c%d-%d", i, other)))
		}
	}
}

// TestAllKindsInForce registers each of the four kinds on one server, waits until it is active, and checks
// that the other servers apply it at once; likewise for its deletion (S11.8).
func TestAllKindsInForce(t *testing.T) {
	t.Parallel()
	f := sharedFleet(t, three, controllers...)
	denied := f.hooks.Hook("/denied", harness.Deny(map[string]any{"message": "by the external hook"}))
	denied.Answer(func(w http.ResponseWriter, _ *harness.Review) {
		harness.WriteJSON(w, http.StatusOK, map[string]any{"status": map[string]any{"allowed": false, "status": map[string]any{"message": "by the external hook"}}})
	})
	rules := []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"configmaps"}}}
	operations := []any{map[string]any{"operations": []string{"CREATE"}, "apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"configmaps"}}}
	for i, c := range speed.Some(t, 2, []struct {
		resource, path string
		object         map[string]any
		effect         func(*answer) bool
	}{
		{"mutatingwebhookconfigurations", collection("mutating"), f.configuration("mutating", 1), func(a *answer) bool { return versions(a.header)["mutating"] == 1 }},
		{"validatingwebhookconfigurations", collection("validating"), f.configuration("validating", 3), func(a *answer) bool { return a.code == http.StatusForbidden }},
		{"initializerconfigurations", alpha + "initializerconfigurations", map[string]any{
			"metadata": map[string]any{"name": "history"}, "initializers": []any{map[string]any{"name": "one.history.example.com", "rules": rules}},
		}, func(a *answer) bool { return a.code == http.StatusAccepted }},
		{"externaladmissionhookconfigurations", alpha + "externaladmissionhookconfigurations", map[string]any{
			"metadata": map[string]any{"name": "history"}, "externalAdmissionHooks": []any{map[string]any{
				"name": "external.history.example.com", "rules": operations, "failurePolicy": "Ignore",
				"clientConfig": map[string]any{"caBundle": denied.CABundle(), "service": map[string]any{"namespace": "default", "name": "hooks"}},
			}},
		}, func(a *answer) bool {
			// The service does not exist, and failures of the call are ignored; only the state matters.
			return a.code == http.StatusCreated
		}},
	}) {
		t.Run("S11.8 "+c.resource, func(t *testing.T) {
			at := i % len(f.servers)
			wait := func(args ...string) {
				t.Helper()
				r := harness.Run(t, append([]string{"wait-in-force", "--kubeconfig", f.servers[at].Kubeconfig}, args...)...)
				if r.Code != 0 {
					t.Fatalf("wait-in-force: %d, %s", r.Code, r.Err)
				}
			}
			judged := func(what string) []*answer {
				t.Helper()
				var all []*answer
				for server := range f.servers {
					a, err := f.client(server).send(harness.Context(t), "POST", configMaps+"?includeUninitialized=true", configMap(fmt.Sprintf("%s-%d-%d", what, i, server)))
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, a)
				}
				return all
			}
			revision := f.must(http.StatusCreated, at, "POST", c.path, c.object).version()
			wait(c.resource + "/history")
			for server, a := range judged("there") {
				if !c.effect(a) || a.revision() < revision {
					t.Errorf("server %d: %d at revision %d, want at least %d: %s", server, a.code, a.revision(), revision, a.body)
				}
			}
			state := f.must(http.StatusOK, at, "GET", "/apis/gatehouse.dev/v1alpha1/registrationstates/"+c.resource+".history", nil)
			if got := field(t, state, "inForce"); got != true {
				t.Errorf("state: %s", state.body)
			}
			if got := field(t, state, "replicas").([]any); len(got) != len(f.servers) {
				t.Errorf("%d replicas: %s", len(got), state.body)
			}
			f.must(http.StatusOK, at, "DELETE", c.path+"/history", nil)
			wait(c.resource+"/history", "--deleted")
			for server, a := range judged("gone") {
				if a.code != http.StatusCreated || len(versions(a.header)) > 0 {
					t.Errorf("server %d: %d after the deletion: %s", server, a.code, a.body)
				}
			}
			f.must(http.StatusNotFound, at, "GET", "/apis/gatehouse.dev/v1alpha1/registrationstates/"+c.resource+".history", nil)
		})
	}
}

// TestStoreAway disconnects the storage of one server. For five seconds the server uses its known
// registrations. Then it refuses only requests that need admission, until the first read after the storage
// returns (S11.9 to S11.14).
func TestStoreAway(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	f := sharedFleet(t, three, controllers...)
	f.must(http.StatusCreated, 0, "POST", configMaps, configMap("there"))
	// A webhook that denies: a denied request needs no storage.
	f.must(http.StatusCreated, 0, "POST", collection("validating"), f.configuration("validating", 3))
	f.must(http.StatusOK, 0, "GET", configMaps, nil)
	harness.Eventually(t, "the hook is in force", func() error {
		a, err := f.client(0).send(harness.Context(t), "POST", configMaps+"?dryRun=All", configMap("probe"))
		if err == nil && a.code != http.StatusForbidden {
			err = fmt.Errorf("%d %s", a.code, a.body)
		}
		return err
	})
	for _, c := range []struct {
		name  string
		leave func(*link)
	}{{"S11.10 the storage refuses connections", (*link).Cut}, {"S11.10 reads hang", (*link).Hang}} {
		t.Run(c.name, func(t *testing.T) {
			client := f.client(0)
			create := func(limit time.Duration) (*answer, time.Duration) {
				t.Helper()
				began := time.Now()
				a, err := client.send(harness.Context(t), "POST", configMaps+"?timeout="+limit.String(), configMap("probe"))
				if err != nil {
					t.Fatal(err)
				}
				return a, time.Since(began)
			}
			const patient = 30 * time.Second
			if a, _ := create(patient); a.code != http.StatusForbidden {
				t.Fatalf("before: %d %s", a.code, a.body)
			}
			// On a busy machine, the registrations may be some seconds old, and no further read succeeds.
			known := time.Now()
			age := f.servers[0].HTTP(t, nil).Metrics().Single("gatehouse_admission_registrations_age_seconds")
			known = known.Add(-time.Duration(age * float64(time.Second)))
			left := time.Now()
			each(f.links[0], 3)(c.leave)
			for time.Since(known) < 4500*time.Millisecond {
				// On a busy machine, the response may come when the registrations are already too old.
				if a, took := create(patient); a.code != http.StatusForbidden && time.Since(known) < 5*time.Second {
					t.Fatalf("S11.9 %s after the storage went away: %d within %s: %s", time.Since(left), a.code, took, a.body)
				}
				pause(t.Context(), 100*time.Millisecond)
			}
			pause(t.Context(), 6500*time.Millisecond-time.Since(left))
			const limit = 3 * time.Second
			for _, which := range []string{"the first", "the next"} {
				a, took := create(limit)
				reason, message := a.status()
				if a.code != http.StatusInternalServerError || reason != "LoadingConfiguration" || a.header.Get("Retry-After") != "1" || took > 3*limit {
					t.Fatalf("S11.11 %s refused in %s: %d, Retry-After %q: %s", which, took, a.code, a.header.Get("Retry-After"), a.body)
				}
				if took < limit/2 {
					t.Errorf("S11.13 %s waited %s of %s", which, took, limit)
				}
				t.Logf("%s refused after %s: %s", which, took, message)
			}
			// Exempt requests, and requests without admission, are not refused for that reason.
			get, err := client.send(harness.Context(t), "GET", configMaps+"/there?resourceVersion=0", nil)
			if err != nil || get.code != http.StatusOK {
				t.Errorf("S11.14 a read: %+v, %v", get, err)
			}
			// A request that needs the storage ends with a timeout or 503, not with 500.
			newest, err := client.send(harness.Context(t), "GET", configMaps+"/there?timeout=1s", nil)
			if err != nil || newest.code != http.StatusGatewayTimeout && newest.code != http.StatusServiceUnavailable {
				t.Errorf("a read of the storage: %+v, %v", newest, err)
			}
			exempt, err := client.send(harness.Context(t), "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings?timeout=1s",
				`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}`)
			if err != nil {
				t.Fatal(err)
			}
			if reason, _ := exempt.status(); exempt.code < 500 || reason == "LoadingConfiguration" {
				t.Errorf("S2.40 a registration: %d %s", exempt.code, exempt.body)
			}
			// A request with enough time waits until the storage returns.
			returned := make(chan time.Time, 1)
			asked := time.Now()
			timer := time.AfterFunc(time.Second, func() {
				returned <- time.Now()
				each(f.links[0], 3)((*link).Restore)
			})
			defer timer.Stop()
			if a, _ := create(patient); a.code != http.StatusForbidden || time.Since(asked) < time.Second {
				t.Fatalf("S11.13 not judged after %s: %d %s", time.Since(asked), a.code, a.body)
			}
			back := <-returned
			since := time.Since(back)
			t.Logf("judged %s after the storage's return", since)
			// A second, or more on a busy machine.
			if since > 10*time.Second {
				t.Errorf("judged %s after the storage's return", since)
			}
			f.must(http.StatusCreated, 0, "POST", "/api/v1/namespaces/default/secrets", map[string]any{"metadata": map[string]any{"generateName": "after-"}})
			t.Logf("written %s after the storage's return", time.Since(back))
		})
	}
}

// TestServersShareWhatTheyMust starts three servers on one etcd: the credentials of one are valid on all, and
// each uses the objects that the others created at start.
func TestServersShareWhatTheyMust(t *testing.T) {
	t.Parallel()
	f := sharedFleet(t, three, controllers...)
	ns := f.servers[0].EmptyNamespace(t)
	inNamespace := "/api/v1/namespaces/" + ns
	f.must(http.StatusCreated, 0, "POST", inNamespace+"/serviceaccounts", map[string]any{"metadata": map[string]any{"name": "robot"}})
	a := f.must(http.StatusCreated, 1, "POST", inNamespace+"/serviceaccounts/robot/token", map[string]any{"spec": map[string]any{}})
	token := field(t, a, "status", "token").(string)
	for i, s := range f.servers {
		// The kubeconfig of the first server, at another address.
		admin := *f.servers[0].Admin
		admin.Host = s.URL
		from := *s
		from.Admin = &admin
		from.HTTP(t, nil).Get("/api/v1/namespaces/kube-system")
		robot := from.WithToken(token)
		review := from.HTTP(t, robot).Must(http.StatusCreated, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
		if got := fmt.Sprint(review.Body["status"]); got == "" || review.Code != http.StatusCreated {
			t.Errorf("server %d: %v", i, got)
		}
	}
	// Each server returns the traces of the others to users with permission to list traces.
	const allow = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"%s","metadata":{"name":"%s"},%s}`
	f.must(http.StatusCreated, 0, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		fmt.Sprintf(allow, "ClusterRole", ns, `"rules":[{"apiGroups":["gatehouse.dev"],"resources":["admissiontraces"],"verbs":["get","list"]}]`))
	f.must(http.StatusCreated, 0, "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/rolebindings",
		fmt.Sprintf(allow, "RoleBinding", ns, `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"`+ns+`"},"subjects":[{"kind":"ServiceAccount","name":"robot","namespace":"`+ns+`"}]`))
	id := f.must(http.StatusCreated, 0, "POST", inNamespace+"/configmaps", map[string]any{"metadata": map[string]any{"name": "traced"}}).header.Get("Gatehouse-Trace")
	f.must(http.StatusNotFound, 2, "GET", "/apis/gatehouse.dev/v1alpha1/admissiontraces/0000000000000000", nil)
	for i, s := range f.servers {
		if got := field(t, f.must(http.StatusOK, i, "GET", "/apis/gatehouse.dev/v1alpha1/admissiontraces/"+id, nil), "request", "name"); got != "traced" {
			t.Errorf("server %d: a trace of %v", i, got)
		}
		robot := s.HTTP(t, s.WithToken(token))
		robot.Must(http.StatusOK, "GET", "/apis/gatehouse.dev/v1alpha1/namespaces/"+ns+"/admissiontraces/"+id, "")
		robot.Must(http.StatusNotFound, "GET", "/apis/gatehouse.dev/v1alpha1/namespaces/"+ns+"/admissiontraces/0000000000000000", "")
		robot.Must(http.StatusForbidden, "GET", "/apis/gatehouse.dev/v1alpha1/admissiontraces/"+id, "")
	}
	// Each cluster IP is allocated only once.
	var mu sync.Mutex
	given := map[string]string{}
	services := speed.Of(5, 20)
	var all sync.WaitGroup
	for i := range f.servers {
		c := f.client(i)
		all.Go(func() {
			for n := range services {
				name := fmt.Sprintf("s%d-%d", i, n)
				a, err := c.send(t.Context(), "POST", inNamespace+"/services", map[string]any{
					"metadata": map[string]any{"name": name}, "spec": map[string]any{"ports": []any{map[string]any{"port": 80}}},
				})
				if err != nil || a.code != http.StatusCreated {
					t.Errorf("service %s: %+v, %v", name, a, err)
					continue
				}
				ip := field(t, a, "spec", "clusterIP").(string)
				mu.Lock()
				if other := given[ip]; other != "" {
					t.Errorf("services %s and %s have address %s", other, name, ip)
				}
				given[ip] = name
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(given) != len(f.servers)*services {
		t.Errorf("%d addresses: %v", len(given), slices.Collect(maps.Keys(given)))
	}
}
