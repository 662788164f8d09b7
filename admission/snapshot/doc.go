// Package snapshot compiles webhook configurations, policies, bindings and initializers into an
// immutable Snapshot, and keeps it fresh. It calls these objects registrations.
//
// # Compiling
//
// Compile turns the registrations of one moment into a Snapshot: webhooks in order, selectors
// parsed, match conditions compiled, rules indexed, initializers merged. A Compiler does this
// repeatedly. It reuses its results for objects with the same uid and resourceVersion. If a Reader
// returns only the changes, a snapshot costs the time to compile the changes and to list all
// entries except bindings.
//
// There may be a hundred bindings for each of a thousand policies. Bindings that match the same
// requests share their selectors, and the Compiler does not keep the objects.
//
// The index finds the webhooks that may match a request. It may find too many, never too few;
// package plan checks each against its rules. A request without matches costs a few map lookups,
// however many webhooks there are.
//
// # Staying fresh
//
// A Refresher reads all registrations once a second (S11.8). Requests get the snapshot from
// Acquire, which returns an error if the last successful read began too long ago (S11.10). The age
// of a snapshot counts from the beginning of its read: a snapshot has every registration that was
// stored before that moment.
//
// After a write, a caller need not wait for the next second: Poke begins a read, and Await waits
// until the current snapshot includes the write.
//
// A Reader is the source of registrations. ClientReader reads them from any API server; a server
// that stores them reads its own storage.
//
// # Concurrency
//
// A Snapshot is immutable and safe for concurrent use. A Refresher runs one read at a time, in Run,
// and swaps the snapshot with an atomic pointer. A Compiler is for one goroutine.
package snapshot
