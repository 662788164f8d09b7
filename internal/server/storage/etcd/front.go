package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"

	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

const (
	// newcomerTime bounds a handshake and the headers of a request. maxNewcomers bounds the connections from one
	// address that have not been identified as a member's.
	newcomerTime, maxNewcomers = 10 * time.Second, 32
	// maxHeader bounds the headers of a request, and maxMessage a message of the consensus, in bytes. A snapshot
	// follows its message and has no bound: it is the database.
	maxHeader, maxMessage = 16 << 10, 256 << 20
	// dialTime bounds a connection to another member to compare its key, and provedFor and refusedFor are how
	// long a result is cached.
	dialTime, provedFor, refusedFor = 2 * time.Second, time.Minute, time.Second
	// checkEvery is how often open connections are compared with the members.
	checkEvery = 200 * time.Millisecond
	// maxMembers bounds the response of another member with the list of members, in bytes.
	maxMembers = 1 << 20
)

// front is the TLS listener between the other members and the handlers of etcd. Connecting takes a certificate that the
// CA has signed, and each request must come with the key of a present member (Identity): each member has the key of the
// CA, and so has the thief of a removed member's disk.
//
// A present member without a record runs an older release, or the record has not arrived here yet. The front then
// connects to the peer address of the member and compares the keys. In this way a member that was away also learns of
// the members that joined meanwhile.
type front struct {
	member   *Member
	ending   *ending
	server   http.Server
	listener net.Listener
	stopped  sync.WaitGroup

	// etcd is nil until etcd has read its data.
	etcd atomic.Pointer[served]

	mu        sync.Mutex
	open      map[*peerConn]bool
	newcomers map[string]int

	// dialing serializes connections to members.
	dialing sync.Mutex
	proved  map[proof]proofResult
	asked   map[types.ID]answer
}

// served is an etcd and its handlers for members.
type served struct {
	etcd    *embed.Etcd
	handler http.Handler
}

type proof struct {
	member types.ID
	key    string
}

type proofResult struct {
	same bool
	at   time.Time
}

// answer is the description of a member by the other members; nil if none of them has it.
type answer struct {
	member *membership.Member
	at     time.Time
}

// peerConn is a connection from a member, or from another client.
type peerConn struct {
	net.Conn
	front *front
	from  string
	// known is nil until a request has come with the key of a member.
	known atomic.Pointer[peerKey]
	end   sync.Once
}

// peerKey is a certificate, and the present member that owns it.
type peerKey struct {
	member types.ID
	cert   *x509.Certificate
}

