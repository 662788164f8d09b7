package serving

import "github.com/KimMachineGun/automemlimit/memlimit"

// containerMemory returns the memory limit of the process's container in bytes; 0 means no limit.
func containerMemory() uint64 {
	limit, err := memlimit.FromCgroup()
	if err != nil {
		return 0
	}
	return limit
}
