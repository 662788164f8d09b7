//go:build !linux

package subprocess

import (
	"errors"
	"os/exec"
)

// newSupervision returns nil: other systems do not give orphans to an ancestor.
func newSupervision(_ *exec.Cmd, places Places) (*supervision, error) {
	if len(places.Here) > 0 {
		return nil, errors.ErrUnsupported
	}
	return nil, nil
}