// Read implements net.Conn. The timeouts of etcd apply to members only; for other connections the
// timeouts of server count.
func (c *peerConn) Read(b []byte) (int, error) {
	if c.known.Load() != nil {
		if err := c.SetReadDeadline(time.Now().Add(rafthttp.ConnReadTimeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *peerConn) Write(b []byte) (int, error) {
	if c.known.Load() != nil {
		if err := c.SetWriteDeadline(time.Now().Add(rafthttp.ConnWriteTimeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *peerConn) Close() error {
	c.end.Do(func() {
		c.front.mu.Lock()
		defer c.front.mu.Unlock()
		delete(c.front.open, c)
		if c.known.Load() == nil {
			c.front.leave(c.from)
		}
	})
	return c.Conn.Close()
}

// leave decrements the newcomers of an address; mu is held.
func (f *front) leave(from string) {
	if f.newcomers[from]--; f.newcomers[from] <= 0 {
		delete(f.newcomers, from)
	}
}

// Accept implements net.Listener.
func (f *front) Accept() (net.Conn, error) {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return nil, err
		}
		from, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		c := &peerConn{Conn: conn, front: f, from: from}
		f.mu.Lock()
		if f.newcomers[from] >= maxNewcomers {
			f.mu.Unlock()
			conn.Close()
			continue
		}
		f.newcomers[from]++
		f.open[c] = true
		f.mu.Unlock()
		return c, nil
	}
}

// Close implements net.Listener.
func (f *front) Close() error { return f.listener.Close() }

// Addr implements net.Listener.
func (f *front) Addr() net.Addr { return f.listener.Addr() }

type connKey struct{}

// newFront listens at the address of a member, and answers 503 until serve is called.
func newFront(m *Member, e *ending) (*front, error) {
	l, err := net.Listen("tcp", m.Listen)
	if err != nil {
		return nil, fmt.Errorf("--peer-address: %w", err)
	}
	f := &front{member: m, ending: e, listener: l, open: map[*peerConn]bool{}, newcomers: map[string]int{}, proved: map[proof]proofResult{}, asked: map[types.ID]answer{}}
	protocols := &http.Protocols{}
	// A connection of HTTP/1 has one request at a time, and is closed with its stream.
	protocols.SetHTTP1(true)
	f.server = http.Server{
		Handler: f, Protocols: protocols, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: f.config},
		ReadHeaderTimeout: newcomerTime, MaxHeaderBytes: maxHeader, ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c.(*tls.Conn).NetConn())
		},
	}
	f.stopped.Go(func() { _ = f.server.ServeTLS(f, "", "") })
	return f, nil
}

// serve passes requests of members on to an etcd; nil ends that.
func (f *front) serve(e *embed.Etcd) {
	if e == nil {
		f.etcd.Store(nil)
		return
	}
	f.etcd.Store(&served{e, etcdhttp.NewPeerHandler(e.GetLogger(), e.Server)})
}

// stop closes the listener and all connections.
func (f *front) stop() {
	_ = f.server.Close()
	f.stopped.Wait()
}

// watch closes connections with the key of a member that was removed, until ctx ends.
func (f *front) watch(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.check(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// check closes open connections whose keys no longer belong to present members.
func (f *front) check(ctx context.Context) {
	s := f.etcd.Load()
	if s == nil {
		return
	}
	records, err := f.records(ctx, s.etcd)
	if err != nil {
		return
	}
	f.mu.Lock()
	var gone []*peerConn
	for c := range f.open {
		if k := c.known.Load(); k != nil && !f.stays(s.etcd, records, k) {
			gone = append(gone, c)
		}
	}
	f.mu.Unlock()
	for _, c := range gone {
		klog.InfoS("Closed a connection with a key that is no longer of a member", "from", c.from, "member", c.known.Load().member)
		c.Close()
	}
}

// stays reports whether an open connection may stay.
func (f *front) stays(e *embed.Etcd, records []Identity, k *peerKey) bool {
	m := e.Server.Cluster().Member(k.member)
	switch {
	case e.Server.IsIDRemoved(uint64(k.member)):
		return false
	case m == nil:
		// This member does not have the record of the other one yet, and other members have it.
		return true
	case f.member.Named:
		return names(k.cert, m)
	}
	known := recordOf(records, m)
	return known == nil || slices.Contains(known.Keys, hashOf(k.cert))
}

// config reads the files again for each connection, because they may have been renewed.
func (f *front) config(*tls.ClientHelloInfo) (*tls.Config, error) {
	c, trusted, err := f.member.tls()
	if err != nil {
		klog.ErrorS(err, "Cannot accept connections of other members")
		return nil, err
	}
	c.ClientAuth, c.ClientCAs, c.NextProtos = tls.RequireAndVerifyClientCert, trusted, []string{"http/1.1"}
	// A session from before would not be verified again.
	c.SessionTicketsDisabled = true
	return c, nil
}

// tls reads the files of a member.
func (m *Member) tls() (*tls.Config, *x509.CertPool, error) {
	var failed error
	read := func(name string) []byte {
		data, err := files.Read(name, files.Configuration)
		failed = errors.Join(failed, err)
		return data
	}
	cert, key, ca := read(m.CertFile), read(m.KeyFile), read(m.CAFile)
	if failed != nil {
		return nil, nil, failed
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, nil, fmt.Errorf("%s and %s: %w", m.CertFile, m.KeyFile, err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(ca) {
		return nil, nil, fmt.Errorf("%s has no certificate", m.CAFile)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}, trusted, nil
}

// ServeHTTP passes a request on to etcd if the key of the connection belongs to the member that the request names.
func (f *front) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s := f.etcd.Load()
	if s == nil {
		http.Error(w, "etcd has not started yet", http.StatusServiceUnavailable)
		return
	}
	conn, _ := req.Context().Value(connKey{}).(*peerConn)
	refuse := func(code int, format string, args ...any) {
		w.Header().Set("Connection", "close")
		http.Error(w, fmt.Sprintf(format, args...), code)
	}
	from, err := speaks(req)
	if err != nil {
		refuse(http.StatusBadRequest, "%v", err)
		return
	}
	if from != 0 && s.etcd.Server.IsIDRemoved(uint64(from)) {
		// These codes tell the member that it was removed, and it ends.
		code := http.StatusForbidden
		if req.Method == http.MethodGet {
			code = http.StatusGone
		}
		refuse(code, "the cluster has removed this member")
		return
	}
	cert := req.TLS.PeerCertificates[0]
	member, err := f.identify(req.Context(), s.etcd, cert, from)
	if err != nil {
		klog.V(2).InfoS("Refused a connection to the peer address", "from", req.RemoteAddr, "speaksFor", from, "reason", err)
		refuse(http.StatusUnauthorized, "%v", err)
		return
	}
	f.mu.Lock()
	if was := conn.known.Swap(&peerKey{member, cert}); was == nil && f.open[conn] {
		f.leave(conn.from)
	}
	f.mu.Unlock()
	if req.Method == http.MethodPost && strings.HasPrefix(req.URL.Path, rafthttp.RaftPrefix) {
		if err := checkSender(req, member); err != nil {
			refuse(http.StatusUnauthorized, "%v", err)
			return
		}
	}
	s.handler.ServeHTTP(w, req)
}

// speaks returns the member in whose name a request is; 0 when the request names none.
func speaks(req *http.Request) (types.ID, error) {
	var from types.ID
	var err error
	if text := req.Header.Get("X-Server-From"); text != "" {
		if from, err = types.IDFromString(text); err != nil {
			return 0, errors.New("X-Server-From is not the ID of a member")
		}
	}
	if strings.HasPrefix(req.URL.Path, rafthttp.RaftPrefix) && req.URL.Path != rafthttp.ProbingPrefix && from == 0 {
		return 0, errors.New("X-Server-From is missing")
	}
	if strings.HasPrefix(req.URL.Path, rafthttp.RaftStreamPrefix+"/") {
		if of, err := types.IDFromString(path.Base(req.URL.Path)); err != nil || of != from {
			return 0, errors.New("the stream belongs to another member than X-Server-From")
		}
	}
	return from, nil
}

// checkSender returns an error if a raft message names another sender than the member of the connection.
func checkSender(req *http.Request, member types.ID) error {
	body := io.Reader(req.Body)
	var read []byte
	var err error
	if req.URL.Path == rafthttp.RaftSnapshotPrefix {
		// The message begins with its length. The database follows it.
		head := make([]byte, 8)
		if _, err = io.ReadFull(body, head); err != nil {
			return err
		}
		size := binary.BigEndian.Uint64(head)
		if size > maxMessage {
			return errTooLong
		}
		var message bytes.Buffer
		if _, err = io.CopyN(&message, body, int64(size)); err != nil {
			return err
		}
		read = message.Bytes()
		body = io.MultiReader(bytes.NewReader(head), bytes.NewReader(read), body)
	} else {
		if read, err = io.ReadAll(io.LimitReader(body, maxMessage+1)); err != nil {
			return err
		}
		if len(read) > maxMessage {
			return errTooLong
		}
		body = bytes.NewReader(read)
	}
	var m raftpb.Message
	if err := proto.Unmarshal(read, &m); err != nil {
		return errors.New("the message cannot be read")
	}
	switch m.GetType() {
	case raftpb.MsgProp, raftpb.MsgReadIndex, raftpb.MsgTransferLeader:
		// A member passes these on to the leader on behalf of others.
	default:
		if types.ID(m.GetFrom()) != member {
			return fmt.Errorf("the message names the sender %s, and the key belongs to %s", types.ID(m.GetFrom()), member)
		}
	}
	req.Body = struct {
		io.Reader
		io.Closer
	}{body, req.Body}
	return nil
}

var errTooLong = fmt.Errorf("the message has more than %d MiB", maxMessage>>20)

// identify returns the present member that has a key. from is the member in whose name the request is; 0 when the
// request names none.
func (f *front) identify(ctx context.Context, e *embed.Etcd, cert *x509.Certificate, from types.ID) (types.ID, error) {
	records, err := f.records(ctx, e)
	if err != nil {
		return 0, err
	}
	key, there := hashOf(cert), false
	var unrecorded []*membership.Member
	for _, m := range e.Server.Cluster().Members() {
		if from != 0 && m.ID != from {
			continue
		}
		there = true
		if f.member.Named {
			if names(cert, m) {
				return m.ID, nil
			}
			continue
		}
		switch known := recordOf(records, m); {
		case known == nil:
			unrecorded = append(unrecorded, m)
		case slices.Contains(known.Keys, key):
			return m.ID, nil
		}
	}
	if from != 0 && !there {
		// A member that was away does not have the records of members that joined meanwhile. It trusts
		// the members that it has.
		if m := f.askAbout(ctx, e, from); m != nil {
			if f.member.Named && names(cert, m) {
				return m.ID, nil
			}
			unrecorded = append(unrecorded, m)
		}
	}
	if !f.member.Named {
		for _, m := range unrecorded {
			if f.proves(ctx, m, key) {
				return m.ID, nil
			}
		}
	}
	switch {
	case from == 0:
		return 0, errors.New("the key belongs to no member of the cluster")
	case there:
		return 0, fmt.Errorf("the key does not belong to the member %s", from)
	}
	return 0, fmt.Errorf("the cluster has no member %s", from)
}

func recordOf(records []Identity, m *membership.Member) *Identity {
	if i := slices.IndexFunc(records, func(r Identity) bool { return r.of(m) }); i >= 0 {
		return &records[i]
	}
	return nil
}

// names reports whether a certificate, made by an administrator, names the host of a member's peer address.
func names(cert *x509.Certificate, m *membership.Member) bool {
	return slices.ContainsFunc(m.PeerURLs, func(text string) bool {
		u, err := url.Parse(text)
		return err == nil && cert.VerifyHostname(u.Hostname()) == nil
	})
}

// records returns the identities in the data of this member.
func (f *front) records(ctx context.Context, e *embed.Etcd) ([]Identity, error) {
	if f.member.Named {
		return nil, nil
	}
	var all []Identity
	err := f.ending.read(ctx, func(ctx context.Context) error {
		from := identities(f.member.Prefix)
		found, err := e.Server.Range(ctx, &pb.RangeRequest{Key: []byte(from), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(from)), Limit: maxIdentities, Serializable: true})
		if err != nil {
			return err
		}
		for _, kv := range found.Kvs {
			one, err := readIdentity(kv)
			if err != nil {
				return err
			}
			all = append(all, *one)
		}
		return nil
	})
	return all, err
}

// proves reports whether the server at a member's peer address has a key.
func (f *front) proves(ctx context.Context, m *membership.Member, key string) bool {
	f.dialing.Lock()
	defer f.dialing.Unlock()
	p := proof{m.ID, key}
	if known, ok := f.proved[p]; ok && time.Since(known.at) < refusedFor || known.same && time.Since(known.at) < provedFor {
		return known.same
	}
	there, err := f.member.keyAt(ctx, m.PeerURLs)
	same := err == nil && there == key
	for old, known := range f.proved {
		if time.Since(known.at) > provedFor {
			delete(f.proved, old)
		}
	}
	f.proved[p] = proofResult{same, time.Now()}
	return same
}

// keyAt returns the hash of the key of the server at the peer address of another member.
func (m *Member) keyAt(ctx context.Context, urls []string) (string, error) {
	err := errors.New("the member has no address")
	for _, text := range urls {
		var u *url.URL
		if u, err = url.Parse(text); err != nil {
			continue
		}
		var c *tls.Config
		var trusted *x509.CertPool
		if c, trusted, err = m.tls(); err != nil {
			return "", err
		}
		c.RootCAs, c.ServerName = trusted, u.Hostname()
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		var conn net.Conn
		if conn, err = (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", u.Host); err == nil {
			defer conn.Close()
			return hashOf(conn.(*tls.Conn).ConnectionState().PeerCertificates[0]), nil
		}
	}
	return "", err
}

// askAbout asks the other members that this one has about a member that it does not have; nil if none of them has
// it. The answer is cached for refusedFor: each message of an unknown leader asks, and the questions run one by one.
func (f *front) askAbout(ctx context.Context, e *embed.Etcd, id types.ID) *membership.Member {
	f.dialing.Lock()
	defer f.dialing.Unlock()
	maps.DeleteFunc(f.asked, func(_ types.ID, old answer) bool { return time.Since(old.at) >= refusedFor })
	if known, ok := f.asked[id]; ok {
		return known.member
	}
	m := f.askMembers(ctx, e, id)
	if ctx.Err() == nil {
		f.asked[id] = answer{m, time.Now()}
	}
	return m
}

func (f *front) askMembers(ctx context.Context, e *embed.Etcd, id types.ID) *membership.Member {
	records, err := f.records(ctx, e)
	if err != nil {
		return nil
	}
	for _, m := range e.Server.Cluster().Members() {
		if m.ID == e.Server.MemberID() {
			continue
		}
		for _, text := range m.PeerURLs {
			all, err := f.ask(ctx, text, recordOf(records, m))
			if err != nil {
				continue
			}
			if i := slices.IndexFunc(all, func(other *membership.Member) bool { return other.ID == id }); i >= 0 {
				return all[i]
			}
		}
	}
	return nil
}

// ask asks the member at a peer URL for the list of members. known has the keys that it may have; nil for
// any.
func (f *front) ask(ctx context.Context, peer string, known *Identity) ([]*membership.Member, error) {
	u, err := url.Parse(peer)
	if err != nil {
		return nil, err
	}
	c, trusted, err := f.member.tls()
	if err != nil {
		return nil, err
	}
	c.RootCAs, c.ServerName = trusted, u.Hostname()
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if known != nil && !slices.Contains(known.Keys, hashOf(state.PeerCertificates[0])) {
			return errors.New("the key does not belong to the member")
		}
		return nil
	}
	client := &http.Client{Timeout: dialTime, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("members").String(), nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, errors.New(res.Status)
	}
	var all []*membership.Member
	err = json.NewDecoder(io.LimitReader(res.Body, maxMembers)).Decode(&all)
	return all, err
}

// RecordKeys writes the key of this member into etcd, and the keys of other members without a record, which run an
// older release. Without a record, members compare keys by a connection to the peer address.
func (s *Server) RecordKeys(ctx context.Context, kv clientv3.KV) error {
	m := s.member
	if m == nil || m.Named {
		return nil
	}
	c, _, err := m.tls()
	if err != nil {
		return err
	}
	if err := addKey(ctx, kv, m.Prefix, m.Name, hashOf(c.Certificates[0].Leaf)); err != nil {
		return fmt.Errorf("recording the key of this member: %w", err)
	}
	records, err := s.front.records(ctx, s.etcd)
	if err != nil {
		return err
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	for _, other := range s.etcd.Server.Cluster().Members() {
		if other.Name == "" || other.Name == m.Name || recordOf(records, other) != nil {
			continue
		}
		asking.Go(func() {
			key, err := m.keyAt(ctx, other.PeerURLs)
			if err == nil {
				err = addKey(ctx, kv, m.Prefix, other.Name, key)
			}
			if err != nil {
				klog.InfoS("The key of a member is not recorded yet; its next start records it", "member", other.Name, "reason", err)
			}
		})
	}
	return nil
}
