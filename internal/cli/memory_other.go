//go:build !linux

package cli

// forgetProgram does nothing where the kernel cannot be told.
func forgetProgram() {}
