package cli

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/predict/suite"
	"github.com/gatehouse-dev/gatehouse/internal/sarif"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// print writes a report in the format that was asked for.
func (o *testOptions) print(out io.Writer, r *suite.Report) error {
	switch o.output {
	case "json":
		data, err := json.MarshalIndent(r, "", "    ")
		if err != nil {
			return err
		}
		_, err = terminal.Exact(out).Write(append(data, '\n'))
		return err
	case "junit":
		return printTestJUnit(terminal.Exact(out), r)
	case "sarif":
		return printTestSARIF(terminal.Exact(out), r)
	case "github":
		return printTestGitHub(terminal.Exact(out), r)
	}
	return o.printText(out, r)
}

// lineOf is the line of what a failure is about.
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
		said = said || t.Status != suite.Passed || o.log.verbosity >= 1
		switch t.Status {
		case suite.Passed:
			if o.log.verbosity >= 1 {
				terminal.Fprintf(b, "%s  %s: %s (%.1f ms)\n", terminal.Paint(terminal.Green, "pass"), place(t.File, t.Line, 0), t.Name, t.Millis)
			}
		case suite.Skipped:
			terminal.Fprintf(b, "%s  %s: %s: %s\n", terminal.Paint(terminal.Yellow, "skip"), place(t.File, t.Line, 0), t.Name, terminal.Indented(t.Message, "      "))
		case suite.Broken:
			terminal.Fprintf(b, "%s %s: %s: %s\n", terminal.Paint(terminal.Red, "error"), place(t.File, t.Line, 0), t.Name, terminal.Indented(t.Message, "      "))
		case suite.Failed:
			terminal.Fprintf(b, "%s  %s: %s\n", terminal.Paint(terminal.Red, "FAIL"), place(t.File, t.Line, 0), t.Name)
			printFailure(b, t)
		}
	}
	if said {
		fmt.Fprintln(b)
	}
	if c := r.Coverage; c != nil && o.coverage == "-" {
		taken, all := c.Total()
		fmt.Fprintln(b, "Coverage:")
		for _, line := range c.Lines() {
			terminal.Fprintf(b, "  %s\n", line)
		}
		terminal.Fprintf(b, "  %d of %d ways were taken\n\n", taken, all)
	}
	s := &r.Summary
	terminal.Fprintf(b, "%s in %s: %d passed, %d failed", counted(s.Tests, "test"), counted(s.Files, "file"), s.Passed, s.Failed)
	if s.Skipped > 0 {
		terminal.Fprintf(b, ", %d skipped", s.Skipped)
	}
	if s.Errors > 0 {
		terminal.Fprintf(b, ", %d not judged", s.Errors)
	}
	terminal.Fprintf(b, "; by Kubernetes %s\n", r.KubernetesVersion)
	return b.Flush()
}

// printFailure explains a test that failed.
func printFailure(b io.Writer, t *suite.Result) {
	for i := range t.Failures {
		f := &t.Failures[i]
		terminal.Fprintf(b, "      %s: %s: want %s\n", place(t.File, lineOf(t, f), 0), f.Field, terminal.Indented(f.Want, "          "))
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

// failureText is what is wrong with a test, for programs that show it.
func failureText(t *suite.Result) string {
	if t.Status == suite.Broken {
		return t.Message
	}
	var b strings.Builder
	for i := range t.Failures {
		f := &t.Failures[i]
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(f.Field + ": want " + f.Want + ", got " + f.Got)
	}
	return b.String()
}

func printTestJUnit(out io.Writer, r *suite.Report) error {
	all := junitSuites{Name: "gatehouse test"}
	for _, t := range r.Tests {
		if n := len(all.Suites); n == 0 || all.Suites[n-1].Name != t.File {
			all.Suites = append(all.Suites, junitSuite{Name: t.File, Properties: releaseProperties(r.KubernetesVersion, "")})
		}
		s := &all.Suites[len(all.Suites)-1]
		c := junitCase{Name: t.Name, Class: t.File, File: t.File, Line: t.Line}
		s.Tests++
		all.Tests++
		switch t.Status {
		case suite.Failed, suite.Broken:
			s.Failures++
			all.Failures++
			var text bytes.Buffer
			if t.Status == suite.Failed {
				printFailure(&text, t)
			} else {
				text.WriteString(t.Message)
			}
			c.Failure = &junitFailure{Type: string(t.Status), Message: failureText(t), Text: text.String()}
		case suite.Skipped:
			s.Skipped++
			c.Skipped = &junitSkipped{Message: t.Message}
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}

func printTestSARIF(out io.Writer, r *suite.Report) error {
	run := &sarif.Run{Tool: "gatehouse test", URI: projectURI, Rules: []sarif.Rule{
		{ID: "test-failed", Level: "error", Title: "A test of admission failed.", Fix: "Change the policy, the webhook or what the test expects."},
		{ID: "test-not-judged", Level: "error", Title: "A test of admission could not be judged.", Fix: "The message says what is missing."},
	}}
	for _, t := range r.Tests {
		switch t.Status {
		case suite.Broken:
			run.Findings = append(run.Findings, sarif.Finding{Rule: "test-not-judged", Level: "error", Message: t.Name + ": " + t.Message, File: t.File, Line: t.Line, Object: t.Name})
		case suite.Failed:
			for i := range t.Failures {
				f := &t.Failures[i]
				run.Findings = append(run.Findings, sarif.Finding{
					Rule: "test-failed", Level: "error", Message: fmt.Sprintf("%s: %s: want %s, got %s", t.Name, f.Field, f.Want, f.Got),
					File: t.File, Line: lineOf(t, f), Object: t.Name,
				})
			}
		}
	}
	return sarif.Write(out, run)
}

// printTestGitHub writes commands that GitHub shows at the lines of a change, and a line that counts.
func printTestGitHub(out io.Writer, r *suite.Report) error {
	var list []annotation
	for _, t := range r.Tests {
		level := "error"
		switch t.Status {
		case suite.Passed:
			continue
		case suite.Skipped:
			level = "note"
		}
		line, message := t.Line, failureText(t)
		if len(t.Failures) > 0 {
			line = lineOf(t, &t.Failures[0])
		}
		if t.Status == suite.Skipped {
			message = "skipped: " + t.Message
		}
		if t.Repeat != "" {
			message += "\nagain: " + t.Repeat
		}
		list = append(list, annotation{level: level, rule: t.Name, file: t.File, line: line, message: message})
	}
	if err := printGitHub(out, list); err != nil {
		return err
	}
	s := &r.Summary
	_, err := terminal.Fprintf(out, "%s: %d passed, %d failed, %d skipped, %d not judged\n", counted(s.Tests, "test"), s.Passed, s.Failed, s.Skipped, s.Errors)
	return err
}
