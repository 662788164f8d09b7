package before

import (
	"fmt"
	"io"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// print writes a report in the format of --output.
func (o *testOptions) print(out io.Writer, r *suite.Report) error {
	return o.output.Write(out, testReport(r), func(out io.Writer) error { return o.printText(out, r) })
}

// The rules of the findings of tests.
const (
	ruleTestFailed    = "test-failed"
	ruleTestNotJudged = "test-not-judged"
	ruleTestSkipped   = "test-skipped"
	ruleTestFile      = "test-file-wrong"
)

// testReport converts the results of tests to the report of all formats.
func testReport(r *suite.Report) *report.Document {
	s := &r.Summary
	f := &report.Document{
		Tool:  "gatehouse test",
		Title: report.Count(s.Tests, "test") + " of admission in " + report.Count(s.Files, "file"),
		Rules: []report.Description{
			{ID: ruleTestFailed, Level: report.Error, Title: "A test of admission failed.", Fix: "Change the policy, the webhook or the expectation of the test."},
			{ID: ruleTestNotJudged, Level: report.Error, Title: "A test of admission could not be decided.", Fix: "The message names the missing object."},
			{ID: ruleTestFile, Level: report.Error, Title: "A file with tests of admission is wrong, and its tests do not run.", Fix: "The message names the mistake."},
			{ID: ruleTestSkipped, Level: report.Note, Title: "A test of admission was skipped.", Fix: "The message says why."},
		},
		Cases:      []report.Case{},
		Sums:       []report.Sum{{Name: "passed", N: s.Passed}, {Name: "failed", N: s.Failed}, {Name: "skipped", N: s.Skipped}, {Name: "not decided", N: s.Errors}},
		Kubernetes: r.KubernetesVersion, Notes: r.Notes, Parts: []report.Part{{Heading: "Notes", Items: r.Notes}}, Data: r,
	}
	for _, w := range r.Wrong {
		f.Cases = append(f.Cases, report.Case{Name: "the file", Class: w.File, File: w.File, Line: w.Line, Rule: string(suite.Broken), Failure: w.Message, Details: w.Message})
		f.Findings = append(f.Findings, report.Finding{Level: report.Error, Rule: ruleTestFile, File: w.File, Line: w.Line, Message: w.Message})
	}
	for _, t := range r.Tests {
		c := report.Case{Name: t.Name, Class: t.File, File: t.File, Line: t.Line, Seconds: t.Millis / 1000}
		find := func(level report.Level, rule, message string, line int) {
			one := report.Finding{Level: level, Rule: rule, File: t.File, Line: line, Object: t.Name, Message: message}
			if t.Repeat != "" {
				one.Remedy = "again: " + t.Repeat
			}
			f.Findings = append(f.Findings, one)
		}
		switch t.Status {
		case suite.Skipped:
			c.Skipped = t.Message
			find(report.Note, ruleTestSkipped, "skipped: "+t.Message, t.Line)
		case suite.Broken:
			c.Rule, c.Failure, c.Details = string(t.Status), t.Message, t.Message
			find(report.Error, ruleTestNotJudged, t.Message, t.Line)
		case suite.Failed:
			var text strings.Builder
			printFailure(&text, t)
			var failures []string
			for i := range t.Failures {
				one := &t.Failures[i]
				find(report.Error, ruleTestFailed, failureText(one), lineOf(t, one))
				failures = append(failures, failureText(one))
			}
			c.Rule, c.Failure, c.Details = string(t.Status), strings.Join(failures, "; "), text.String()
			if t.Diff != "" {
				f.Changes = append(f.Changes, report.Difference{Heading: t.Name, Diff: t.Diff})
			}
		}
		f.Cases = append(f.Cases, c)
	}
	addMutants(f, r.Mutants)
	if r.Coverage != nil {
		f.Parts = append(f.Parts, report.Part{Heading: "Coverage", Items: r.Coverage.Lines()})
	}
	return f
}

// lineOf returns the line of a failure, or of its test.
func lineOf(t *suite.Result, f *suite.Failure) int {
	if f.Line > 0 {
		return f.Line
	}
	return t.Line
}

func (o *testOptions) printText(out io.Writer, r *suite.Report) error {
	b := terminal.NewPage(out)
	said := false
	for _, t := range r.Tests {
		said = said || t.Status != suite.Passed || o.log.Verbosity >= 1
		switch t.Status {
		case suite.Passed:
			if o.log.Verbosity >= 1 {
				terminal.Fprintf(b, "%s  %s: %s (%.1f ms)\n", terminal.Paint(terminal.Green, "pass"), report.Place(t.File, t.Line, 0), t.Name, t.Millis)
				o.printAdded(b, t)
			}
		case suite.Skipped:
			terminal.Fprintf(b, "%s  %s: %s: %s\n", terminal.Paint(terminal.Yellow, "skip"), report.Place(t.File, t.Line, 0), t.Name, terminal.Indented(t.Message, "      "))
		case suite.Broken:
			terminal.Fprintf(b, "%s %s: %s: %s\n", terminal.Paint(terminal.Red, "error"), report.Place(t.File, t.Line, 0), t.Name, terminal.Indented(t.Message, "      "))
		case suite.Failed:
			terminal.Fprintf(b, "%s  %s: %s\n", terminal.Paint(terminal.Red, "FAIL"), report.Place(t.File, t.Line, 0), t.Name)
			printFailure(b, t)
			o.printAdded(b, t)
		}
	}
	if o.log.Verbosity >= 1 {
		said = said || len(r.Without) > 0
		for _, path := range r.Without {
			terminal.Fprintf(b, "none  %s: no test is in the file\n", path)
		}
	}
	if said {
		fmt.Fprintln(b)
	}
	if c := r.Coverage; c != nil && o.coverage == "-" {
		c.Document().Text(b)
		fmt.Fprintln(b)
	}
	printMutants(b, r.Mutants)
	s := &r.Summary
	terminal.Fprintf(b, "%s in %s: %d passed, %d failed", report.Count(s.Tests, "test"), report.Count(s.Files, "file"), s.Passed, s.Failed)
	if s.Skipped > 0 {
		terminal.Fprintf(b, ", %d skipped", s.Skipped)
	}
	if s.Errors > 0 {
		terminal.Fprintf(b, ", %d not decided", s.Errors)
	}
	if s.Without > 0 {
		terminal.Fprintf(b, "; %s without tests", report.Count(s.Without, "other file"))
	}
	terminal.Fprintf(b, "; by Kubernetes %s\n", r.KubernetesVersion)
	return b.Flush()
}

// printAdded prints, with -v, the fields that the stored object has in addition to oldObject.
func (o *testOptions) printAdded(b io.Writer, t *suite.Result) {
	if o.log.Verbosity >= 1 && len(t.Outcome.Added) > 0 {
		terminal.Fprintf(b, "      oldObject is stored with %s\n", terminal.Indented(strings.Join(t.Outcome.Added, ", "), "          "))
	}
}

// printFailure prints the details of a failed test.
func printFailure(b io.Writer, t *suite.Result) {
	for i := range t.Failures {
		f := &t.Failures[i]
		terminal.Fprintf(b, "      %s: %s: want %s\n", report.Place(t.File, lineOf(t, f), 0), f.Field, terminal.Indented(f.Want, "          "))
		terminal.Fprintf(b, "          got %s\n", terminal.Indented(f.Got, "          "))
	}
	if t.Diff != "" {
		terminal.Fprintf(b, "      the object:\n")
		for line := range strings.Lines(t.Diff) {
			switch line = strings.TrimSuffix(line, "\n"); {
			case strings.HasPrefix(line, "+"):
				terminal.Fprintf(b, "          %s\n", terminal.Paint(terminal.Green, line))
			case strings.HasPrefix(line, "-"):
				terminal.Fprintf(b, "          %s\n", terminal.Paint(terminal.Red, line))
			default:
				terminal.Fprintf(b, "          %s\n", terminal.Lines(line))
			}
		}
	}
	terminal.Fprintf(b, "      %s\n", t.Request)
	for _, line := range t.Explanation {
		terminal.Fprintf(b, "          %s\n", terminal.Indented(line, "          "))
	}
	if t.Repeat != "" {
		terminal.Fprintf(b, "      again: %s\n", t.Repeat)
	}
}

// failureText describes an unmet expectation, for programs that display it.
func failureText(f *suite.Failure) string { return f.Field + ": want " + f.Want + ", got " + f.Got }
