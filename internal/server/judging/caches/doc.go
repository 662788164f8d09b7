// Package caches holds the answer to a write until the caches by which requests are judged have
// the write (S20.8). Admission plugins and RBAC read such caches. In a cluster, the caches have
// a write only a moment after its answer.
package caches
