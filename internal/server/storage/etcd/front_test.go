package etcd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/gatehouse-dev/gatehouse/internal/server/handling/keys"
)

const keysPrefix = "/cluster"

// testMember is a member that runs in the test.
type testMember struct {
	*Server
	t      *testing.T
	peers  *keys.Peers
	member *Member
	dir    string
	client *kubernetes.Client
	// stop ends the server once.
	stop func()
}

// newMember describes a member at a free port, without a certificate.
func newMember(t *testing.T, name string) *testMember {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	p := keys.NewPeers(keys.Files{NoSync: true}, t.TempDir())
	return &testMember{t: t, peers: p, dir: t.TempDir(), member: &Member{
		Name: name, Address: address, Listen: address, CertFile: p.CertFile, KeyFile: p.KeyFile, CAFile: p.CAFile, Prefix: keysPrefix,
	}}
}

func (m *testMember) start() {
	m.t.Helper()
	var err error
	if m.Server, err = Start(m.t.Context(), Options{
		Dir: m.dir, NoFsync: true, MinFree: -1, Member: func(context.Context) (*Member, error) { return m.member, nil },
	}); err != nil {
		m.t.Fatal(m.member.Name, err)
	}
	m.stop = sync.OnceFunc(m.Close)
	m.t.Cleanup(m.stop)
	if m.client, err = NewClient(m.t.Context(), ClientOptions{Endpoints: []string{m.Endpoint()}, DialTimeout: time.Minute}); err != nil {
		m.t.Fatal(m.member.Name, err)
	}
	m.t.Cleanup(func() { m.client.Close() })
}

func (m *testMember) record() {
	m.t.Helper()
	if err := m.RecordKeys(m.t.Context(), m.client.KV); err != nil {
		m.t.Fatal(err)
	}
}

