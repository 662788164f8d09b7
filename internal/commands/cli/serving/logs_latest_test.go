package serving

import (
	"fmt"
	"strings"
	"testing"
)

// A server keeps the end of its log, within the limit.
func TestTheLatestLogIsKept(t *testing.T) {
	l := &latestLog{}
	if l.Bytes() == nil || len(l.Bytes()) != 0 {
		t.Errorf("before the first record: %q", l.Bytes())
	}
	record := strings.Repeat("x", 1023) + "\n"
	for range 3000 {
		if n, err := l.Write([]byte(record)); n != len(record) || err != nil {
			t.Fatal(n, err)
		}
	}
	fmt.Fprintln(l, "the last one")
	kept := string(l.Bytes())
	if len(kept) < keptLog || len(kept) > 2*keptLog || !strings.HasPrefix(kept, record) || !strings.HasSuffix(kept, "\nthe last one\n") {
		t.Errorf("%d bytes, %.20q ... %q", len(kept), kept, kept[len(kept)-20:])
	}
	if n, err := l.Write(make([]byte, 3*keptLog)); n != 3*keptLog || err != nil || len(l.Bytes()) > 2*keptLog {
		t.Errorf("a large record: %d, %v; %d bytes are kept", n, err, len(l.Bytes()))
	}
}
