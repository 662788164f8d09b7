//go:build !linux

package serving

// containerMemory returns 0: the limit is unknown without control groups.
func containerMemory() uint64 { return 0 }
