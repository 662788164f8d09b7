package command

import (
	"slices"
	"testing"
)

// The shell does not wait for a cluster that does not respond.
func TestCompletionEndsInTime(t *testing.T) {
	if got := inTime(func() []string { <-t.Context().Done(); return []string{"late"} }); got != nil {
		t.Errorf("got %q", got)
	}
	if got := inTime(func() []string { return []string{"soon"} }); !slices.Equal(got, []string{"soon"}) {
		t.Errorf("got %q", got)
	}
}
