// Package election lets one of several servers act, as long as it holds a Lease.
//
// The Lease works like the Lease of a kube-controller-manager: client-go's elector renews it, and
// another server takes it over when it was not renewed for its duration. The elector reads and
// writes the Lease through Leases, which the caller provides, and so the caller decides whether
// writes of the Lease go through admission. See docs/dev/decisions/003-a-lease-for-controllers.md.
//
// # Guarantees
//
// At most one server acts at a time. A server that was paused, or cannot renew the Lease, detects
// by its own clock that it must not act any more: Held is false then, before any other server can
// have begun. A server that ends gives the Lease back only when all its work has ended.
package election
