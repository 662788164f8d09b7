package command

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
	"github.com/gatehouse-dev/gatehouse/internal/readers/view"
)

// formatNotes describe the formats.
var formatNotes = map[string]string{
	"html": "a page", "github": "workflow annotations", "gitlab": "code quality", "policyreport": "wgpolicyk8s.io/v1alpha2",
}

// ReportFormat is the flag --output of a command that writes a report.
type ReportFormat struct{ Name string }

// AddFlag defines the flag. more are additional formats of the command.
func (o *ReportFormat) AddFlag(f *pflag.FlagSet, more ...string) {
	formats := slices.Concat(report.Formats, more)
	texts := make([]string, len(formats))
	for i, name := range formats {
		texts[i] = name
		if note := formatNotes[name]; note != "" {
			texts[i] += " (" + note + ")"
		}
	}
	last := len(texts) - 1
	Choose(f, &o.Name, "output", "o", "text", strings.Join(texts[:last], ", ")+" or "+texts[last], formats...)
}

// Write writes a report in the chosen format. text writes the report for a terminal.
func (o *ReportFormat) Write(out io.Writer, r *report.Document, text func(io.Writer) error) error {
	r.Version = semantic()
	switch {
	case o.Name == "text":
		return text(out)
	case report.ForPeople(o.Name):
		return view.OfReport(r).Format(out, o.Name)
	}
	return r.Write(terminal.Exact(out), o.Name)
}

// semantic returns the version of the program without its v if it is a semantic version; empty otherwise.
func semantic() string {
	version := strings.TrimPrefix(CurrentVersion().Version, "v")
	if strings.ContainsAny(version, "()") {
		// A build from a work tree has no semantic version.
		return ""
	}
	return version
}
