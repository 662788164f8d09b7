package catalog

import (
	"strings"
	"testing"
)

// The capabilities of one server of a process hold for all its servers: no server may accept a
// pod that another server refuses.
func TestServersOfAProcessAgreeOnPrivilegedContainers(t *testing.T) {
	for range 2 {
		if err := AllowPrivileged(true); err != nil {
			t.Fatal(err)
		}
	}
	err := AllowPrivileged(false)
	if err == nil || !strings.HasPrefix(err.Error(), "--allow-privileged: ") {
		t.Errorf("got %v, want an error that names the flag", err)
	}
}
