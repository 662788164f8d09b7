package pages

import (
	"fmt"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/report"
)

// maxFindings is how many findings are drawn.
const maxFindings = 2000

// levelClasses are the classes of levels.
var levelClasses = map[report.Level]string{report.Error: "bad", report.Warning: "warn", report.Note: "note"}

// drawnFinding is a finding, as it is drawn. About is the address of its rule, if it has one.
type drawnFinding struct {
	report.Finding
	Class, About string
}

// diffLine is a line of a report.Difference.
type diffLine struct{ Class, Text string }

type drawnDifference struct {
	report.Difference
	Lines []diffLine
}

func drawFindings(list []report.Finding, rules []report.Rule) []drawnFinding {
	about := map[string]string{}
	for i := range rules {
		about[rules[i].ID] = rules[i].URI
	}
	drawn := make([]drawnFinding, min(len(list), maxFindings))
	for i := range drawn {
		drawn[i] = drawnFinding{list[i], levelClasses[list[i].Level], about[list[i].Rule]}
	}
	return drawn
}

// OfReport returns a report for people.
func OfReport(r *report.Report) View {
	drawn := drawFindings(r.Findings, r.Rules)
	changes := make([]drawnDifference, len(r.Changes))
	for i, c := range r.Changes {
		changes[i].Difference = c
		for line := range strings.Lines(c.Diff) {
			class := ""
			switch line[0] {
			case '+':
				class = "add"
			case '-':
				class = "del"
			case '@':
				class = "at"
			}
			changes[i].Lines = append(changes[i].Lines, diffLine{class, strings.TrimSuffix(line, "\n")})
		}
	}
	data := struct {
		*report.Report
		Drawn []drawnFinding
		Diffs []drawnDifference
		Foot  string
		More  int
	}{r, drawn, changes, reportFoot(r), len(r.Findings) - len(drawn)}
	return View{Title: r.Title, template: "report", data: data, markdown: func(m *markdown) { reportMarkdown(m, r) }}
}

// reportFoot says what was judged by.
func reportFoot(r *report.Report) string {
	if r.Kubernetes == "" {
		return ""
	}
	return strings.TrimSpace("By Kubernetes " + r.Kubernetes + ". " + r.VersionNote)
}

func reportMarkdown(m *markdown, r *report.Report) {
	sums := make([]string, len(r.Sums))
	for i, s := range r.Sums {
		sums[i] = fmt.Sprintf("**%d** %s", s.N, escaped(s.Name))
	}
	m.line("%s", strings.Join(sums, ", "))
	if len(r.Findings) > 0 {
		m.head("level", "where", "what", "rule")
	}
	for i := range r.Findings[:min(len(r.Findings), maxFindings)] {
		one := &r.Findings[i]
		where := code(one.Place())
		if one.Object != "" {
			where = strings.TrimPrefix(where+"<br>"+code(one.Object), "<br>")
		}
		what := code(one.Text())
		if one.Remedy != "" {
			what += "<br>" + code(one.Remedy)
		}
		m.row(escaped(string(one.Level)), where, what, code(one.Rule))
	}
	m.end()
	if more := len(r.Findings) - maxFindings; more > 0 {
		m.line("%d more findings are not listed.", more)
	}
	for _, p := range r.Parts {
		if len(p.Items) == 0 {
			continue
		}
		m.line("%s:", escaped(p.Heading))
		for _, text := range p.Items {
			m.item("%s", code(text))
		}
		m.end()
	}
	if foot := reportFoot(r); foot != "" {
		m.line("%s", escaped(foot))
	}
}
