// Package emulation says which release of Kubernetes this process behaves as, and which feature
// gates are on. Kubernetes keeps both once for a process.
package emulation
