// Package credentials knows what lets somebody in: which objects and fields hold credentials, how
// members of objects that hold one are called, and what one looks like in a text.
//
// Everything that writes requests or objects where more people read them than may read the objects
// asks this package, and has no list of its own: recordings, traces, plans, events, comparisons and
// debug bundles.
package credentials
