package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/lint"
	"github.com/gatehouse-dev/gatehouse/internal/sarif"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// Addresses of the documentation.
const (
	projectURI   = "https://github.com/gatehouse-dev/gatehouse"
	rulesURI     = projectURI + "/blob/main/docs/lint.md"
	practicesURI = "https://kubernetes.io/docs/concepts/cluster-administration/admission-webhooks-good-practices/"
)

// placed is a finding with its place.
type placed struct {
	Rule    string     `json:"rule"`
	Level   lint.Level `json:"level"`
	Message string     `json:"message"`
	Object  struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace,omitempty"`
		Name      string `json:"name"`
	} `json:"object"`
	Field string `json:"field,omitempty"`
	File  string `json:"file,omitempty"`
	Line  int    `json:"line,omitempty"`
}

// findings returns what is at least of a level.
func (r *lintReport) findings(least lint.Level) []placed {
	levels := []lint.Level{lint.Error, lint.Warning, lint.Note}
	list := []placed{}
	for i := range r.Findings {
		f := &r.Findings[i]
		if slices.Index(levels, f.Level) > slices.Index(levels, least) {
			continue
		}
		p := placed{Rule: f.Rule.ID, Level: f.Level, Message: f.Message, Field: f.Field()}
		p.Object.Kind, p.Object.Namespace, p.Object.Name = f.Object.Kind, f.Object.Namespace, f.Object.Name
		p.File, p.Line, _ = r.locate(f.Object, f.Path)
		list = append(list, p)
	}
	return list
}

func (r *lintReport) print(out io.Writer, format string, least lint.Level) error {
	list := r.findings(least)
	switch format {
	case "json":
		return r.printJSON(terminal.Exact(out), list)
	case "sarif":
		return r.printSARIF(terminal.Exact(out), list)
	}
	return r.printText(out, list)
}

func (r *lintReport) printText(out io.Writer, list []placed) error {
	var b bytes.Buffer
	for i := range list {
		p := &list[i]
		where := lint.Object{Kind: p.Object.Kind, Namespace: p.Object.Namespace, Name: p.Object.Name}.String()
		if p.Field != "" {
			where += ": " + p.Field
		}
		if p.File != "" {
			where = fmt.Sprintf("%s:%d: %s", p.File, p.Line, where)
		}
		terminal.Fprintf(&b, "%s\n", where)
		b.WriteString(wrapped(fmt.Sprintf("%s %s: %s.", p.Level, p.Rule, p.Message), "    "))
	}
	if len(list) > 0 {
		fmt.Fprintln(&b)
	}
	terminal.Fprintf(&b, "%s, %s and %s in %s.\n", count(r.Count(lint.Error), "error"), count(r.Count(lint.Warning), "warning"), count(r.Count(lint.Note), "note"), r.subject)
	names := make([]string, len(r.Checked))
	for i, rule := range r.Checked {
		names[i] = rule.ID
	}
	terminal.Fprintf(&b, "\nChecked %s:\n%s", count(len(names), "rule"), terminal.Lines(wrapped(strings.Join(names, ", "), "    ")))
	if len(r.Unseen) > 0 {
		terminal.Fprintf(&b, "\nNot seen:\n")
		for _, text := range r.Unseen {
			b.WriteString(hanging(text))
		}
	}
	if len(list) > 0 {
		terminal.Fprintf(&b, "\nRun 'gatehouse lint --explain RULE' for what a rule is about, and what to do.\n")
	}
	_, err := out.Write(b.Bytes())
	return err
}

// textWidth is how long the lines of texts are.
const textWidth = 100

// wrapped breaks a text into lines that begin with an indent.
func wrapped(text, indent string) string {
	var b strings.Builder
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line) > len(indent) && len(line)+1+len(word) > textWidth {
			b.WriteString(line + "\n")
			line = indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	return b.String() + line + "\n"
}

// hanging is an item of a list.
func hanging(text string) string { return "  - " + strings.TrimLeft(wrapped(text, "    "), " ") }

func (r *lintReport) printJSON(out io.Writer, list []placed) error {
	report := struct {
		Findings []placed `json:"findings"`
		Checked  []string `json:"checked"`
		Unseen   []string `json:"unseen"`
	}{Findings: list, Unseen: append([]string{}, r.Unseen...)}
	for _, rule := range r.Checked {
		report.Checked = append(report.Checked, rule.ID)
	}
	data, err := json.MarshalIndent(report, "", "    ")
	if err != nil {
		return err
	}
	_, err = out.Write(append(data, '\n'))
	return err
}

func (r *lintReport) printSARIF(out io.Writer, list []placed) error {
	run := &sarif.Run{Tool: "gatehouse lint", Version: semantic(), URI: projectURI, Notes: r.Unseen}
	for _, rule := range r.Checked {
		one := sarif.Rule{
			ID: rule.ID, Level: sarif.Level(rule.Level), Title: rule.Title + ".", Why: rule.Why, Fix: rule.Fix,
			URI: rulesURI + "#" + rule.ID, Tags: []string{"kubernetes", "admission"},
		}
		run.Rules = append(run.Rules, one)
	}
	for i := range list {
		p := &list[i]
		object := lint.Object{Kind: p.Object.Kind, Namespace: p.Object.Namespace, Name: p.Object.Name}
		run.Findings = append(run.Findings, sarif.Finding{
			Rule: p.Rule, Level: sarif.Level(p.Level), Message: p.Message + ".", File: p.File, Line: p.Line, Object: object.String(),
		})
	}
	return sarif.Write(out, run)
}

// explainRule prints all that there is to say about a rule.
func explainRule(out io.Writer, r *lint.Rule) error {
	var b bytes.Buffer
	terminal.Fprintf(&b, "%s (%s)\n\n%s.\n\n", r.ID, r.Level, r.Title)
	terminal.Fprintf(&b, "Why\n%s\nWhat to do\n%s", terminal.Lines(wrapped(r.Why, "    ")), terminal.Lines(wrapped(r.Fix, "    ")))
	if r.Advice != "" {
		terminal.Fprintf(&b, "\nSee also\n    %s#%s\n", practicesURI, r.Advice)
	}
	if len(r.Reads) > 0 {
		parts := make([]string, len(r.Reads))
		for i, p := range r.Reads {
			parts[i] = string(p)
		}
		terminal.Fprintf(&b, "\nBesides the registrations, the rule looks at\n    %s\n", strings.Join(parts, ", "))
	}
	terminal.Fprintf(&b, "\nAn example that fails\n%s\nAn example that passes\n%s", terminal.Lines(shifted(r.Fails)), terminal.Lines(shifted(r.Passes)))
	_, err := out.Write(b.Bytes())
	return err
}

func shifted(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}

// semantic is the version of the program if it is a semantic one, without its v.
func semantic() string {
	version := strings.TrimPrefix(currentVersion().Version, "v")
	if strings.ContainsAny(version, "()") {
		// The work tree has none.
		return ""
	}
	return version
}
