package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// gitHubData and gitHubProperty escape text so that it neither ends a workflow command nor begins
// another.
var (
	gitHubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	gitHubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// gitHub writes workflow commands, which GitHub shows at the lines of a pull request, and a line
// with counts for the log.
func (r *Document) gitHub(w io.Writer) error {
	var b strings.Builder
	for i := range r.Findings {
		f := &r.Findings[i]
		command := string(f.Level)
		if f.Level == Note {
			command = "notice"
		}
		var properties []string
		if f.File != "" {
			properties = append(properties, "file="+gitHubProperty.Replace(filepath.ToSlash(f.File)))
		}
		if f.Line > 0 {
			properties = append(properties, fmt.Sprintf("line=%d", f.Line))
		}
		if f.Line > 0 && f.Column > 0 {
			properties = append(properties, fmt.Sprintf("col=%d", f.Column))
		}
		properties = append(properties, "title="+gitHubProperty.Replace(f.Rule))
		b.WriteString("::" + command + " " + strings.Join(properties, ",") + "::" + gitHubData.Replace(f.About()) + "\n")
	}
	for i, sum := range r.Sums {
		separator := ", "
		if i == 0 {
			separator = gitHubData.Replace(r.Title) + ": "
		}
		fmt.Fprintf(&b, "%s%d %s", separator, sum.N, sum.Name)
	}
	if len(r.Sums) > 0 {
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// codeQuality is an entry of a GitLab code quality report.
type codeQuality struct {
	Description string `json:"description"`
	CheckName   string `json:"check_name"`
	Fingerprint string `json:"fingerprint"`
	Severity    string `json:"severity"`
	Location    struct {
		Path  string `json:"path"`
		Lines struct {
			Begin int `json:"begin"`
		} `json:"lines"`
	} `json:"location"`
}

// severities maps the levels to GitLab's severities.
var severities = map[Level]string{Error: "critical", Warning: "minor", Note: "info"}

// gitLab writes a code quality report. GitLab requires a place for each finding: findings without a
// file are reported in the first line of r.Elsewhere.
func (r *Document) gitLab(w io.Writer) error {
	entries := []codeQuality{}
	prints := fingerprints{}
	for i := range r.Findings {
		f := &r.Findings[i]
		e := codeQuality{Description: f.About(), CheckName: f.Rule, Severity: severities[f.Level], Fingerprint: prints.of(f, 16, "-")}
		e.Location.Path, e.Location.Lines.Begin = filepath.ToSlash(cmp.Or(f.File, r.Elsewhere)), max(f.Line, 1)
		entries = append(entries, e)
	}
	data, err := json.MarshalIndent(entries, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}
