package catalog

import (
	"errors"

	"k8s.io/kubernetes/pkg/capabilities"
)

// AllowPrivileged sets whether privileged containers are valid. The validation of pods reads this
// from a variable of the process that is set once: the first server decides, and a server with
// another setting does not start.
func AllowPrivileged(allow bool) error {
	capabilities.Setup(allow, 0)
	if capabilities.Get().AllowPrivileged != allow {
		return errors.New("--allow-privileged: another server in this process set a different value, and the value applies to the whole process")
	}
	return nil
}
