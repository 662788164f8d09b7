// Package speed selects the tests to run and the number of their repetitions. There are three speeds:
//
//	go test -short ./...              no servers, except in the tests of a list in this package
//	go test ./...                     every feature, end to end at least once
//	GATEHOUSE_LONG=1 go test ./...    also many kills, upgrades, histories of faults and soaks
//
// The step "long" of .ci/run runs the tests that call Long, Of, Some or IsLong. A test function must call them
// directly, not through a helper.
//
// Programs that import this package collect garbage as rarely as gatehouse does.
package speed
