package serving

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func TestParseCompletions(t *testing.T) {
	for _, tc := range []struct {
		name, out string
		want      []cobra.Completion
		directive cobra.ShellCompDirective
		fails     bool
	}{
		{name: "some", out: "pods\npods/status\tdescribed\n:4\n", want: []cobra.Completion{"pods", "pods/status\tdescribed"}, directive: 4},
		{name: "none", out: ":4\n", directive: 4},
		{name: "with a colon", out: "a:b\n:0\n", want: []cobra.Completion{"a:b"}},
		{name: "no directive", out: "pods\n", fails: true},
		{name: "no number", out: "pods\n:x\n", fails: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, directive, err := parseCompletions(tc.out)
			if (err != nil) != tc.fails {
				t.Fatalf("error %v, want one: %t", err, tc.fails)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || directive != tc.directive {
				t.Errorf("directive %d, want %d; (-want +got)\n%s", directive, tc.directive, diff)
			}
		})
	}
}
