// Package inflight bounds how many requests a server handles at once.
//
// It does what the library's filter does, and one thing more: a request that
// waits for somebody else's request, as the creator of an object waits for its
// initializers, can give back its place (Yield). Otherwise creators could take
// all places and keep out those they wait for.
package inflight
