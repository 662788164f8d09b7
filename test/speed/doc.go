// Package speed chooses which tests run, and how much each of them tries. There are three speeds:
//
//	go test -short ./...              no servers, except in the tests of a list in this package
//	go test ./...                     every feature, end to end at least once
//	GATEHOUSE_LONG=1 go test ./...    also many kills, upgrades, histories of faults and soaks
//
// The step "long" of .ci/run runs the tests that call Long, Of or IsLong. A test function therefore calls them itself and
// not through a helper.
package speed
