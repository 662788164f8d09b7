package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// annotation is a finding at a line, for code hosts.
type annotation struct {
	// level is error, warning or note.
	level, rule, object, message string
	file                         string
	line, column                 int
}

// text is the message with the object that it is about.
func (a *annotation) text() string {
	if a.object == "" {
		return a.message
	}
	return a.object + ": " + a.message
}

// gitHubData and gitHubProperty write text so that it ends no command and begins no other.
var (
	gitHubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	gitHubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// printGitHub writes workflow commands, which GitHub shows at the lines of a pull request.
func printGitHub(out io.Writer, list []annotation) error {
	var b strings.Builder
	for i := range list {
		a := &list[i]
		command := a.level
		if command == "note" {
			command = "notice"
		}
		properties := []string{"title=" + gitHubProperty.Replace(a.rule)}
		if a.line > 0 && a.column > 0 {
			properties = append([]string{fmt.Sprintf("col=%d", a.column)}, properties...)
		}
		if a.line > 0 {
			properties = append([]string{fmt.Sprintf("line=%d", a.line)}, properties...)
		}
		if a.file != "" {
			properties = append([]string{"file=" + gitHubProperty.Replace(filepath.ToSlash(a.file))}, properties...)
		}
		b.WriteString("::" + command + " " + strings.Join(properties, ",") + "::" + gitHubData.Replace(a.text()) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// codeQuality is an entry of a code quality report of GitLab.
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

// printGitLab writes a code quality report. GitLab wants a place for each finding: those without
// one are at the first line of elsewhere.
func printGitLab(out io.Writer, list []annotation, elsewhere string) error {
	severities := map[string]string{"error": "critical", "warning": "minor", "note": "info"}
	entries := []codeQuality{}
	seen := map[string]int{}
	for i := range list {
		a := &list[i]
		e := codeQuality{Description: a.text(), CheckName: a.rule, Severity: severities[a.level]}
		e.Location.Path, e.Location.Lines.Begin = filepath.ToSlash(a.file), max(a.line, 1)
		if a.file == "" {
			e.Location.Path = filepath.ToSlash(elsewhere)
		}
		// The line is not part of it: a finding stays the same when lines are added above.
		sum := sha256.Sum256([]byte(strings.Join([]string{a.rule, a.file, a.object, a.message}, "\x00")))
		hash := hex.EncodeToString(sum[:16])
		seen[hash]++
		e.Fingerprint = fmt.Sprintf("%s-%d", hash, seen[hash])
		entries = append(entries, e)
	}
	data, err := json.MarshalIndent(entries, "", "  ")
	if err != nil {
		return err
	}
	_, err = out.Write(append(data, '\n'))
	return err
}
