// Package caches has the answer to a write wait until the caches that requests are judged by
// have the write (S20.8). In a cluster they need a moment longer, because admission plugins and
// RBAC read caches.
package caches
