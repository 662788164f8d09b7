// Package emulation controls which release of Kubernetes this process emulates, and which feature
// gates are on. Kubernetes keeps both once per process.
package emulation
