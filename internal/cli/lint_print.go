package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/lint"
	"github.com/gatehouse-dev/gatehouse/internal/pages"
	"github.com/gatehouse-dev/gatehouse/internal/sarif"
	"github.com/gatehouse-dev/gatehouse/internal/server"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// Addresses of the documentation.
const (
	projectURI   = "https://github.com/gatehouse-dev/gatehouse"
	rulesURI     = projectURI + "/blob/main/docs/lint/"
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
	// Line and Column count from 1.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
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
		list = append(list, r.place(f))
	}
	return list
}

// place returns a finding with its place.
func (r *lintReport) place(f *lint.Finding) placed {
	p := placed{Rule: f.Rule.ID, Level: f.Level, Message: f.Message, Field: f.Field()}
	p.Object.Kind, p.Object.Namespace, p.Object.Name = f.Object.Kind, f.Object.Namespace, f.Object.Name
	at, _ := r.locate(f.Object, f.Path)
	p.File, p.Line, p.Column = at.File, at.Line, at.Column
	return p
}

// title names the object of a finding.
func (p *placed) title() string {
	return lint.Object{Kind: p.Object.Kind, Namespace: p.Object.Namespace, Name: p.Object.Name}.String()
}

func (r *lintReport) print(out io.Writer, format string, least lint.Level, verbosity int) error {
	list := r.findings(least)
	switch format {
	case "json":
		return r.printJSON(terminal.Exact(out), list)
	case "html", "markdown":
		return r.view(list).Format(terminal.Exact(out), format)
	case "sarif":
		return r.printSARIF(terminal.Exact(out), list)
	case "github":
		return printGitHub(terminal.Exact(out), annotationsOfLint(list))
	case "gitlab":
		return printGitLab(terminal.Exact(out), annotationsOfLint(list), configFile)
	}
	return r.printText(out, list, verbosity)
}

// annotationsOfLint are findings for code hosts.
func annotationsOfLint(list []placed) []annotation {
	annotations := make([]annotation, len(list))
	for i := range list {
		p := &list[i]
		annotations[i] = annotation{level: string(p.Level), rule: p.Rule, object: p.title(), message: p.Message + ".", file: p.File, line: p.Line, column: p.Column}
	}
	return annotations
}

// view is the page of a report.
func (r *lintReport) view(list []placed) pages.View {
	f := pages.Findings{
		Title: "What is dangerous in " + r.subject,
		Sums:  []pages.Sum{{Name: "errors", N: r.Count(lint.Error)}, {Name: "warnings", N: r.Count(lint.Warning)}, {Name: "notes", N: r.Count(lint.Note)}, {Name: "rules checked", N: len(r.Checked)}},
		Parts: []pages.Part{{Heading: "Without effect", Items: r.idle}, {Heading: "Not seen", Items: r.Unseen}},
	}
	if n := len(r.suppressed); n > 0 {
		f.Sums = append(f.Sums, pages.Sum{Name: "suppressed", N: n})
	}
	for i := range list {
		p := &list[i]
		one := pages.Finding{Level: string(p.Level), Rule: p.Rule, About: rulesURI + p.Rule + ".md", Object: p.title(), Text: p.Message + "."}
		if p.Field != "" {
			one.Text = p.Field + ": " + one.Text
		}
		if p.File != "" {
			one.Place = place(p.File, p.Line, p.Column)
		}
		f.Findings = append(f.Findings, one)
	}
	return pages.OfFindings(f)
}

func (r *lintReport) printText(out io.Writer, list []placed, verbosity int) error {
	page := terminal.NewPage(out)
	r.release.print(page)
	for i := range list {
		p := &list[i]
		where := p.title()
		if p.Field != "" {
			where += ": " + p.Field
		}
		if p.File != "" {
			where = place(p.File, p.Line, p.Column) + ": " + where
		}
		text := page.Wrapped(fmt.Sprintf("%s %s: %s.", p.Level, p.Rule, p.Message), "    ")
		terminal.Fprintf(page, "%s\n    %s%s", terminal.Paint(terminal.Bold, where), levelPainted(string(p.Level)), text[len("    ")+len(p.Level):])
	}
	if len(list) > 0 {
		terminal.Fprintf(page, "\n")
	}
	terminal.Fprintf(page, "%s, %s and %s in %s, by %s.\n", count(r.Count(lint.Error), "error"), count(r.Count(lint.Warning), "warning"), count(r.Count(lint.Note), "note"), r.subject, count(len(r.Checked), "rule"))
	if n := len(r.suppressed); n > 0 {
		terminal.Fprintf(page, "%s suppressed.\n", count(n, "finding"))
	}
	if len(r.idle) > 0 {
		terminal.Fprintf(page, "\nWithout effect:\n")
		for _, text := range r.idle {
			terminal.Fprintf(page, "  - %s", page.Wrapped(text, "    ")[len("    "):])
		}
	}
	if verbosity > 0 {
		names := make([]string, len(r.Checked))
		for i, rule := range r.Checked {
			names[i] = rule.ID
		}
		terminal.Fprintf(page, "\nChecked:\n%s", page.Wrapped(strings.Join(names, ", "), "    "))
	}
	if len(r.Unseen) > 0 {
		terminal.Fprintf(page, "\nNot seen:\n")
		for _, text := range r.Unseen {
			terminal.Fprintf(page, "  - %s", page.Wrapped(text, "    ")[len("    "):])
		}
	}
	if len(list) > 0 {
		terminal.Fprintf(page, "\nRun 'gatehouse lint --explain RULE' for what a rule is about, and what to do.\n")
	}
	return page.Flush()
}

