// Package revisionmark reports, by reading one key, whether anything below some prefixes of etcd
// has changed.
//
// A mark is a key of its own that is written in the same transaction as every write below its
// prefixes. Its modification revision is therefore the revision of the last such write, deletions
// included, and a linearizable read of the mark alone gives the revision of the state that a
// linearizable read of everything would find: the cost does not depend on the number of objects,
// nor on other writes.
//
// A Receipt has the revision of the writes of one request, for callers that wait until a server
// uses these writes for admission.
//
// Marks work because all writers are servers of this kind. A write to etcd by another program
// leaves the mark as it was; a reader that must notice such a write has to read everything from
// time to time.
package revisionmark
