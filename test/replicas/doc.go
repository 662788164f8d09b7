// Package replicas tests several servers on one etcd of several members: that a
// registration is in force everywhere as soon as is promised, whatever happens to
// the servers, the members and the links between them.
//
// The tests record a history: every write of a registration with the moment of
// its acknowledgement, and every write that admission judged with the moment it
// began and what it was judged by. A checker proves the promise of the history.
// By default some hundreds of writes are judged; with
//
//	GATEHOUSE_JUDGED=10000 go test ./test/replicas -run TestHistories -v -timeout 30m
//
// it is as many as that in each mode. Servers that joined meet two faults by default, more in the long run, and with
//
//	GATEHOUSE_FAULTS=60 go test ./test/replicas -run TestHistoriesOfJoinedServers/strict -v -timeout 60m
//
// sixty of all kinds: kills of each server, of the leader, of two, of one that joins or leaves; a leader that hangs for
// 20 s; a full disk; a network that breaks, delays, reorders or is cut; clocks that are wrong by five minutes.
// GATEHOUSE_JOIN_KILLS=30 has TestAServerIsKilledWhileItJoins kill at 30 moments.
package replicas
