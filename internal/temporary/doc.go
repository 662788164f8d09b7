// Package temporary has what registrations need that are in force only while somebody renews them: a
// condition that ends with a term, the clock of the server, by which the term ends, the question whether the
// cluster reaches this machine, and a process that takes registrations out of a cluster when their owner is killed.
package temporary
