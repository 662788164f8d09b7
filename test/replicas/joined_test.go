package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/internal/server/storage/members"
	"github.com/gatehouse-dev/gatehouse/test/harness"
)

// peer is where a member is reached by the others: through a link.
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

// newToken makes a token on a server, in a file.
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

// begun is the first server of a cluster, on a directory that may have data.
func begun(t testing.TB, dir string, flags ...string) (*harness.Server, peer) {
	t.Helper()
	p := newPeer(t)
	return harness.StartOn(t, dir, append(append([]string{"--cluster"}, p.flags...), flags...)...), p
}

// joins are the flags of a server that joins.
func joins(first *harness.Server, token string, p peer, flags ...string) []string {
	return append(append([]string{"--join", first.URL, "--join-token-file", token}, p.flags...), flags...)
}

// newJoinedFleet is three servers with one etcd, of which each has a member.
func newJoinedFleet(t testing.TB, flags ...string) *fleet {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a while")
	}
	f := &fleet{t: t, hooks: harness.NewWebhookServer(t, nil), registered: map[string]bool{}}
	add := func(s *harness.Server, p peer) {
		f.servers, f.clients, f.links = append(f.servers, s), append(f.clients, rest.CopyConfig(s.Admin)), append(f.links, []*link{p.link})
	}
	first, p := begun(t, t.TempDir(), flags...)
	add(first, p)
	token := newToken(t, first, 2)
	for range 2 {
		p := newPeer(t)
		add(harness.Start(t, joins(first, token, p, flags...)...), p)
	}
	return f
}

// member asks a server how its member is.
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

// leader is the server whose member leads.
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

// restartAll starts servers that were killed, which need each other to be ready.
func restartAll(t testing.TB, servers ...*harness.Server) {
	t.Helper()
	var starting sync.WaitGroup
	for _, s := range servers {
		starting.Go(func() { s.Restart(t) })
	}
	starting.Wait()
}

// TestHistoriesOfJoinedServers proves S31.9 in strict mode: no write escapes a registration that was acknowledged before it
// began, and no acknowledged write is lost, while members are killed, paused and cut off from each other.
func TestHistoriesOfJoinedServers(t *testing.T) {
	t.Parallel()
	judged, _ := extent()
	f := newJoinedFleet(t, "--admission-consistency", "strict")
	f.tellers()
	h := newHistory()
	rounds := 1
	if n, err := strconv.Atoi(os.Getenv("GATEHOUSE_FAULT_ROUNDS")); err == nil {
		rounds = n
	}
	f.record(t, h, judged, func(ctx context.Context) {
		fallen := 0
		kill := func(server func() int) (fail, repair func()) {
			return func() { fallen = server(); f.servers[fallen].Kill(t) }, func() { f.servers[fallen].Restart(t) }
		}
		type fault struct {
			name         string
			fail, repair func()
		}
		var all []fault
		for i := range f.servers {
			fail, repair := kill(func() int { return i })
			all = append(all, fault{fmt.Sprintf("server %d is killed", i), fail, repair})
		}
		fail, repair := kill(f.leader)
		all = append(all, fault{"the leader is killed", fail, repair},
			fault{"the leader hangs", func() { fallen = f.leader(); f.servers[fallen].Pause(t) }, func() { f.servers[fallen].Resume(t) }},
			fault{"the leader ends in order", func() { fallen = f.leader(); f.servers[fallen].Stop(t) }, func() { f.servers[fallen].Restart(t) }},
			fault{"two servers are killed", func() { f.servers[0].Kill(t); f.servers[1].Kill(t) }, func() { restartAll(t, f.servers[:2]...) }},
			fault{"all members are cut off from each other",
				func() { f.eachPeer((*link).Cut) }, func() { f.eachPeer((*link).Restore) }},
			fault{"nothing comes through between the members",
				func() { f.eachPeer((*link).Hang) }, func() { f.eachPeer((*link).Restore) }})
		for range rounds {
			for _, fault := range all {
				before := h.count()
				fault.fail()
				pause(ctx, 4*time.Second)
				during := h.count()
				fault.repair()
				pause(ctx, 2*time.Second)
				t.Logf("%s: %d writes judged, %d after", fault.name, during-before, h.count()-during)
			}
		}
	})
	h.report(t, 0, 0)
	f.lostNone(h)
}

