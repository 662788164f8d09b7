package speed

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestPick(t *testing.T) {
	t.Setenv("GATEHOUSE_SEED", "7")
	for _, tc := range []struct{ n, size, want int }{{0, 3, 0}, {2, 5, 2}, {5, 5, 5}, {9, 4, 4}} {
		got := Pick(t, tc.n, tc.size)
		if len(got) != tc.want || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != tc.want {
			t.Errorf("%d of %d: %v", tc.n, tc.size, got)
		}
		if again := Pick(t, tc.n, tc.size); !slices.Equal(got, again) {
			t.Errorf("the same seed chooses %v and then %v", got, again)
		}
		for _, i := range got {
			if i < 0 || i >= tc.size {
				t.Errorf("%d of %d: %v", tc.n, tc.size, got)
			}
		}
	}
}

func TestTheLogOfAFailureIsShort(t *testing.T) {
	l := &tail{}
	for i := range 1000 {
		fmt.Fprintf(l, "line %d\nand its end\n", i)
	}
	if got := strings.Split(strings.TrimSpace(l.String()), "\n"); len(got) != lastLines || got[0] != "line 970" || got[lastLines-1] != "and its end" {
		t.Errorf("%d lines: %q", len(got), got)
	}
}

func TestASubtestCanRunAlone(t *testing.T) {
	run := flag.Lookup("test.run").Value
	old := run.String()
	defer func() {
		if err := run.Set(old); err != nil {
			t.Error(err)
		}
	}()
	if err := run.Set("^TestX$/^b$"); err != nil {
		t.Fatal(err)
	}
	if got := Some(t, 1, []string{"a", "b", "c"}); len(got) != 3 {
		t.Errorf("of the subtests there are %q", got)
	}
}

func TestTheLongRunIsAskedFor(t *testing.T) {
	for value, want := range map[string]int{"": 2, "1": 20} {
		t.Setenv(Variable, value)
		if got := Of(2, 20); got != want || IsLong() != (want == 20) {
			t.Errorf("%s=%q: %d", Variable, value, got)
		}
		if got := Some(t, 2, []string{"a", "b", "c", "d"}); len(got) != map[int]int{2: 2, 20: 4}[want] || !slices.IsSorted(got) {
			t.Errorf("%s=%q: some are %q", Variable, value, got)
		}
		skipped := true
		t.Run("long", func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			Long(t)
		})
		if skipped == (want == 20) {
			t.Errorf("%s=%q: skipped is %v", Variable, value, skipped)
		}
	}
}
