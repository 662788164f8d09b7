package replicas

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/server/storage/members"
	"github.com/gatehouse-dev/gatehouse/test/harness"
	"github.com/gatehouse-dev/gatehouse/test/speed"
)

const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

// peer is the peer address of a member, behind a link.
type peer struct {
	link  *harness.Link
	flags []string
}

func newPeer(t testing.TB) peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	l.Close()
	link := harness.NewLink(t, listen)
	return peer{link, []string{"--peer-address", link.Address, "--peer-bind-address", listen}}
}

// newToken creates a join token on a server and returns its file.
func newToken(t testing.TB, s *harness.Server, uses int) string {
	t.Helper()
	r := harness.Run(t, "cluster", "token", "create", "--data-dir", s.DataDir, "--uses", strconv.Itoa(uses))
	if r.Code != 0 {
		t.Fatal(r.Err)
	}
	file := filepath.Join(t.TempDir(), "join.token")
	if err := os.WriteFile(file, []byte(r.Out), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// begun starts the first server of a cluster, on a directory that may contain data.
func begun(t testing.TB, dir string, flags ...string) (*harness.Server, peer) {
	t.Helper()
	p := newPeer(t)
	return harness.StartOn(t, dir, append(append([]string{"--cluster"}, p.flags...), flags...)...), p
}

// joins returns the flags of a joining server.
func joins(first *harness.Server, token string, p peer, flags ...string) []string {
	return append(append([]string{"--join", first.URL, "--join-token-file", token}, p.flags...), flags...)
}

// newJoinedFleet starts three servers that form one etcd cluster, with one member each.
func newJoinedFleet(t testing.TB, flags ...string) *fleet {
	t.Helper()
	return newJoinedFleetOn(t, t.TempDir(), "", flags...)
}

// newJoinedFleetOn is newJoinedFleet with the data directory of the third server, and with servers of another
// program; an empty path means the program under test.
func newJoinedFleetOn(t testing.TB, dir, program string, flags ...string) *fleet {
	t.Helper()
	return joinedFleet(t, []string{t.TempDir(), t.TempDir(), dir}, program, flags...)
}

// joinedFleet starts one server for each data directory.
func joinedFleet(t testing.TB, dirs []string, program string, flags ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, hooks: harness.NewWebhookServer(t, nil), registered: map[string]bool{}}
	add := func(s *harness.Server, p peer) {
		f.servers, f.clients, f.links = append(f.servers, s), append(f.clients, rest.CopyConfig(s.Admin)), append(f.links, []*link{p.link})
	}
	p := newPeer(t)
	first := harness.StartProgram(t, program, dirs[0], slices.Concat([]string{"--cluster"}, p.flags, flags)...)
	add(first, p)
	if len(dirs) == 1 {
		return f
	}
	token := newToken(t, first, len(dirs)-1)
	for _, dir := range dirs[1:] {
		p := newPeer(t)
		add(harness.StartProgram(t, program, dir, joins(first, token, p, flags...)...), p)
	}
	return f
}

// member returns the status of a server's member.
func (f *fleet) member(server int) (*members.Status, error) {
	a, err := f.client(server).send(harness.Context(f.t), http.MethodGet, "/cluster/member", nil)
	if err != nil {
		return nil, err
	}
	if a.code != http.StatusOK {
		return nil, fmt.Errorf("%d: %s", a.code, a.body)
	}
	s := &members.Status{}
	return s, json.Unmarshal(a.body, s)
}

// leader returns the server whose member leads.
func (f *fleet) leader() int {
	f.t.Helper()
	leader := -1
	harness.Eventually(f.t, "a member leads", func() error {
		var last error
		for i := range f.servers {
			if s, err := f.member(i); err != nil {
				last = err
			} else if s.Leader {
				leader = i
				return nil
			}
		}
		return errors.Join(errors.New("no member leads"), last)
	})
	return leader
}

// restartAll restarts killed servers, which become ready only together.
func restartAll(t testing.TB, servers ...*harness.Server) {
	t.Helper()
	var starting sync.WaitGroup
	for _, s := range servers {
		starting.Go(func() { s.Restart(t) })
	}
	starting.Wait()
}

func (f *fleet) eachPeer(call func(*link)) {
	for _, links := range f.links {
		call(links[0])
	}
}

// lostNone fails the test if a server lacks an acknowledged object of a collection.
func (f *fleet) lostNone(collection string, acknowledged []string) {
	f.t.Helper()
	for i := range f.servers {
		var there map[string]bool
		harness.Eventually(f.t, "the servers answer again", func() error {
			a, err := f.client(i).send(harness.Context(f.t), http.MethodGet, collection, nil)
			if err == nil && a.code != http.StatusOK {
				err = fmt.Errorf("%d: %s", a.code, a.body)
			}
			if err != nil {
				return err
			}
			var list struct {
				Items []struct{ Metadata struct{ Name string } }
			}
			there = map[string]bool{}
			err = json.Unmarshal(a.body, &list)
			for _, item := range list.Items {
				there[item.Metadata.Name] = true
			}
			return err
		})
		for _, name := range acknowledged {
			if !there[name] {
				f.t.Errorf("server %d lost %s", i, name)
			}
		}
	}
}

// S31.1, S31.2, S31.4, S31.8, S31.10: flags turn one server into a cluster. Its objects, its certificate authority and its
// tokens stay. The last server recovers as a cluster of one.
func TestServersJoin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	alone := harness.StartOn(t, dir)
	h := alone.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"before"}}`)
	alone.Stop(t)

	first, p := begun(t, dir)
	token := newToken(t, first, 1)
	secret := strings.Split(string(read(t, token)), ".")[2]
	second := harness.Start(t, joins(first, token, newPeer(t))...)
	all := []*harness.Server{first, second}
	for i, s := range all {
		// Each server's kubeconfig works on every server.
		other := *s
		other.Admin = rest.CopyConfig(all[(i+1)%len(all)].Admin)
		other.Admin.Host = s.URL
		other.HTTP(t, nil).Must(http.StatusOK, "GET", configMaps+"/before", "")
		h := s.HTTP(t, nil)
		h.Must(http.StatusCreated, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"by-%d"}}`, i))
		if r := harness.Run(t, "cluster", "status", "--data-dir", s.DataDir); r.Code != 0 || strings.Count(r.Out, "leader") != 1 || strings.Count(r.Out, " member ") != 1 {
			t.Errorf("status: %d\n%s%s", r.Code, r.Out, r.Err)
		}
		for _, name := range []string{"peer.key", "peer-ca.key", "../cluster/member.json"} {
			if info, err := os.Stat(filepath.Join(s.DataDir, "pki", name)); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
		if strings.Contains(s.Log(), secret) {
			t.Error("the log has the secret of the token")
		}
	}
	health := first.HTTP(t, nil).Must(http.StatusOK, "POST", "/console/view/health", `{}`)
	if body := string(health.Raw); strings.Count(body, "is the member that leads") != 1 || strings.Count(body, " is a member.") != 1 {
		t.Errorf("the console does not name the members:\n%s", body)
	}
	if r := harness.Run(t, "cluster", "token", "list", "--data-dir", second.DataDir); !strings.Contains(r.Out, " 0 ") || strings.Contains(r.Out, secret) {
		t.Errorf("%s%s", r.Out, r.Err)
	}
	// The token allows one server to join.
	if said := harness.Refuses(t, joins(first, token, newPeer(t))...); !strings.Contains(said, "used for as many servers as it is for") {
		t.Errorf("another server: %s", said)
	}
	// A member restarts without a token and without flags.
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	second.Stop(t)
	second.Flags()
	second.Restart(t)
	second.HTTP(t, nil).Must(http.StatusOK, "GET", configMaps+"/by-0", "")

	// One of two servers is lost for good: writes fail, and the other server recovers as a cluster of one.
	second.Kill(t)
	began := time.Now()
	if r := first.HTTP(t, nil).Do("POST", configMaps+"?timeout=5s", `{"metadata":{"name":"without"}}`); r.Code < 500 || time.Since(began) > 30*time.Second {
		t.Errorf("a write without a majority: %d after %s: %s", r.Code, time.Since(began), r.Raw)
	}
	first.Kill(t)
	member := state(t, first).Name
	if r := harness.RunInput(t, "no\n", "cluster", "recover", "--from-this-member", "--data-dir", dir); r.Code != 1 || !strings.Contains(r.Err, "nothing was changed") {
		t.Errorf("%d: %s", r.Code, r.Err)
	}
	if r := harness.RunInput(t, member+"\n", "cluster", "recover", "--from-this-member", "--data-dir", dir); r.Code != 0 {
		t.Fatal(r.Err)
	}
	if kept, err := filepath.Glob(filepath.Join(dir, "before-recover-*", "etcd", "member", "wal", "*.wal")); err != nil || len(kept) == 0 {
		t.Errorf("no copy of the data of before: %v", err)
	}
	first.Flags(p.flags...)
	first.Restart(t)
	first.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"alone"}}`)
	harness.Start(t, joins(first, newToken(t, first, 1), newPeer(t))...).HTTP(t, nil).Must(http.StatusOK, "GET", configMaps+"/alone", "")
}

// S31.5, S31.7, S31.10: a backup of any of three members contains all objects. A member that lost its data is refused,
// whatever its flags, until it is removed.
func TestAMemberThatLostItsData(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	f := newJoinedFleet(t)
	first, second, third := f.servers[0], f.servers[1], f.servers[2]
	f.must(http.StatusCreated, 1, "POST", configMaps, configMap("by-1"))
	backup := filepath.Join(t.TempDir(), "backup.tar")
	if r := harness.Run(t, "backup", "save", "--data-dir", third.DataDir, backup); r.Code != 0 {
		t.Fatal(r.Err)
	}
	third.Stop(t)
	if r := harness.Run(t, "backup", "save", "--data-dir", third.DataDir, backup+".2"); r.Code != 0 {
		t.Errorf("of a member that does not run: %s", r.Err)
	}
	restored := t.TempDir()
	if r := harness.Run(t, "backup", "restore", "--data-dir", restored, backup); r.Code != 0 {
		t.Fatal(r.Err)
	}
	harness.StartOn(t, restored).HTTP(t, nil).Must(http.StatusOK, "GET", configMaps+"/by-1", "")
	third.Restart(t)

	name := state(t, third).Name
	third.Kill(t)
	if err := os.RemoveAll(filepath.Join(third.DataDir, "etcd")); err != nil {
		t.Fatal(err)
	}
	token := newToken(t, first, 1)
	for _, flags := range [][]string{nil, {"--cluster"}, {"--join", first.URL, "--join-token-file", token}} {
		r := harness.Run(t, append([]string{"serve", "--data-dir", third.DataDir, "--secure-port", "0"}, flags...)...)
		if r.Code == 0 || !strings.Contains(r.Err, "gatehouse cluster remove "+name) {
			t.Errorf("%v: %d, %s", flags, r.Code, r.Err)
		}
	}
	if r := harness.Run(t, "cluster", "status", "--data-dir", first.DataDir); r.Code != 1 || !strings.Contains(r.Out, "down") {
		t.Errorf("status: %d\n%s%s", r.Code, r.Out, r.Err)
	}
	// Removing another member would leave no majority.
	if r := harness.Run(t, "cluster", "remove", state(t, second).Name, "--data-dir", first.DataDir); r.Code != 1 || !strings.Contains(r.Err, "less than a majority") {
		t.Errorf("%d: %s", r.Code, r.Err)
	}
	if r := harness.Run(t, "cluster", "remove", name, "--data-dir", first.DataDir); r.Code != 0 || !strings.Contains(r.Out, "peer-ca.key") || !strings.Contains(r.Out, "rotate-keys") {
		t.Fatalf("remove: %d\n%s%s", r.Code, r.Out, r.Err)
	}
	if r := harness.Run(t, "cluster", "status", "--data-dir", first.DataDir); r.Code != 0 || !strings.Contains(r.Out, "2 members tolerate no more failed members") {
		t.Errorf("status: %d\n%s%s", r.Code, r.Out, r.Err)
	}
	third.Flags(joins(first, token, newPeer(t))...)
	third.Restart(t)
	third.HTTP(t, nil).Must(http.StatusOK, "GET", configMaps+"/by-1", "")

	// Two of three servers are lost for good.
	second.Kill(t)
	third.Kill(t)
	began := time.Now()
	if r := first.HTTP(t, nil).Do("POST", configMaps+"?timeout=10s", `{"metadata":{"name":"without"}}`); r.Code < 500 || time.Since(began) > 30*time.Second {
		t.Errorf("a write without a majority: %d after %s: %s", r.Code, time.Since(began), r.Raw)
	}
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func state(t testing.TB, s *harness.Server) *members.State {
	t.Helper()
	state, err := members.ReadState(s.DataDir)
	if err != nil || state == nil {
		t.Fatal(state, err)
	}
	return state
}

// S31.6, S31.7: a server whose settings would change admission decisions joins only with a flag. When it is removed, it ends.
func TestServersThatWouldJudgeDifferently(t *testing.T) {
	t.Parallel()
	const mode = "strict"
	f := sharedFleet(t, joined, "--admission-consistency", mode)
	first := f.servers[0]
	token := newToken(t, first, 1)
	differences := map[string][]string{
		`--disable-admission-plugins: the servers of the cluster have "`: {"--disable-admission-plugins", "NamespaceLifecycle"},
		"--feature-gates: ":    {"--feature-gates", "AllAlpha=true"},
		"--emulated-version: ": {"--emulated-version", "1.36"},
		"--etcd-prefix: ":      {"--etcd-prefix", "/other"},
	}
	for _, want := range speed.Some(t, 1, slices.Sorted(maps.Keys(differences))) {
		flags := append([]string{"--admission-consistency", mode}, differences[want]...)
		if said := harness.Refuses(t, joins(first, token, newPeer(t), flags...)...); !strings.Contains(said, want) {
			t.Errorf("%v: %s", flags, said)
		}
	}
	f.remove(t, harness.Start(t, joins(first, token, newPeer(t), "--admission-consistency", mode, "--disable-admission-plugins", "LimitRanger", "--allow-different-judging")...))
}

