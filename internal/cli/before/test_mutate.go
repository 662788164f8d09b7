package before

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/predict/suite"
	"github.com/gatehouse-dev/gatehouse/internal/predict/suite/mutants"
	"github.com/gatehouse-dev/gatehouse/internal/report"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// The values of --mutate.
const (
	mutateAll     = "all"
	mutateChanged = "changed"
)

// mutates says which registrations are changed, by their lines; nil for none.
func (o *testOptions) mutates(ctx context.Context) (func(file string, first, last int) bool, error) {
	switch o.mutate {
	case "":
		return nil, nil
	case mutateAll:
		return func(string, int, int) bool { return true }, nil
	}
	changed := lines{}
	for _, path := range o.paths {
		if err := changed.since(ctx, o.base, path); err != nil {
			return nil, fmt.Errorf("--mutate=changed: %w", err)
		}
	}
	return changed.any, nil
}

// lines are lines of files, by absolute paths.
type lines map[string][]span

// span is the lines from first to last. Where lines were only taken out, last comes before first.
type span struct{ first, last int }

// any reports whether some of the lines from first to last are among them, or were.
func (l lines) any(file string, first, last int) bool {
	name, err := filepath.Abs(file)
	if err == nil {
		// Git names files by the directory that links lead to.
		name = cmp.Or(resolved(name), name)
	}
	return slices.ContainsFunc(l[name], func(s span) bool { return s.first <= last && max(s.first, s.last) >= first })
}

func resolved(name string) string {
	found, _ := filepath.EvalSymlinks(name)
	return found
}

// hunk begins a change of a diff, with the lines of the new file.
var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// since adds the lines of the repository around a path that differ from the last commit that base and the
// working tree have in common: tests may be about policies elsewhere in it. A file that Git does not know is new.
func (l lines) since(ctx context.Context, base, path string) error {
	dir, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		dir = filepath.Dir(dir)
	}
	root, err := git(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	top := filepath.FromSlash(strings.TrimSpace(root))
	diff, err := git(ctx, dir, "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-prefix", "--merge-base", "--end-of-options", base)
	if err != nil {
		return err
	}
	file := ""
	for line := range strings.Lines(diff) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "+++ "); ok {
			file = filepath.Join(top, filepath.FromSlash(strings.TrimSuffix(name, "\t")))
		} else if m := hunk.FindStringSubmatch(line); m != nil {
			first, _ := strconv.Atoi(m[1])
			count := 1
			if m[2] != "" {
				count, _ = strconv.Atoi(m[2])
			}
			l[file] = append(l[file], span{first, first + count - 1})
		}
	}
	untracked, err := git(ctx, dir, "ls-files", "--others", "--exclude-standard", "-z", "--full-name", "--", ":/")
	for name := range strings.SplitSeq(untracked, "\x00") {
		if name != "" {
			l[filepath.Join(top, filepath.FromSlash(name))] = []span{{1, math.MaxInt}}
		}
	}
	return err
}

// git runs Git, which reads only.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.quotePath=false"}, args...)...)
	cmd.Dir = dir
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s in %s: %w: %s", args[0], dir, err, strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// unnoticed is the rule of changes of a kind that no test notices.
func unnoticed(kind mutants.Kind) string { return "unnoticed-" + string(kind) }

// mutantRules are the rules of changes that no test notices.
func mutantRules() []report.Rule {
	rules := make([]report.Rule, len(mutants.Kinds))
	for i, kind := range mutants.Kinds {
		rules[i] = report.Rule{
			ID: unnoticed(kind), Level: report.Warning, Title: "No test notices a change of this " + strings.ReplaceAll(string(kind), "-", " ") + ".",
			Why: "The tests pass with the change, so nobody learns of a mistake there.", Fix: "Write a test with the request that the message names.",
		}
	}
	return rules
}

// addMutants adds to a report what no test notices.
func addMutants(f *report.Report, m *suite.Mutants) {
	if m == nil {
		return
	}
	f.Rules = append(f.Rules, mutantRules()...)
	f.Sums = append(f.Sums, report.Sum{Name: "changes noticed", N: m.Noticed}, report.Sum{Name: "changes unnoticed", N: len(m.Unnoticed)})
	for _, one := range m.Unnoticed {
		f.Findings = append(f.Findings, report.Finding{
			Level: report.Warning, Rule: unnoticed(one.Kind), File: one.File, Line: one.Line, Column: one.Column, Object: one.Object, Field: one.Field,
			Message: fmt.Sprintf("no test notices %s", one.What()), Remedy: "test a request that notices it: " + one.Notice,
		})
	}
}

// printMutants says what no test notices.
func printMutants(b io.Writer, m *suite.Mutants) {
	if m == nil {
		return
	}
	f := &report.Report{}
	addMutants(f, m)
	for i := range f.Findings {
		one := &f.Findings[i]
		terminal.Fprintf(b, "%s  %s: %s: %s\n      %s\n", terminal.Paint(terminal.Yellow, "gap"), one.Place(), one.Object, terminal.Indented(one.Text(), "      "), terminal.Indented(one.Remedy, "      "))
	}
	if len(f.Findings) > 0 {
		fmt.Fprintln(b)
	}
	terminal.Fprintf(b, "%s of policies and webhooks: the tests notice %d", report.Count(m.Tried, "change"), m.Noticed)
	if m.Left > 0 {
		terminal.Fprintf(b, "; %s more were not tried: name fewer files", report.Count(m.Left, "change"))
	}
	fmt.Fprintln(b)
}

// checkMutate reports wrong values of the flags.
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
