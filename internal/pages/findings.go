package pages

import (
	"fmt"
	"strings"
)

// Finding is something that is wrong, and where.
type Finding struct {
	// Level is error, warning or note. Rule names the rule, and About is its address, if it has one.
	Level, Rule, About string
	// Object names the object, Href is its address in the console, and Place is a place in a file.
	Object, Href, Place string
	Text                string
}

// Sum is a number of things.
type Sum struct {
	Name string
	N    int
}

// Part is a list of sentences under a heading.
type Part struct {
	Heading string
	Items   []string
}

// Difference is what became of an object, as a unified diff.
type Difference struct {
	Heading, Diff string
	Notes         []string
}

// Findings are a report: of lint, or of check.
type Findings struct {
	Title    string
	Sums     []Sum
	Findings []Finding
	Changes  []Difference
	Parts    []Part
	Foot     string
}

// maxFindings is how many findings are drawn.
const maxFindings = 2000

// levelClasses are the classes of levels.
var levelClasses = map[string]string{"error": "bad", "warning": "warn", "note": "note"}

// drawnFinding is a Finding, as it is drawn.
type drawnFinding struct {
	Finding
	Class string
}

// diffLine is a line of a Difference.
type diffLine struct{ Class, Text string }

type drawnDifference struct {
	Difference
	Lines []diffLine
}

// OfFindings returns a report of findings.
func OfFindings(f Findings) View {
	shown := min(len(f.Findings), maxFindings)
	drawn := make([]drawnFinding, shown)
	for i := range drawn {
		drawn[i] = drawnFinding{f.Findings[i], levelClasses[f.Findings[i].Level]}
	}
	changes := make([]drawnDifference, len(f.Changes))
	for i, c := range f.Changes {
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
		Findings
		Drawn []drawnFinding
		Diffs []drawnDifference
		More  int
	}{f, drawn, changes, len(f.Findings) - shown}
	return View{Title: f.Title, template: "findings", data: data, markdown: f.markdown}
}

func (f *Findings) markdown(m *markdown) {
	sums := make([]string, len(f.Sums))
	for i, s := range f.Sums {
		sums[i] = fmt.Sprintf("**%d** %s", s.N, escaped(s.Name))
	}
	m.line("%s", strings.Join(sums, ", "))
	if len(f.Findings) > 0 {
		m.head("level", "where", "what", "rule")
	}
	for i := range f.Findings[:min(len(f.Findings), maxFindings)] {
		one := &f.Findings[i]
		where := code(one.Place)
		if one.Object != "" {
			where = strings.TrimPrefix(where+"<br>"+code(one.Object), "<br>")
		}
		m.row(escaped(one.Level), where, code(one.Text), code(one.Rule))
	}
	m.end()
	for _, p := range f.Parts {
		if len(p.Items) == 0 {
			continue
		}
		m.line("%s:", escaped(p.Heading))
		for _, text := range p.Items {
			m.item("%s", code(text))
		}
		m.end()
	}
	if f.Foot != "" {
		m.line("%s", escaped(f.Foot))
	}
}
