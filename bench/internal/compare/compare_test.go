package compare

import (
	"flag"
	"io"
	"os"
	"slices"
	"testing"
)

func TestSidesTakeTurns(t *testing.T) {
	var got []string
	o := &Options{Name: "test", Rounds: 3}
	err := Alternate(o, io.Discard, []string{"a", "b"}, func(side, dir string) error {
		got = append(got, side)
		return os.Mkdir(dir, 0o700)
	})
	if want := []string{"a", "b", "b", "a", "a", "b"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the order is %q, want %q; %v", got, want, err)
	}
}

func TestTheCommandHasWhatWasGiven(t *testing.T) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.Int("rounds", 5, "")
	flags.Int("clients", 8, "")
	flags.String("binaries", "", "")
	if err := flags.Parse([]string{"-rounds", "7", "-binaries", "here"}); err != nil {
		t.Fatal(err)
	}
	o := &Options{Name: "test"}
	if got, want := o.command(flags), "cd bench && go run ./cmd/test --report results/benchmarks.md --rounds 7"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
