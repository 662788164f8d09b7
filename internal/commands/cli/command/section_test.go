package command

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestFlagsAreListedInSections(t *testing.T) {
	cmd := &cobra.Command{}
	AddSection(cmd, "One", func(f *pflag.FlagSet) { f.Bool("d", false, ""); f.Bool("b", false, "") })
	AddSection(cmd, "Two", func(f *pflag.FlagSet) { f.Bool("a", false, "") })
	cmd.Flags().Bool("c", false, "")
	var got []string
	for _, s := range FlagSections(cmd.Flags()) {
		s.Flags.VisitAll(func(f *pflag.Flag) { got = append(got, s.Title+" "+f.Name) })
	}
	if want := "One d, One b, Two a, Flags c"; strings.Join(got, ", ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
