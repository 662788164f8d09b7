package harness

import (
	"fmt"
	"strings"
	"testing"
)

func TestAFailureIsShort(t *testing.T) {
	long := &Server{}
	var text strings.Builder
	for i := range 500 {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	long.ended = text.String()
	got := failure("TestX/S1.2 a (b)", []logged{{long, 100}, {&Server{ended: "one\ntwo\n"}, 1}})
	lines := strings.Split(got, "\n")
	if len(lines) > excerptLines+5 {
		t.Errorf("%d lines", len(lines))
	}
	for _, want := range []string{"370 lines of its log left out:\nline 470\n", "line 499\n", "0 lines of its log left out:\ntwo", `go test ./test/harness -count=1 -run '^TestX$/^S1\.2 a \(b\)$'`} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
}
