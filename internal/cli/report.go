package cli

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/pages"
	"github.com/gatehouse-dev/gatehouse/internal/report"
	"github.com/gatehouse-dev/gatehouse/internal/terminal"
)

// rulesURI is where the pages of the rules of lint are.
const rulesURI = report.ProjectURI + "/blob/main/docs/lint/"

// formatNotes say what is behind the name of a format.
var formatNotes = map[string]string{
	"html": "a page", "github": "workflow annotations", "gitlab": "code quality", "policyreport": "wgpolicyk8s.io/v1alpha2",
}

// reportFormat is the flag --output of a command that writes a report.
type reportFormat struct{ name string }

// addFlag defines the flag. more are formats that not every report has.
func (o *reportFormat) addFlag(f *pflag.FlagSet, more ...string) {
	formats := slices.Concat(report.Formats, more)
	texts := make([]string, len(formats))
	for i, name := range formats {
		texts[i] = name
		if note := formatNotes[name]; note != "" {
			texts[i] += " (" + note + ")"
		}
	}
	last := len(texts) - 1
	choose(f, &o.name, "output", "o", "text", strings.Join(texts[:last], ", ")+" or "+texts[last], formats...)
}

// write writes a report in the format that was asked for; text writes it for a terminal.
func (o *reportFormat) write(out io.Writer, r *report.Report, text func(io.Writer) error) error {
	r.Version = semantic()
	switch {
	case o.name == "text":
		return text(out)
	case report.ForPeople(o.name):
		return pages.OfReport(r).Format(terminal.Exact(out), o.name)
	}
	return r.Write(terminal.Exact(out), o.name)
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
