// Package order has the order in which objects are created, by the objects that they need, and the requests that may be
// sent concurrently.
package order
