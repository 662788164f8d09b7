// Package chaos tests what is promised when everything around a server goes wrong: it
// is killed or stopped in the middle of writes, its disk is full, fails or is slow,
// somebody floods it with silent connections, and its webhooks are hostile.
//
// By default every test does each evil once or twice. With
//
//	go test ./test/chaos -v -long 10m -timeout 2h
//
// each goes on that long. And with
//
//	go test ./test/chaos -v -run TestSoak -soak 10m -timeout 1h
//
// everything happens to one server at once, which is killed every 30 to 60 s.
package chaos
