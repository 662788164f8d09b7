package view

import (
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// maxFindings bounds the findings that are drawn.
const maxFindings = 2000

var levelClasses = map[report.Level]Class{report.Error: Bad, report.Warning: Warning, report.Note: Noted}

type (
	// Sums are counts with names.
	Sums []report.Sum

	Findings []Finding

	// Diff is a unified diff, under a heading.
	Diff report.Difference
)

func (Sums) block()     {}
func (Findings) block() {}
func (Diff) block()     {}

// Finding is a finding of a report. About is the address of its rule; empty if it has none.
type Finding struct {
	report.Finding
	Class Class
	About string
}

// DiffLine is a line of a Diff. Class is add, del or at.
type DiffLine struct{ Class, Text string }

// Lines returns the lines of the diff.
func (d Diff) Lines() []DiffLine {
	var list []DiffLine
	for line := range strings.Lines(d.Diff) {
		list = append(list, DiffLine{map[byte]string{'+': "add", '-': "del", '@': "at"}[line[0]], strings.TrimSuffix(line, "\n")})
	}
	return list
}

// FindingsOf returns the findings of a report, up to maxFindings.
func FindingsOf(r *report.Document) Findings { return findings(r.Findings, r.Rules) }

// findings adds the addresses of the rules to findings.
func findings(list []report.Finding, rules []report.Description) Findings {
	about := map[string]string{}
	for i := range rules {
		about[rules[i].ID] = rules[i].URI
	}
	found := make(Findings, min(len(list), maxFindings))
	for i := range found {
		found[i] = Finding{list[i], levelClasses[list[i].Level], about[list[i].Rule]}
	}
	return found
}

// OfReport draws a report.
func OfReport(r *report.Document) *Document {
	d := &Document{Title: r.Title, Blocks: []Block{Sums(r.Sums)}}
	switch {
	case len(r.Findings) > 0:
		d.Blocks = append(d.Blocks, FindingsOf(r))
	case r.Blind != "":
		d.Blocks = append(d.Blocks, Callout{Class: Warning, Head: strings.TrimSuffix(r.Blind, ".")})
	default:
		d.Blocks = append(d.Blocks, Callout{Class: Good, Head: "Nothing was found"})
	}
	if more := len(r.Findings) - maxFindings; more > 0 {
		d.Blocks = append(d.Blocks, Note("%d more findings are not listed.", more))
	}
	for _, c := range r.Changes {
		d.Blocks = append(d.Blocks, Diff(c))
	}
	for _, p := range r.Parts {
		if len(p.Items) > 0 {
			d.Blocks = append(d.Blocks, List{p.Heading, p.Items})
		}
	}
	if r.Kubernetes != "" {
		d.Blocks = append(d.Blocks, Note("%s", strings.TrimSpace("By Kubernetes "+r.Kubernetes+". "+r.VersionNote)))
	}
	return d
}
