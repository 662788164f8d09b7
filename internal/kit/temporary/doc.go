// Package temporary supports registrations that are active only while a process renews them: a match condition that
// expires, the server's clock for the expiry, a check whether the cluster can connect to this machine, and a guard
// process that removes registrations from a cluster when their owner is killed.
package temporary
