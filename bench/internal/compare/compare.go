// Package compare contains the common parts of the programs that compare servers: flags, rounds in which the sides
// take turns, and the report.
package compare

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/gatehouse-dev/gatehouse/bench/internal/report"
)

// Options are the common flags of these programs.
type Options struct {
	// Name is the name of the program.
	Name string
	// Section is the section of the report to write; empty means the section with the name of the program.
	Section string
	// Module is the directory of the bench module, Binaries the directory of the programs under comparison.
	Module, Binaries string
	// Rounds is how many times each side is measured.
	Rounds int
	// Report is the file to write the table to; empty writes none.
	Report string
}

// AddFlags adds the flags to the flags of the process. rounds is the default of Rounds.
func (o *Options) AddFlags(rounds int) {
	flag.StringVar(&o.Module, "module", ".", "`directory` of the bench module")
	flag.StringVar(&o.Binaries, "binaries", "", "`directory` of the programs (default: in the user's cache)")
	flag.IntVar(&o.Rounds, "rounds", rounds, "how many times each side is measured")
	flag.StringVar(&o.Report, "report", "", "`file` to write the table to, such as results/benchmarks.md")
}

// Main parses the flags and calls run with a context that ends on SIGINT or SIGTERM. The process exits with 1 if run
// fails.
func (o *Options) Main(run func(ctx context.Context, out, progress io.Writer) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := o.complete()
	if err == nil {
		err = run(ctx, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", o.Name, err)
		os.Exit(1)
	}
}

// complete checks the flags.
func (o *Options) complete() error {
	if o.Rounds < 1 {
		return errors.New("-rounds must be positive")
	}
	return nil
}

// Alternate calls measure for each side in each round. It passes the path of a new directory, which does not exist
// yet. The order of the sides changes from round to round, so that a disturbance affects all sides.
func Alternate[Side ~string](o *Options, progress io.Writer, sides []Side, measure func(side Side, dir string) error) error {
	work, err := os.MkdirTemp("", o.Name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	order := slices.Clone(sides)
	for round := range o.Rounds {
		for i, side := range order {
			fmt.Fprintf(progress, "round %d of %d: %s\n", round+1, o.Rounds, side)
			dir := filepath.Join(work, fmt.Sprintf("%d-%d", round, i))
			if err := measure(side, dir); err != nil {
				return fmt.Errorf("%s, round %d: %w", side, round+1, err)
			}
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		slices.Reverse(order)
	}
	return nil
}

// Finish prints a table, and writes it to the report, below an explanation, with the command that measured it.
func (o *Options) Finish(out io.Writer, title, explanation, table string) error {
	fmt.Fprint(out, table)
	if o.Report == "" {
		return nil
	}
	return report.Write(o.Report, cmp.Or(o.Section, o.Name), title, o.command(flag.CommandLine), explanation+table)
}

// command returns the command line, without the flags that are specific to this machine.
func (o *Options) command(flags *flag.FlagSet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cd bench && go run ./cmd/%s --report results/benchmarks.md", o.Name)
	flags.Visit(func(f *flag.Flag) {
		switch {
		case slices.Contains([]string{"binaries", "module", "report"}, f.Name):
		case f.Value.String() == "true":
			fmt.Fprintf(&b, " --%s", f.Name)
		default:
			fmt.Fprintf(&b, " --%s %s", f.Name, f.Value)
		}
	})
	return b.String()
}