func (f *fleet) eachPeer(call func(*link)) {
	for _, links := range f.links {
		call(links[0])
	}
}

// lostNone fails the test when a server does not have all objects that were acknowledged.
func (f *fleet) lostNone(h *history) {
	f.t.Helper()
	for i := range f.servers {
		var there map[string]bool
		harness.Eventually(f.t, "the servers answer again", func() error {
			a, err := f.client(i).send(harness.Context(f.t), http.MethodGet, configMaps, nil)
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
		for _, j := range h.judgements {
			if j.created != "" && !there[j.created] {
				f.t.Errorf("server %d lost %s", i, j.created)
			}
		}
	}
}

// S31.1, S31.2, S31.4, S31.7, S31.8, S31.10: one server becomes three by flags. Its objects, its authority and its tokens stay.
func TestServersJoin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	alone := harness.StartOn(t, dir)
	h := alone.HTTP(t, nil)
	h.Must(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"before"}}`)
	alone.Stop(t)

	first, p := begun(t, dir)
	token := newToken(t, first, 2)
	secret := strings.Split(string(read(t, token)), ".")[2]
	second := harness.Start(t, joins(first, token, newPeer(t))...)
	third := harness.Start(t, joins(second, token, newPeer(t))...)
	all := []*harness.Server{first, second, third}
	for i, s := range all {
		// Everyone's kubeconfig is good everywhere.
		other := *s
		other.Admin = rest.CopyConfig(all[(i+1)%3].Admin)
		other.Admin.Host = s.URL
		other.HTTP(t, nil).Must(http.StatusOK, "GET", configMaps+"/before", "")
		h := s.HTTP(t, nil)
		h.Must(http.StatusCreated, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"by-%d"}}`, i))
		if r := harness.Run(t, "cluster", "status", "--data-dir", s.DataDir); r.Code != 0 || strings.Count(r.Out, "leader") != 1 || strings.Count(r.Out, " member ") != 2 {
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
	if r := harness.Run(t, "cluster", "token", "list", "--data-dir", third.DataDir); !strings.Contains(r.Out, " 0 ") || strings.Contains(r.Out, secret) {
		t.Errorf("%s%s", r.Out, r.Err)
	}
	// A token is good for two servers.
	if said := harness.Refuses(t, joins(first, token, newPeer(t))...); !strings.Contains(said, "used for as many servers as it is for") {
		t.Errorf("a third server: %s", said)
	}
	// A member needs no token, and no flags.
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	second.Stop(t)
	second.Flags()
	second.Restart(t)
	second.HTTP(t, nil).Must(http.StatusOK, "GET", configMaps+"/by-2", "")

	// A backup of any member has all objects.
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

	// A member whose data are gone is refused, whatever its flags say, until it is removed.
	name := state(t, third).Name
	third.Kill(t)
	if err := os.RemoveAll(filepath.Join(third.DataDir, "etcd")); err != nil {
		t.Fatal(err)
	}
	token = newToken(t, first, 1)
	for _, flags := range [][]string{nil, {"--cluster"}, {"--join", first.URL, "--join-token-file", token}} {
		r := harness.Run(t, append([]string{"serve", "--data-dir", third.DataDir, "--secure-port", "0"}, flags...)...)
		if r.Code == 0 || !strings.Contains(r.Err, "gatehouse cluster remove "+name) {
			t.Errorf("%v: %d, %s", flags, r.Code, r.Err)
		}
	}
	if r := harness.Run(t, "cluster", "status", "--data-dir", first.DataDir); r.Code != 1 || !strings.Contains(r.Out, "down") {
		t.Errorf("status: %d\n%s%s", r.Code, r.Out, r.Err)
	}
	// Removing another one would leave no majority.
	if r := harness.Run(t, "cluster", "remove", state(t, second).Name, "--data-dir", first.DataDir); r.Code != 1 || !strings.Contains(r.Err, "less than a majority") {
		t.Errorf("%d: %s", r.Code, r.Err)
	}
	if r := harness.Run(t, "cluster", "remove", name, "--data-dir", first.DataDir); r.Code != 0 {
		t.Fatal(r.Err)
	}
	if r := harness.Run(t, "cluster", "status", "--data-dir", first.DataDir); r.Code != 0 || !strings.Contains(r.Out, "2 members bear the loss of no more") {
		t.Errorf("status: %d\n%s%s", r.Code, r.Out, r.Err)
	}
	third.Flags(joins(first, token, newPeer(t))...)
	third.Restart(t)
	third.HTTP(t, nil).Must(http.StatusOK, "GET", configMaps+"/by-2", "")

	// Two of three are lost for good: writes end with an error, and the last one goes on alone.
	second.Kill(t)
	third.Kill(t)
	began := time.Now()
	if r := first.HTTP(t, nil).Do("POST", configMaps+"?timeout=10s", `{"metadata":{"name":"without"}}`); r.Code < 500 || time.Since(began) > 30*time.Second {
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

// S31.6: a server that would judge requests differently does not join.
func TestServersThatWouldJudgeDifferently(t *testing.T) {
	t.Parallel()
	first, _ := begun(t, t.TempDir())
	token := newToken(t, first, 1)
	for want, flags := range map[string][]string{
		`--enable-admission-plugins: the servers of the cluster have "`: {"--disable-admission-plugins", "NamespaceLifecycle"},
		"--feature-gates: ":    {"--feature-gates", "AllAlpha=true"},
		"--emulated-version: ": {"--emulated-version", "1.36"},
		"--etcd-prefix: ":      {"--etcd-prefix", "/other"},
	} {
		if said := harness.Refuses(t, joins(first, token, newPeer(t), flags...)...); !strings.Contains(said, want) {
			t.Errorf("%v: %s", flags, said)
		}
	}
	harness.Start(t, joins(first, token, newPeer(t), "--disable-admission-plugins", "LimitRanger", "--allow-different-judging")...)
}

// S31.5: servers that join at once become members one after the other.
func TestServersJoinAtOnce(t *testing.T) {
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

// S31.4: a server that is killed at any moment of joining joins with the same command. GATEHOUSE_JOIN_KILLS is the number of
// moments.
func TestAServerIsKilledWhileItJoins(t *testing.T) {
	t.Parallel()
	moments := 5
	if n, err := strconv.Atoi(os.Getenv("GATEHOUSE_JOIN_KILLS")); err == nil {
		moments = n
	}
	first, _ := begun(t, t.TempDir())
	// A start takes about that long.
	const whole = 2 * time.Second
	dir, flags := t.TempDir(), joins(first, newToken(t, first, 1), newPeer(t))
	for i := range moments {
		after := whole * time.Duration(i+1) / time.Duration(moments)
		cmd := exec.Command(harness.Binary(t), append([]string{"serve", "--data-dir", dir, "--secure-port", "0"}, flags...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	s := harness.StartOn(t, dir, flags...)
	s.HTTP(t, nil).Must(http.StatusCreated, "POST", configMaps, `{"metadata":{"name":"joined"}}`)
	if r := harness.Run(t, "cluster", "status", "--data-dir", dir); r.Code != 0 || strings.Count(r.Out, "127.0.0.1:") != 2 {
		t.Errorf("status: %d\n%s%s", r.Code, r.Out, r.Err)
	}
}