// remove removes the member of a server, and waits until the server ends.
func (f *fleet) remove(t *testing.T, s *harness.Server) {
	t.Helper()
	f.removeNamed(t, state(t, s).Name)
	if code, log := s.AwaitEnd(t); code != 1 || !strings.Contains(log, "the cluster has removed this member") {
		t.Errorf("the removed server ended with %d and\n%s", code, log)
	}
}

func (f *fleet) removeNamed(t *testing.T, name string) {
	t.Helper()
	harness.Eventually(t, "the member is removed", func() error {
		r := harness.Run(t, "cluster", "remove", name, "--data-dir", f.servers[0].DataDir)
		if r.Code != 0 && !strings.Contains(r.Err, "no member") {
			return errors.New(r.Err)
		}
		return nil
	})
}

// S31.5: servers that join at the same time become members one after the other.
func TestServersJoinAtOnce(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	first, _ := begun(t, t.TempDir())
	token := newToken(t, first, 4)
	var starting sync.WaitGroup
	for range 4 {
		flags, dir := joins(first, token, newPeer(t)), t.TempDir()
		starting.Go(func() { harness.StartOn(t, dir, flags...) })
	}
	starting.Wait()
	if r := harness.Run(t, "cluster", "status", "--data-dir", first.DataDir); r.Code != 0 || strings.Count(r.Out, " member ") != 4 {
		t.Errorf("status: %d\n%s%s", r.Code, r.Out, r.Err)
	}
}

