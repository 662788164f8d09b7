package serving

import "github.com/KimMachineGun/automemlimit/memlimit"

// containerMemory returns how many bytes of memory the container of the process may
// have, 0 for as much as there is.
func containerMemory() uint64 {
	limit, err := memlimit.FromCgroup()
	if err != nil {
		return 0
	}
	return limit
}
