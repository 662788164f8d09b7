//go:build !linux

package serving

// containerMemory is not known where there are no control groups.
func containerMemory() uint64 { return 0 }
