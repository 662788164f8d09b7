//go:build !linux

package cli

// forgetProgram does nothing where the kernel has no call for it.
func forgetProgram() {}

// containerMemory is not known there either.
func containerMemory() uint64 { return 0 }
