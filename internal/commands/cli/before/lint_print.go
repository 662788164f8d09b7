package before

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/commands/cli/command"
	"github.com/gatehouse-dev/gatehouse/internal/kit/emulation"
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/lint"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

// practicesURI is the Kubernetes page of the advice that rules of lint refer to.
const practicesURI = "https://kubernetes.io/docs/concepts/cluster-administration/admission-webhooks-good-practices/"

// rulesURI is the page of all rules; the ID of a rule is its anchor.
const rulesURI = report.ProjectURI + "/blob/main/docs/lint.md#"

// findings returns the findings of a level and of more severe levels.
func (r *lintReport) findings(least report.Level) []*lint.Finding {
	var list []*lint.Finding
	for i := range r.Findings {
		if f := &r.Findings[i]; slices.Index(report.Levels, f.Level) <= slices.Index(report.Levels, least) {
			list = append(list, f)
		}
	}
	return list
}

// placed adds the position to a fault.
func (r *lintReport) placed(f *lint.Finding) report.Finding {
	at, _ := r.locate(f, f.Path)
	return f.At(at.File, at.Line, at.Column)
}

func (r *lintReport) print(out io.Writer, format *command.ReportFormat, least report.Level, verbosity int) error {
	list := r.findings(least)
	found := r.report(list)
	return format.Write(out, found, func(out io.Writer) error { return r.printText(out, found, verbosity) })
}

// report builds the report of all formats.
func (r *lintReport) report(list []*lint.Finding) *report.Document {
	f := &report.Document{
		Tool:  "gatehouse lint",
		Title: "Dangers in " + r.subject,
		Sums:  []report.Sum{{Name: "errors", N: r.Count(lint.Error)}, {Name: "warnings", N: r.Count(lint.Warning)}, {Name: "notes", N: r.Count(lint.Note)}, {Name: "rules checked", N: len(r.Checked)}},
		Parts: []report.Part{{Heading: "Without effect", Items: r.idle}, {Heading: "Not seen", Items: r.Unseen}},
		Notes: r.Unseen, VersionNote: r.release.Line, Kubernetes: emulation.Behaves("v" + emulation.Release),
		Elsewhere: command.ConfigFile, Data: r.data(list),
	}
	if n := len(r.suppressed); n > 0 {
		f.Sums = append(f.Sums, report.Sum{Name: "suppressed", N: n})
	}
	for _, rule := range r.Checked {
		f.Rules = append(f.Rules, report.Description{
			ID: rule.ID, Level: rule.Level, Title: rule.Title + ".", Why: rule.Why, Fix: rule.Fix,
			URI: rulesURI + rule.ID, Tags: []string{"kubernetes", "admission"},
		})
	}
	for _, one := range list {
		f.Findings = append(f.Findings, r.placed(one))
	}
	for i := range r.suppressed {
		s := &r.suppressed[i]
		f.Suppressed = append(f.Suppressed, report.Suppressed{Finding: r.placed(&s.finding), Reason: s.reason, By: s.by})
	}
	return f
}

// printText writes a report for people: a line for each finding, the sums, acceptances without effect, and
// unread objects.
func (r *lintReport) printText(out io.Writer, found *report.Document, verbosity int) error {
	r.release.Print(out)
	sum := view.Together{view.Note("%s, %s and %s in %s, by %s.",
		report.Count(r.Count(lint.Error), "error"), report.Count(r.Count(lint.Warning), "warning"), report.Count(r.Count(lint.Note), "note"), r.subject, report.Count(len(r.Checked), "rule"))}
	if n := len(r.suppressed); n > 0 {
		sum = append(sum, view.Note("%s suppressed.", report.Count(n, "finding")))
	}
	d := &view.Document{Blocks: []view.Block{view.FindingsOf(found), sum}}
	parts := slices.Clone(found.Parts)
	if verbosity == 0 {
		for i := range parts {
			parts[i].Items = shortened(parts[i].Items)
		}
	} else {
		names := make([]string, len(r.Checked))
		for i, rule := range r.Checked {
			names[i] = rule.ID
		}
		parts = append(parts, report.Part{Heading: "Checked", Items: names})
	}
	for _, p := range parts {
		if len(p.Items) > 0 {
			d.Blocks = append(d.Blocks, view.List(p))
		}
	}
	if len(found.Findings) > 0 {
		d.Blocks = append(d.Blocks, view.Note("Run 'gatehouse lint --explain RULE' for the reason of a rule and its remedy."))
	}
	return d.Format(out, "text")
}

