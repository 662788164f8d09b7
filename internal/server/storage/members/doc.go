// Package members lets servers join the etcd of a first server, and tracks which servers are its members.
//
// A server that joins asks a member over its API: with a token, a certificate request, and the flags of its admission.
// The member adds the server as a learner of etcd, which has no vote until it has all data, and signs its certificate.
// All other keys follow over etcd. The same server may repeat each step: a server that was killed while it joined
// continues with the same command.
//
// A token is stored as a hash in a key of etcd of its own, and not as an object: readers of objects would be able to
// join, and would get the keys of all CAs.
package members
