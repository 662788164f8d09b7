// Package snapshot makes registration objects into an immutable Snapshot, and keeps
// one that is fresh.
//
// # Compiling
//
// Compile turns the registrations of one moment into a Snapshot: hooks in order, selectors
// parsed, match conditions compiled, rules indexed, initializers merged. A Compiler does this
// repeatedly. It reuses its results for objects that have not changed, which it knows by uid
// and resourceVersion. When a Reader says what has changed, a snapshot costs the time to
// compile the changes and to list all entries that are not bindings.
//
// There may be a hundred bindings for each of a thousand policies. Bindings that match the same
// requests share their selectors, and the Compiler does not keep the objects.
//
// The index says which hooks may match a request. It may name too many, never too
// few; package plan checks each against its rules. A request that nothing matches
// costs a few map lookups, however many hooks there are.
//
// # Staying fresh
//
// A Refresher reads all registrations once a second (S11.8). Requests take the
// snapshot from Acquire, which returns an error when the last successful read began too
// long ago (S11.10). The age of a snapshot counts from the beginning of its read: a
// snapshot has every registration that was stored before that moment.
//
// A caller that knows of a write need not wait for the next second: Poke begins a read, and
// Await waits until the snapshot in use has the write.
//
// A Reader says where registrations come from. ClientReader reads them
// from any API server; a server that stores them reads its own storage.
//
// # Concurrency
//
// A Snapshot is immutable and safe for concurrent use. A Refresher runs one read
// at a time, in Run, and swaps the snapshot with an atomic pointer. A Compiler is
// for one goroutine.
package snapshot
