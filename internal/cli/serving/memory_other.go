//go:build !linux

package serving

// forgetFiles does nothing where the kernel has no call for it.
func forgetFiles() {}

// containerMemory is not known there either.
func containerMemory() uint64 { return 0 }
