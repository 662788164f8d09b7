package etcd

import (
	"testing"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// An etcd that starts removes the entries of its log as soon as they are applied. It can be elected before the
// consensus records them as applied.
func TestAnElectionBeforeTheLogIsTakenUp(t *testing.T) {
	const entries = 210
	for _, tc := range []struct {
		name  string
		alone bool
		// removed is the index of the last entry that was removed.
		removed uint64
		want    string
	}{
		{"nothing removed", true, 1, ""},
		{"applied and removed", true, entries - 2, ""},
		{"applied and removed, with other members", false, entries - 2,
			"error scanning unapplied entries [2, 211): requested index is unavailable due to compaction"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := raft.NewMemoryStorage()
			if err := log.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
				ConfState: &raftpb.ConfState{Voters: []uint64{1}}, Index: new(uint64(1)), Term: new(uint64(1)),
			}}); err != nil {
				t.Fatal(err)
			}
			for i := uint64(2); i <= entries; i++ {
				if err := log.Append([]*raftpb.Entry{{Index: &i, Term: new(uint64(1))}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := log.SetHardState(&raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(entries))}); err != nil {
				t.Fatal(err)
			}
			f := newFailure()
			f.alone = tc.alone
			node, err := raft.NewRawNode(&raft.Config{
				ID: 1, ElectionTick: 5, HeartbeatTick: 1, Storage: log, PreVote: true, CheckQuorum: true,
				MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 16, Logger: etcdserver.NewRaftLoggerZap(f.logger()),
			})
			if err != nil {
				t.Fatal(err)
			}
			taken := node.Ready()
			if tc.removed > 1 {
				if err := log.Compact(tc.removed); err != nil {
					t.Fatal(err)
				}
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for range 10 {
					node.Tick()
				}
			}()
			<-ended
			if got := f.get(); (got == nil) != (tc.want == "") || got != nil && got.Error() != tc.want {
				t.Fatalf("failure %v, want %q", got, tc.want)
			}
			if tc.want != "" {
				return
			}
			node.Advance(taken)
			for node.HasReady() {
				next := node.Ready()
				if err := log.Append(next.Entries); err != nil {
					t.Fatal(err)
				}
				node.Advance(next)
			}
			if got := node.Status(); got.RaftState != raft.StateLeader || got.Applied != entries+1 {
				t.Errorf("%s, applied %d", got.RaftState, got.Applied)
			}
		})
	}
}
