package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"k8s.io/klog/v2"
)

const (
	// heartbeat and election are the times in which members notice that their leader is gone, in milliseconds.
	// They are etcd's own, for members in one region.
	heartbeat, election = 100, 1000
	// catchUpTimeout is how long a member that has a leader may take to get all data.
	catchUpTimeout = 30 * time.Minute
	// promoteAgain is how often a member that joins checks whether it has caught up.
	promoteAgain = 50 * time.Millisecond
	// unheardAfter bounds how long a member may not know that the others have its name.
	unheardAfter = 500 * time.Millisecond
)

// Member configures an etcd as a member of a cluster.
type Member struct {
	// Name is the name of the member, unique in the cluster.
	Name string
	// Address is the HOST:PORT at which the other members reach this member, and Listen the IP:PORT at which it
	// listens.
	Address, Listen string
	// CertFile, KeyFile and CAFile are PEM files. CertFile and KeyFile are read again for each connection.
	CertFile, KeyFile, CAFile string
	// Named means that an administrator makes the certificates: a certificate belongs to the members whose peer address
	// it names. Otherwise Prefix is the prefix of the records of keys in etcd (Identity).
	Named  bool
	Prefix string
	// Joins are the members of the etcd that this member joins, including itself, as NAME=URL,NAME=URL. It
	// is empty for the first member, and ignored for a directory with data.
	Joins string
}

// PeerURL is the URL of a member at an address.
func PeerURL(address string) string { return (&url.URL{Scheme: "https", Host: address}).String() }

// HasData reports whether a directory has the data of a member: it was started there once.
func HasData(dir string) bool {
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	return err == nil && len(logs) > 0
}

// configure configures an etcd as a member of a cluster.
func (m *Member) configure(cfg *embed.Config) {
	peer := url.URL{Scheme: "https", Host: m.Address}
	cfg.Name, cfg.AdvertisePeerUrls = m.Name, []url.URL{peer}
	// These are for connections to other members: a front listens in place of etcd.
	cfg.PeerTLSInfo.CertFile, cfg.PeerTLSInfo.KeyFile, cfg.PeerTLSInfo.TrustedCAFile = m.CertFile, m.KeyFile, m.CAFile
	cfg.TickMs, cfg.ElectionMs = heartbeat, election
	// With the check, a server that joins just after another one would wait for five seconds. A member that joins gets
	// a vote when it has caught up, and 'gatehouse cluster remove' checks which members are up.
	cfg.StrictReconfigCheck = false
	cfg.SnapshotCatchUpEntries = etcdserver.DefaultSnapshotCatchUpEntries
	// A random token keeps members of an etcd that began anew on an empty disk apart from members of the
	// previous etcd.
	cfg.InitialCluster, cfg.InitialClusterToken = m.Name+"="+peer.String(), rand.Text()
	if m.Joins != "" {
		cfg.InitialCluster, cfg.ClusterState = m.Joins, embed.ClusterStateFlagExisting
	}
}

// errRemoved is the error of a member that the others have removed.
var errRemoved = errors.New("the cluster has removed this member: to bring the server back, start it on an empty data directory with --join and a new token")

// errUnheard is the error of a member that has to start again: etcd sends its name to the others, and serves when it
// reads the name in the log. A member that gets a snapshot with its name in it never reads it in the log, and would
// send it again after 7 s.
var errUnheard = errors.New("the member does not know that the others have its name")

