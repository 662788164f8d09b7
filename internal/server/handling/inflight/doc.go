// Package inflight bounds how many requests a server handles at once.
//
// Thousands of simultaneous requests must not block each other, nor the reads that their admission
// needs. Requests of users beyond the bound are refused, requests of administrators wait in line
// (Limit), and the handshakes of new connections are computed a few at a time (Pace).
//
// It does the work of the max-in-flight filter of k8s.io/apiserver. In addition, a request that
// waits for a request of another client, as the creator of an object waits for its initializers,
// can give back its place (Yield). Otherwise creators could take all places and keep out the
// initializers. Updates of one object wait for each other without places (Lines), and a slow client
// holds no place (Serve).
//
// A create that waits can also leave its handlers (package waiting).
package inflight
