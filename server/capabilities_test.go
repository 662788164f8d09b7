package server

import (
	"strings"
	"testing"
)

// What one server of a process says holds for the others: none may get by what
// another one refuses.
func TestServersOfAProcessAgreeOnPrivilegedContainers(t *testing.T) {
	for range 2 {
		if err := setCapabilities(&Options{}); err != nil {
			t.Fatal(err)
		}
	}
	err := setCapabilities(&Options{RefusePrivileged: true})
	if err == nil || !strings.HasPrefix(err.Error(), "--allow-privileged: ") {
		t.Errorf("got %v, want an error that names the flag", err)
	}
}
