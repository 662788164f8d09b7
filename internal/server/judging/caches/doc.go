// Package caches delays the response to a write until the caches of admission have the write
// (S20.8). Admission plugins and RBAC read such caches. In a cluster, the caches have a write only
// a moment after its response.
package caches