// certify gives a member a certificate that the CA of the first member has signed.
func (m *testMember) certify(by *keys.Peers) {
	m.t.Helper()
	request, err := m.peers.Request()
	if err != nil {
		m.t.Fatal(err)
	}
	cert, trust, err := by.Sign(request, "127.0.0.1")
	if err == nil {
		err = m.peers.Accept(cert, trust)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// key is the hash of the key of a member.
func (m *testMember) key() string {
	m.t.Helper()
	c, _, err := m.member.tls()
	if err != nil {
		m.t.Fatal(err)
	}
	return hashOf(c.Certificates[0].Leaf)
}

// join lets a member join.
func (m *testMember) join(first *testMember) {
	m.t.Helper()
	if m.member.Named = first.member.Named; !m.member.Named {
		if err := PutJoining(m.t.Context(), first.client.KV, keysPrefix, Identity{Name: m.member.Name, URL: PeerURL(m.member.Address), Keys: []string{m.key()}}); err != nil {
			m.t.Fatal(err)
		}
	}
	var added interface{ GetMembers() []*pb.Member }
	await(m.t, "the member is added", func() bool {
		done, err := first.client.MemberAddAsLearner(m.t.Context(), []string{PeerURL(m.member.Address)})
		added = (*pb.MemberAddResponse)(done)
		return err == nil
	})
	var joins []string
	for _, other := range added.GetMembers() {
		name := other.Name
		if slices.Contains(other.PeerURLs, PeerURL(m.member.Address)) {
			name = m.member.Name
		}
		joins = append(joins, name+"="+other.PeerURLs[0])
	}
	m.member.Joins = strings.Join(joins, ",")
	m.start()
	m.record()
}

// id is the ID of a member.
func (m *testMember) id() types.ID { return m.etcd.Server.MemberID() }

// threeMembers are members that run.
func threeMembers(t *testing.T) (a, b, c *testMember) {
	t.Helper()
	a = newMember(t, "a")
	if err := a.peers.Prepare("127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.record()
	b, c = newMember(t, "b"), newMember(t, "c")
	for _, m := range []*testMember{b, c} {
		m.certify(a.peers)
		m.join(a)
	}
	return a, b, c
}

// attacker sends requests to peer addresses with the certificate of some member.
type attacker struct {
	t   *testing.T
	own *Member
}

func (a attacker) send(to *testMember, as types.ID, method, path string, body []byte) (*http.Response, error) {
	a.t.Helper()
	c, trusted, err := a.own.tls()
	if err != nil {
		a.t.Fatal(err)
	}
	c.RootCAs = trusted
	req, err := http.NewRequestWithContext(a.t.Context(), method, PeerURL(to.member.Address)+path, bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if as != 0 {
		req.Header.Set("X-Server-From", as.String())
	}
	req.Header.Set("X-Server-Version", version.Version)
	req.Header.Set("X-Min-Cluster-Version", version.MinClusterVersion)
	req.Header.Set("X-Etcd-Cluster-ID", to.etcd.Server.Cluster().ID().String())
	req.Header.Set("X-Raft-To", to.id().String())
	return (&http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c}}).Do(req)
}

// code is the status of an answer.
func (a attacker) code(to *testMember, as types.ID, method, path string, body []byte) int {
	a.t.Helper()
	res, err := a.send(to, as, method, path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

// proposal is a message of the consensus with which a member writes a key.
func proposal(t *testing.T, from types.ID, to *testMember, key string) []byte {
	t.Helper()
	put, err := proto.Marshal(&pb.InternalRaftRequest{
		Header: &pb.RequestHeader{ID: uint64(time.Now().UnixNano())}, Put: &pb.PutRequest{Key: []byte(key), Value: []byte("x")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return message(t, raftpb.MsgProp, from, to, &raftpb.Entry{Data: put})
}

func message(t *testing.T, kind raftpb.MessageType, from types.ID, to *testMember, entries ...*raftpb.Entry) []byte {
	t.Helper()
	body, err := proto.Marshal(&raftpb.Message{Type: &kind, From: new(uint64(from)), To: new(uint64(to.id())), Entries: entries})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func (m *testMember) has(key string) bool {
	found, err := m.client.KV.Get(m.t.Context(), key)
	return err == nil && len(found.Kvs) > 0
}

func streamOf(of types.ID) string { return rafthttp.RaftStreamPrefix + "/msgapp/" + of.String() }

// S31.11: a member accepts the keys of present members only, each in the name of its member. Both attacks with the disk of a
// removed member are replayed: a POST to /raft that writes a key, and a stream in the name of a living follower. S31.12:
// open streams end when their member is removed, on all members.
func TestARemovedMemberIsShutOut(t *testing.T) {
	a, b, c := threeMembers(t)
	await(t, "a leads", func() bool { leads, _ := a.Leads(); return leads })
	present, other := attacker{t, c.member}, attacker{t, b.member}
	// With the right key, the same requests succeed.
	if code := present.code(a, c.id(), http.MethodPost, rafthttp.RaftPrefix, proposal(t, c.id(), a, "by-c")); code != http.StatusNoContent {
		t.Fatalf("a write of a present member: %d", code)
	}
	await(t, "the write of a present member arrives", func() bool { return b.has("by-c") })
	var streams []*http.Response
	for _, to := range []*testMember{a, b} {
		res, err := present.send(to, c.id(), http.MethodGet, streamOf(c.id()), nil)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		defer res.Body.Close()
		streams = append(streams, res)
	}
	for name, code := range map[string]int{
		"a stream of another member":          other.code(a, c.id(), http.MethodGet, streamOf(c.id()), nil),
		"another stream than that of the key": other.code(a, b.id(), http.MethodGet, streamOf(c.id()), nil),
		"a write of another member":           other.code(a, c.id(), http.MethodPost, rafthttp.RaftPrefix, proposal(t, c.id(), a, "attack")),
		"a message of another member":         other.code(a, b.id(), http.MethodPost, rafthttp.RaftPrefix, message(t, raftpb.MsgHeartbeat, c.id(), a)),
		"a snapshot of another member": other.code(a, b.id(), http.MethodPost, rafthttp.RaftSnapshotPrefix,
			append(binaryLength(message(t, raftpb.MsgSnap, c.id(), a)), message(t, raftpb.MsgSnap, c.id(), a)...)),
		"nobody's message": other.code(a, 0, http.MethodPost, rafthttp.RaftPrefix, proposal(t, b.id(), a, "attack")),
	} {
		if code != http.StatusUnauthorized && code != http.StatusBadRequest {
			t.Errorf("%s: %d", name, code)
		}
	}

	removed := c.id()
	if _, err := a.client.MemberRemove(t.Context(), uint64(removed)); err != nil {
		t.Fatal(err)
	}
	for i, res := range streams {
		ended := make(chan error, 1)
		go func() { _, err := io.Copy(io.Discard, res.Body); ended <- err }()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("the stream of member %d goes on after the removal of its member", i)
		}
	}
	await(t, "b knows that c is removed", func() bool { return b.etcd.Server.IsIDRemoved(uint64(removed)) })
	if err := DeleteIdentity(t.Context(), a.client.KV, keysPrefix, "c"); err != nil {
		t.Fatal(err)
	}
	// The disk of c has the key of the CA as well.
	stolen := newMember(t, "c")
	stolen.certify(a.peers)
	for name, by := range map[string]attacker{"the removed certificate": {t, c.member}, "a new certificate": {t, stolen.member}} {
		for _, to := range []*testMember{a, b} {
			for _, as := range []types.ID{a.id(), b.id(), removed, 12345} {
				if code := by.code(to, as, http.MethodPost, rafthttp.RaftPrefix, proposal(t, as, to, "attack")); code != http.StatusUnauthorized && code != http.StatusForbidden {
					t.Errorf("%s, as %s: a write: %d", name, as, code)
				}
				if code := by.code(to, as, http.MethodGet, streamOf(as), nil); code != http.StatusUnauthorized && code != http.StatusGone {
					t.Errorf("%s, as %s: a stream: %d", name, as, code)
				}
			}
			for _, path := range []string{"/members", "/version", "/leases", "/members/hashkv", "/downgrade/enabled", rafthttp.ProbingPrefix} {
				if code := by.code(to, 0, http.MethodGet, path, nil); code != http.StatusUnauthorized {
					t.Errorf("%s: %s: %d", name, path, code)
				}
			}
		}
	}
	if a.has("attack") {
		t.Error("an attack wrote a key")
	}
	// The server of a member that was removed ends with an error.
	select {
	case err := <-c.Err():
		if !errors.Is(err, errRemoved) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the removed member goes on")
	}
}

func binaryLength(message []byte) []byte {
	return []byte{0, 0, 0, 0, 0, 0, byte(len(message) >> 8), byte(len(message))}
}

// S31.13: members of an older release have no record: their keys are compared with those at their peer addresses, and are
// recorded by the first member with this release.
func TestKeysWithoutARecord(t *testing.T) {
	a, b, c := threeMembers(t)
	for _, name := range []string{"a", "b", "c"} {
		if err := DeleteIdentity(t.Context(), a.client.KV, keysPrefix, name); err != nil {
			t.Fatal(err)
		}
	}
	stolen := newMember(t, "x")
	stolen.certify(a.peers)
	before := func() {
		t.Helper()
		if code := (attacker{t, b.member}).code(a, b.id(), http.MethodGet, "/members", nil); code != http.StatusOK {
			t.Errorf("a present member: %d", code)
		}
		for _, as := range []types.ID{0, b.id(), c.id()} {
			if code := (attacker{t, stolen.member}).code(a, as, http.MethodGet, "/members", nil); code != http.StatusUnauthorized {
				t.Errorf("another key as %s: %d", as, code)
			}
		}
	}
	before()
	// A member that starts gets its data without a record.
	c.stop()
	c.start()
	a.record()
	records, err := b.front.records(t.Context(), b.etcd)
	await(t, "the records arrive", func() bool {
		records, err = b.front.records(t.Context(), b.etcd)
		return err == nil && len(records) == 3
	})
	for _, m := range []*testMember{a, b, c} {
		if !slices.ContainsFunc(records, func(i Identity) bool { return i.Name == m.member.Name && slices.Equal(i.Keys, []string{m.key()}) }) {
			t.Errorf("%s: %+v", m.member.Name, records)
		}
	}
	before()
	// With a record, the peer address proves nothing.
	old := b.key()
	b.certify(a.peers)
	if err := addKey(t.Context(), a.client.KV, keysPrefix, "b", "another"); err != nil {
		t.Fatal(err)
	}
	if b.key() != old {
		t.Error("a renewed certificate has another key")
	}
	before()
}

// S31.14: a member returns that was away while all previous leaders were replaced.
func TestAMemberThatWasAwayKnowsNobody(t *testing.T) {
	a, b, c := threeMembers(t)
	c.stop()
	d := newMember(t, "d")
	d.certify(a.peers)
	d.join(a)
	await(t, "d leads", func() bool {
		_ = a.etcd.Server.MoveLeader(t.Context(), uint64(a.etcd.Server.Leader()), uint64(d.id()))
		leads, _ := d.Leads()
		return leads
	})
	if _, err := b.client.MemberRemove(t.Context(), uint64(a.id())); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Put(t.Context(), "while-away", "x"); err != nil {
		t.Fatal(err)
	}
	c.start()
	await(t, "c has what was written", func() bool { return c.has("while-away") })
}

// S31.14: however many requests name an unknown member, the other members are asked about it once in refusedFor.
func TestAnswersAboutMembersAreCached(t *testing.T) {
	a, b := newMember(t, "a"), newMember(t, "b")
	if err := a.peers.Prepare("127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.record()
	b.certify(a.peers)
	b.join(a)
	b.stop()
	l, err := net.Listen("tcp", b.member.Listen)
	if err != nil {
		t.Fatal(err)
	}
	var questions atomic.Int64
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepting.Go(func() {
				served := tls.Server(conn, &tls.Config{GetConfigForClient: b.front.config})
				defer served.Close()
				_ = served.SetDeadline(time.Now().Add(dialTime))
				// The consensus connects as well, but only the front asks for the members.
				if req, err := http.ReadRequest(bufio.NewReader(served)); err == nil && req.URL.Path == "/members" {
					questions.Add(1)
				}
			})
		}
	})
	start := time.Now()
	for range 20 {
		if m := a.front.askAbout(t.Context(), a.etcd, 0x1234); m != nil {
			t.Errorf("an unknown member is %v", m)
		}
	}
	l.Close()
	accepting.Wait()
	if asked, most := questions.Load(), int64(time.Since(start)/refusedFor)+1; asked == 0 || asked > most {
		t.Errorf("%d questions in %v, at most %d expected", asked, time.Since(start), most)
	}
}

// S31.15: with the files of an administrator, a certificate belongs to the members whose peer addresses it names.
func TestCertificatesOfAnAdministrator(t *testing.T) {
	a := newMember(t, "a")
	a.member.Named = true
	if err := a.peers.Prepare("127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.record()
	other := newMember(t, "b")
	request, err := other.peers.Request()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{"127.0.0.1": http.StatusOK, "127.0.0.2": http.StatusUnauthorized, "b.example": http.StatusUnauthorized} {
		cert, trust, err := a.peers.Sign(request, host)
		if err == nil {
			err = other.peers.Accept(cert, trust)
		}
		if err != nil {
			t.Fatal(err)
		}
		if code := (attacker{t, other.member}).code(a, a.id(), http.MethodGet, "/members", nil); code != want {
			t.Errorf("a certificate for %s: %d", host, code)
		}
	}
	if records, err := a.front.records(t.Context(), a.etcd); err != nil || len(records) != 0 {
		t.Error(records, err)
	}
}

// S31.16: connections from one address are bounded, except connections of members.
func TestNewcomersAreBounded(t *testing.T) {
	a := newMember(t, "a")
	if err := a.peers.Prepare("127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.record()
	var open []net.Conn
	for range maxNewcomers {
		conn, err := net.Dial("tcp", a.member.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
	}
	await(t, "all are counted", func() bool {
		a.front.mu.Lock()
		defer a.front.mu.Unlock()
		return a.front.newcomers["127.0.0.1"] == maxNewcomers
	})
	more, err := net.Dial("tcp", a.member.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer more.Close()
	if n, err := more.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes for a connection beyond the bound", n)
	}
	for _, conn := range open {
		conn.Close()
	}
	await(t, "a member gets in", func() bool {
		res, err := attacker{t, a.member}.send(a, a.id(), http.MethodGet, "/members", nil)
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}
