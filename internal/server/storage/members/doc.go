// Package members lets servers join the etcd of a first one, and knows which servers are its members.
//
// A server that joins asks a member over its API: with a token, a request for a certificate, and what it judges requests
// by. The member adds it as a learner of etcd, which has no vote until it has all data, and signs its
// certificate. All other keys follow over etcd. Each step may be done again by the same server: a server that was killed
// while it joined goes on with the same command.
//
// A token is stored as a hash in a key of etcd of its own, and not as an object: who may read objects
// would be able to join, and would get the keys of all authorities.
package members