// awaitMember waits until a member serves with a vote, and the others have its address. It returns errUnheard once at
// most.
func (s *Server) awaitMember(ctx context.Context) error {
	server := s.etcd.Server
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	heard, end := time.Now(), time.Now().Add(catchUpTimeout)
	warned := false
	var named time.Time
	for {
		select {
		case <-server.ReadyNotify():
			return s.enter(ctx, end)
		case <-s.failure.happened:
			return s.ended(s.failure.err)
		case <-server.StopNotify():
			return s.ended(errRemoved)
		case err := <-s.etcd.Err():
			return s.stopped(err)
		case now := <-tick.C:
			if server.Leader() != 0 {
				heard, warned = now, false
			}
			if !warned && now.Sub(heard) > lostAfter {
				warned = true
				klog.Warningf("The members of the cluster have no leader yet: %s", s.missing(ctx))
			}
			switch p := s.Progress(); {
			case s.unheard || p.Committed == 0 || p.Applied < p.Committed || !s.named():
				named = time.Time{}
			case named.IsZero():
				named = now
			case now.Sub(named) > unheardAfter:
				s.unheard = true
				return errUnheard
			}
			if now.Sub(heard) > startTimeout {
				return s.leaderless(ctx)
			}
			if now.After(end) {
				return fmt.Errorf("etcd in %s: not ready within %s", s.dir, catchUpTimeout)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leaderless is the error of a member that waited for a leader for startTimeout.
func (s *Server) leaderless(ctx context.Context) error {
	others := s.askOthers(ctx)
	text := fmt.Sprintf("etcd in %s: the members have no leader for %s: %s", s.dir, startTimeout, describe(others, s.member.expired(time.Now())))
	// Two clusters would continue if another member could come back.
	if recoverable(others) {
		text += "; if the others are lost for good, run 'gatehouse cluster recover --from-this-member'"
	}
	return errors.New(text)
}

// led reports whether the members have a leader.
func (s *Server) led() bool { return s.etcd.Server.Leader() != 0 }

// missing describes the other members that do not answer.
func (s *Server) missing(ctx context.Context) string {
	return describe(s.askOthers(ctx), s.member.expired(time.Now()))
}

// named reports whether the data of the member have its name.
func (s *Server) named() bool {
	self := s.etcd.Server.Cluster().Member(s.etcd.Server.MemberID())
	return self != nil && self.Name == s.member.Name
}

// enter gets the member its vote if it has none, and sends its address to the others if the address
// is new.
func (s *Server) enter(ctx context.Context, end time.Time) error {
	server := s.etcd.Server
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	id := server.MemberID()
	for server.IsLearner() {
		// A promotion takes a moment to arrive here.
		_, err := server.PromoteMember(ctx, uint64(id))
		select {
		case <-time.After(promoteAgain):
		case <-server.StopNotify():
			return s.ended(errRemoved)
		case <-ctx.Done():
			return fmt.Errorf("etcd in %s: the other members do not give this one a vote: %w", s.dir, errors.Join(err, context.Cause(ctx)))
		}
	}
	want := PeerURL(s.member.Address)
	for _, m := range server.Cluster().Members() {
		if m.ID == id && (len(m.PeerURLs) != 1 || m.PeerURLs[0] != want) {
			m.PeerURLs = []string{want}
			if _, err := server.UpdateMember(ctx, *m); err != nil {
				return fmt.Errorf("telling the other members the address %s of this one: %w", s.member.Address, err)
			}
		}
	}
	return nil
}

// Leads reports whether this etcd is the leader of its members, and whether they have one.
func (s *Server) Leads() (leads, led bool) {
	leader := s.etcd.Server.Leader()
	return leader == s.etcd.Server.MemberID(), leader != 0
}

// Peer is a member as known to the others.
type Peer struct {
	Name string `json:"name"`
	// Address is the HOST:PORT at which the other members reach it.
	Address string `json:"address"`
	Leader  bool   `json:"leader,omitempty"`
	// Joining reports whether it has no vote yet.
	Joining bool `json:"joining,omitempty"`
}

// Peers returns the members, including this one, in the order of their names.
func (s *Server) Peers() []Peer {
	var all []Peer
	for _, m := range s.etcd.Server.Cluster().Members() {
		p := Peer{Name: m.Name, Leader: m.ID == s.etcd.Server.Leader(), Joining: m.IsLearner}
		if len(m.PeerURLs) > 0 {
			p.Address = strings.TrimPrefix(m.PeerURLs[0], "https://")
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Members counts the members with a vote, and the members that are joining.
func (s *Server) Members() (voters, learners int) {
	for _, m := range s.Peers() {
		if m.Joining {
			learners++
		} else {
			voters++
		}
	}
	return voters, learners
}

// Progress is the progress of a member in the log.
type Progress struct {
	ID, Committed, Applied uint64
}

// Progress returns the progress of this member.
func (s *Server) Progress() Progress {
	e := s.etcd.Server
	return Progress{ID: uint64(e.MemberID()), Committed: e.CommittedIndex(), Applied: e.AppliedIndex()}
}

// Several reports whether the data belong to an etcd with several members.
func (l *Lock) Several() (several bool, err error) {
	err = readDatabase(filepath.Join(l.dir, "member", "snap", "db"), func(tx *bolt.Tx) error {
		if all := tx.Bucket(schema.Members.Name()); all != nil {
			several = all.Stats().KeyN > 1
		}
		return nil
	})
	return several, err
}

// Alone turns the data into the data of an etcd with this member only. Writes that only the other members have are
// lost. The lock is released when it returns.
func (l *Lock) Alone(ctx context.Context) error {
	s, err := Start(ctx, Options{Dir: l.dir, MinFree: -1, Alone: true, lock: l})
	if err != nil {
		return err
	}
	s.Close()
	return nil
}

// Copy copies the data to another directory.
func (l *Lock) Copy(to string) error {
	return os.CopyFS(filepath.Join(to, "member"), os.DirFS(filepath.Join(l.dir, "member")))
}
