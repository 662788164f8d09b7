package before

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/mutants"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// The values of --mutate.
const (
	mutateAll     = "all"
	mutateChanged = "changed"
)

// mutates returns a function that selects webhook configurations and policies for mutation by their lines; nil
// without --mutate. end releases its resources.
func (o *testOptions) mutates(ctx context.Context) (_ func(file string, first, last int) (bool, error), end func(), err error) {
	switch o.mutate {
	case "":
		return nil, func() {}, nil
	case mutateAll:
		return func(string, int, int) (bool, error) { return true, nil }, func() {}, nil
	}
	b, err := openBase(ctx, ".", o.base, gitTime)
	for _, path := range o.paths {
		if err == nil && !b.contains(path) {
			err = fmt.Errorf("%s is outside of the Git repository of the working directory, %s: run the command there", path, b.top)
		}
	}
	if err != nil {
		b.Close()
		return nil, nil, fmt.Errorf("--mutate=changed: %w", err)
	}
	return func(file string, first, last int) (bool, error) { return b.Changed(ctx, file, first, last) }, b.Close, nil
}

// unnoticed is the rule of surviving mutants of a kind.
func unnoticed(kind mutants.Kind) string { return "unnoticed-" + string(kind) }

// mutantRules are the rules of surviving mutants.
func mutantRules() []report.Description {
	rules := make([]report.Description, len(mutants.Kinds))
	for i, kind := range mutants.Kinds {
		rules[i] = report.Description{
			ID: unnoticed(kind), Level: report.Warning, Title: "A mutant of this " + strings.ReplaceAll(string(kind), "-", " ") + " survives.",
			Why: "The tests pass with the change, so they would miss a mistake there.", Fix: "Write a test with the request that the message names.",
		}
	}
	return rules
}

// addMutants adds the surviving mutants to a report.
func addMutants(f *report.Document, m *suite.Mutants) {
	if m == nil {
		return
	}
	f.Rules = append(f.Rules, mutantRules()...)
	f.Sums = append(f.Sums, report.Sum{Name: "mutants killed", N: m.Noticed}, report.Sum{Name: "mutants survived", N: len(m.Unnoticed)})
	for _, one := range m.Unnoticed {
		f.Findings = append(f.Findings, report.Finding{
			Level: report.Warning, Rule: unnoticed(one.Kind), File: one.File, Line: one.Line, Column: one.Column, Object: one.Object, Field: one.Field,
			Message: fmt.Sprintf("surviving mutant: %s", one.What()), Remedy: "to kill it, test " + one.Notice,
		})
	}
}

// printMutants prints the surviving mutants.
func printMutants(b io.Writer, m *suite.Mutants) {
	if m == nil {
		return
	}
	f := &report.Document{}
	addMutants(f, m)
	for i := range f.Findings {
		one := &f.Findings[i]
		terminal.Fprintf(b, "%s  %s: %s: %s\n      %s\n", terminal.Paint(terminal.Yellow, "survived"), one.Place(), one.Object, terminal.Indented(one.Text(), "      "), terminal.Indented(one.Remedy, "      "))
	}
	if len(f.Findings) > 0 {
		fmt.Fprintln(b)
	}
	terminal.Fprintf(b, "mutation testing: %s, %d killed, %d survived", report.Count(m.Tried, "mutant"), m.Noticed, len(m.Unnoticed))
	if m.Left > 0 {
		terminal.Fprintf(b, "; %s more not tried: name fewer files", report.Count(m.Left, "mutant"))
	}
	fmt.Fprintln(b)
}

// checkMutate validates the flags of mutation tests.
func (o *testOptions) checkMutate() error {
	switch {
	case o.mutate != "" && !slices.Contains([]string{mutateAll, mutateChanged}, o.mutate):
		return command.Usagef("--mutate=%s: say %s or %s", o.mutate, mutateAll, mutateChanged)
	case o.mutate != "" && o.update:
		return command.Usagef("--mutate and --update exclude each other")
	case o.mutate == mutateChanged && o.base == "":
		return command.Usagef("--base is empty: name a branch or a commit")
	}
	if o.mutate == mutateChanged {
		if _, err := exec.LookPath("git"); err != nil {
			return command.UsageError{Err: errors.New("--mutate=changed needs the program git")}
		}
	}
	return nil
}