// killAfter starts a server and kills it after a delay.
func killAfter(t *testing.T, after time.Duration, dir string, flags ...string) {
	t.Helper()
	cmd := exec.Command(harness.Binary(t), append([]string{"serve", "--data-dir", dir, "--secure-port", "0"}, flags...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// S31.4: a server killed at any moment of a join can join with the same command. GATEHOUSE_JOIN_KILLS is the
// number of moments.
func TestAServerIsKilledWhileItJoins(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	moments := 20
	if n, err := strconv.Atoi(os.Getenv("GATEHOUSE_JOIN_KILLS")); err == nil {
		moments = n
	}
	began := time.Now()
	first, _ := begun(t, t.TempDir())
	// A join takes about as long as this start.
	whole := 2 * time.Since(began)
	dir, flags := t.TempDir(), joins(first, newToken(t, first, 1), newPeer(t))
	random := speed.Random(t)
	for range moments {
		after := whole * time.Duration(1+random.IntN(moments*16)) / time.Duration(moments*16)
		killAfter(t, after, dir, flags...)
	}
	s := harness.StartOn(t, dir, flags...)
	s.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"joined"}}`)
	if r := harness.Run(t, "cluster", "status", "--data-dir", dir); r.Code != 0 || strings.Count(r.Out, "127.0.0.1:") != 2 {
		t.Errorf("status: %d\n%s%s", r.Code, r.Out, r.Err)
	}
}

// S31.8: without a majority, writes and linearizable reads fail within their timeout.
func (f *fleet) withoutMajority(t *testing.T) {
	t.Helper()
	named := func(name string) any { return map[string]any{"metadata": map[string]any{"name": name}} }
	f.must(http.StatusCreated, 0, "POST", leases, named("there"))
	f.servers[1].Kill(t)
	f.servers[2].Kill(t)
	const limit = 5 * time.Second
	for _, c := range []struct{ method, path string }{
		{"POST", configMaps}, {"POST", leases}, {"PATCH", leases + "/there"}, {"DELETE", leases + "/there"}, {"GET", leases + "/there"}, {"GET", leases},
	} {
		began := time.Now()
		var body any
		switch c.method {
		case "POST":
			body = named("without")
		case "PATCH":
			body = named("there")
		}
		a, err := f.client(0).send(harness.Context(t), c.method, c.path+"?timeout="+limit.String(), body)
		// A busy machine answers late.
		if took := time.Since(began); err != nil || took > 2*limit {
			t.Errorf("%s %s: %v after %s", c.method, c.path, err, took)
			continue
		}
		// A cache that is being reinitialized makes clients retry.
		if reason, message := a.status(); a.code < 500 && a.code != http.StatusTooManyRequests || reason == "" || message == "" {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.code, a.body)
		}
	}
	// S31.21: by now the loss is detected, and the error names the missing members at once, whatever the
	// timeout of the request.
	for _, c := range []struct{ method, path string }{{"POST", configMaps}, {"GET", leases + "/there"}, {"GET", leases}} {
		began := time.Now()
		var body any
		if c.method == "POST" {
			body = named("without")
		}
		a, err := f.client(0).send(harness.Context(t), c.method, c.path, body)
		if took := time.Since(began); err != nil || took > 2*limit {
			t.Errorf("%s %s: %v after %s", c.method, c.path, err, took)
			continue
		}
		for _, want := range []string{"the cluster has no majority", "1 of 3 members answer", state(t, f.servers[1]).Name, state(t, f.servers[2]).Address} {
			if _, message := a.status(); a.code != http.StatusServiceUnavailable || !strings.Contains(message, want) {
				t.Errorf("%s %s: %d, no %q in %s", c.method, c.path, a.code, want, a.body)
			}
		}
	}
	r := harness.Run(t, "cluster", "status", "--data-dir", f.servers[0].DataDir)
	if r.Code != 1 || !strings.Contains(r.Err, "a majority of the members must run, and no other one answers") || !strings.Contains(r.Err, state(t, f.servers[1]).Name) {
		t.Errorf("status: %d, %s", r.Code, r.Err)
	}
	restartAll(t, f.servers[1:]...)
}

// S31.5, S31.8: a member that was down while the others compacted the log that it lacks recovers from a
// snapshot.
func TestMembersThatWereAway(t *testing.T) {
	speed.Long(t)
	t.Parallel()
	f := newJoinedFleet(t)
	away := f.servers[2]
	snapshots := func() int {
		found, err := filepath.Glob(filepath.Join(away.DataDir, "etcd", "member", "snap", "*.snap"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	before := snapshots()
	r := harness.Run(t, "etcd", "endpoints", "--data-dir", f.servers[0].DataDir)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{strings.TrimSpace(r.Out)}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(r.Err, err)
	}
	defer client.Close()
	// etcd keeps 5,000 entries for slow members, and all entries for 30 s after it sent a snapshot, for
	// example to the joining members.
	const entries, writers = 6000, 30
	for deadline := time.Now().Add(5 * time.Minute); snapshots() == before; {
		if time.Now().After(deadline) {
			t.Fatal("the member always gets the log, and not a snapshot")
		}
		away.Kill(t)
		var writing sync.WaitGroup
		for w := range writers {
			writing.Go(func() {
				for n := range entries / writers {
					if _, err := client.Put(t.Context(), fmt.Sprintf("/away/%d-%d", w, n), "x"); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		writing.Wait()
		meanwhile := fmt.Sprintf("meanwhile-%d", time.Now().UnixNano())
		f.must(http.StatusCreated, 0, "POST", configMaps, configMap(meanwhile))
		away.Restart(t)
		f.must(http.StatusOK, 2, "GET", configMaps+"/"+meanwhile, nil)
	}
	f.must(http.StatusCreated, 0, "POST", configMaps, configMap("meanwhile"))
	f.withoutMajority(t)
	f.must(http.StatusOK, 2, "GET", configMaps+"/meanwhile", nil)
}
