// Package replicas tests several servers on one etcd cluster: a registration becomes active on every server
// within the promised time, despite failures of servers, etcd members and the links between them.
// Registrations are webhook configurations, policies and bindings.
//
// The tests record a history: every write of a registration with the time of its acknowledgement, and every
// admitted write with its start time and the versions of the registrations that it was evaluated against. A
// checker then verifies the history. By default a history has some hundreds of writes; with
//
//	GATEHOUSE_JUDGED=10000 go test ./test/replicas -run TestHistories -v -timeout 30m
//
// it has that many in each mode. Joined servers meet one fault by default, more in the long run, and with
//
//	GATEHOUSE_FAULTS=60 go test ./test/replicas -run TestHistoriesOfJoinedServers/strict -v -timeout 60m
//
// sixty of all kinds: kills of each server, of the leader, of two servers, of a server that joins or leaves;
// a leader that hangs for 20 s; a full disk; a network that breaks, delays, reorders or is cut; clocks that
// are wrong by five minutes. With GATEHOUSE_JOIN_KILLS=30, TestAServerIsKilledWhileItJoins kills at 30
// moments.
package replicas