// lintFinding is a finding in the report for programs.
type lintFinding struct {
	Rule    string       `json:"rule"`
	Level   report.Level `json:"level"`
	Message string       `json:"message"`
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

// lintSuppressed is an accepted finding in the report for programs.
type lintSuppressed struct {
	lintFinding
	Reason string `json:"reason"`
	By     string `json:"by"`
}

// lintData is the report for programs. Its JSON is stable: fields are only ever added.
type lintData struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Findings   []lintFinding `json:"findings"`
	Checked    []string      `json:"checked"`
	Unseen     []string      `json:"unseen"`
	// Suppressed are the accepted findings. WithoutEffect describes acceptances that match no finding.
	Suppressed    []lintSuppressed `json:"suppressed,omitempty"`
	WithoutEffect []string         `json:"withoutEffect,omitempty"`
	// KubernetesVersion is the release that lint assumed. VersionNote explains a difference from the cluster's
	// release.
	KubernetesVersion string `json:"kubernetesVersion"`
	VersionNote       string `json:"versionNote,omitempty"`
}

func (r *lintReport) data(list []*lint.Finding) *lintData {
	data := &lintData{
		APIVersion: "gatehouse.dev/v1alpha1", Kind: "LintReport", Findings: []lintFinding{}, Unseen: append([]string{}, r.Unseen...), WithoutEffect: r.idle,
		KubernetesVersion: emulation.Behaves("v" + emulation.Release), VersionNote: r.release.Line,
	}
	one := func(f *lint.Finding) lintFinding {
		p := r.placed(f)
		out := lintFinding{Rule: p.Rule, Level: p.Level, Message: f.Message, Field: p.Field, File: p.File, Line: p.Line, Column: p.Column}
		out.Object.Kind, out.Object.Namespace, out.Object.Name = f.Object.Kind, f.Object.Namespace, f.Object.Name
		return out
	}
	for _, f := range list {
		data.Findings = append(data.Findings, one(f))
	}
	for i := range r.suppressed {
		s := &r.suppressed[i]
		data.Suppressed = append(data.Suppressed, lintSuppressed{one(&s.finding), s.reason, s.by})
	}
	for _, rule := range r.Checked {
		data.Checked = append(data.Checked, rule.ID)
	}
	return data
}

// ruleSection is a section of the description of a rule. An example is YAML.
type ruleSection struct {
	title, text string
	example     bool
}

// ruleSections are the sections that --explain and the page of a rule have.
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
		list = append(list, ruleSection{title: "Input of the rule", text: strings.Join(parts, ", ") + "."})
	}
	return append(list, ruleSection{title: "An example that fails", text: r.Fails, example: true}, ruleSection{title: "An example that passes", text: r.Passes, example: true})
}

// explainRule prints the description of a rule.
func explainRule(out io.Writer, r *lint.Rule) error {
	b := terminal.NewPage(out)
	terminal.Fprintf(b, "%s (%s)\n", terminal.Paint(terminal.Bold, r.ID), view.Level(r.Level))
	for _, s := range ruleSections(r) {
		switch {
		case s.title == "":
			terminal.Fprintf(b, "\n%s\n", s.text)
		case s.example:
			terminal.Fprintf(b, "\n%s%s\n", s.title, terminal.Indented("\n"+strings.TrimSuffix(s.text, "\n"), "    "))
		default:
			terminal.Fprintf(b, "\n%s\n%s", s.title, b.Wrapped(s.text, "    "))
		}
	}
	return b.Flush()
}

// shortened merges the sentences about files that begin with the same words: more than three become one, with the
// number of the others.
func shortened(list []string) (short []string) {
	const most, words = 3, 4
	reason := func(sentence string) string {
		place, message, ok := strings.Cut(sentence, ": ")
		if !ok || !strings.ContainsAny(place, "./") || strings.Contains(place, " ") {
			return ""
		}
		fields := strings.Fields(message)
		return strings.Join(fields[:min(words, len(fields))], " ")
	}
	count := map[string]int{}
	for _, sentence := range list {
		count[reason(sentence)]++
	}
	said := map[string]bool{}
	for _, sentence := range list {
		switch why := reason(sentence); {
		case why == "" || count[why] <= most:
			short = append(short, sentence)
		case !said[why]:
			said[why] = true
			short = append(short, fmt.Sprintf("%s; and %d more, which -v 1 lists", sentence, count[why]-1))
		}
	}
	return short
}
