// Package inflight bounds how many requests a server handles at once.
//
// Thousands of requests that come in the same instant must not stand in each
// other's way, nor in that of the reads by which all of them are judged: users
// beyond the bound are refused, administrators wait in line (Limit), and the
// handshakes of new connections are computed a few at a time (Pace).
//
// It does what the library's filter does, and one thing more: a request that
// waits for somebody else's request, as the creator of an object waits for its
// initializers, can give back its place (Yield). Otherwise creators could take
// all places and keep out those they wait for. Updates of one object wait for each
// other without places (Lines), and no place waits for a slow client (Serve).
//
// A create that waits can also leave its handlers, which is what package waiting is for.
package inflight