// suppressedPlaced is a finding that was accepted, with its place.
type suppressedPlaced struct {
	placed
	Reason string `json:"reason"`
	By     string `json:"by"`
}

func (r *lintReport) printJSON(out io.Writer, list []placed) error {
	report := struct {
		Findings []placed `json:"findings"`
		Checked  []string `json:"checked"`
		Unseen   []string `json:"unseen"`
		// Suppressed findings were accepted, WithoutEffect is what accepts none.
		Suppressed    []suppressedPlaced `json:"suppressed,omitempty"`
		WithoutEffect []string           `json:"withoutEffect,omitempty"`
		// KubernetesVersion is the release that the registrations were judged as, VersionNote says
		// that it is another one than that of the cluster.
		KubernetesVersion string `json:"kubernetesVersion"`
		VersionNote       string `json:"versionNote,omitempty"`
	}{Findings: list, Unseen: append([]string{}, r.Unseen...), WithoutEffect: r.idle, KubernetesVersion: emulation.Behaves("v" + server.KubernetesVersion), VersionNote: r.release.line}
	for i := range r.suppressed {
		s := &r.suppressed[i]
		report.Suppressed = append(report.Suppressed, suppressedPlaced{r.place(&s.finding), s.reason, s.by})
	}
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
	run := &sarif.Run{Tool: "gatehouse lint", Version: semantic(), URI: projectURI, Notes: versionAnd(r.release.line, r.Unseen)}
	for _, rule := range r.Checked {
		one := sarif.Rule{
			ID: rule.ID, Level: sarif.Level(rule.Level), Title: rule.Title + ".", Why: rule.Why, Fix: rule.Fix,
			URI: rulesURI + rule.ID + ".md", Tags: []string{"kubernetes", "admission"},
		}
		run.Rules = append(run.Rules, one)
	}
	add := func(p *placed, accepted string) {
		run.Findings = append(run.Findings, sarif.Finding{
			Rule: p.Rule, Level: sarif.Level(p.Level), Message: p.Message + ".", File: p.File, Line: p.Line, Object: p.title(), Accepted: accepted,
		})
	}
	for i := range list {
		add(&list[i], "")
	}
	for i := range r.suppressed {
		p := r.place(&r.suppressed[i].finding)
		add(&p, r.suppressed[i].reason)
	}
	return sarif.Write(out, run)
}

// ruleSection is a part of what there is to say about a rule. An example is YAML.
type ruleSection struct {
	title, text string
	example     bool
}

// ruleSections are what --explain and the page of a rule say.
func ruleSections(r *lint.Rule) []ruleSection {
	list := []ruleSection{{text: r.Title + "."}, {title: "Why", text: r.Why}, {title: "What to do", text: r.Fix}}
	if r.Advice != "" {
		list = append(list, ruleSection{title: "See also", text: practicesURI + "#" + r.Advice})
	}
	if len(r.Reads) > 0 {
		parts := []string{"registrations"}
		for _, p := range r.Reads {
			parts = append(parts, string(p))
		}
		list = append(list, ruleSection{title: "What the rule looks at", text: strings.Join(parts, ", ") + "."})
	}
	return append(list, ruleSection{title: "An example that fails", text: r.Fails, example: true}, ruleSection{title: "An example that passes", text: r.Passes, example: true})
}

// explainRule prints all that there is to say about a rule.
func explainRule(out io.Writer, r *lint.Rule) error {
	b := terminal.NewPage(out)
	terminal.Fprintf(b, "%s (%s)\n", terminal.Paint(terminal.Bold, r.ID), levelPainted(string(r.Level)))
	for _, s := range ruleSections(r) {
		switch {
		case s.title == "":
			terminal.Fprintf(b, "\n%s\n", s.text)
		case s.example:
			terminal.Fprintf(b, "\n%s\n%s", s.title, terminal.Lines(shifted(s.text)))
		default:
			terminal.Fprintf(b, "\n%s\n%s", s.title, b.Wrapped(s.text, "    "))
		}
	}
	return b.Flush()
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
