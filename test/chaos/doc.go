// Package chaos tests the server under adverse conditions: it is killed or stopped during writes, its disk is
// full, fails or is slow, silent connections flood it, and its webhooks are hostile.
//
// By default every test repeats each fault once or twice. With
//
//	go test ./test/chaos -v -long 10m -timeout 2h
//
// each test runs for the given time. With
//
//	go test ./test/chaos -v -run TestSoak -soak 10m -timeout 1h
//
// all faults hit one server at once, which is killed every 30 to 60 s.
package chaos
