// Package caches has the answer to a write wait until the caches that requests are judged by have
// the write (S20.8). Admission plugins and RBAC read such caches, and in a cluster they follow a
// write a moment later.
package caches
