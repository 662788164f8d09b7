// Package credentials recognizes credentials: it knows the objects and fields that hold them, the
// usual names of members with credentials, and the forms of credentials in texts.
//
// Recordings, traces, plans, events, comparisons and debug bundles contain requests or objects, and
// may have more readers than the objects themselves. The code that writes them uses this package,
// and has no list of its own.
package credentials
