// Package fresh reads the inputs of admission: the registrations, and the namespaces whose labels
// select the registrations.
//
// Both are read from etcd by linearizable transactions only, so that a read reflects every write
// that any server acknowledged before the read began (S11.8). Two marks, which every server sets
// with each write of a registration or of a namespace, make the usual read one transaction with two
// keys: when the marks are as they were, nothing has changed. When the mark of the namespaces has
// moved, the changed namespaces are read. The mark of the registrations holds the key that was
// written: a read follows the writes since the last read, and proves in one transaction that it has
// all writes. Where the mark does not suffice, for many writes at once or after a compaction, the
// keys of all registrations are listed.
//
// Watch reports writes of registrations as they happen, so that a read can follow at once. Watch
// only makes reads earlier: the guarantee rests on the regular reads.
//
// A write to etcd that bypasses the servers moves no mark. Every ten seconds a read lists all keys
// to find such writes.
package fresh
