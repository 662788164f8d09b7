package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Level says how bad a finding is.
type Level string

// The levels, the worst first.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Note    Level = "note"
)

// Levels has all levels, the worst first.
var Levels = []Level{Error, Warning, Note}

// Rule is what findings are instances of.
type Rule struct {
	// ID names the rule, such as self-deadlock. Level is what its findings have usually.
	ID    string
	Level Level
	// Title is one short sentence, Why a longer text, and Fix says what to do. All are plain
	// text.
	Title, Why, Fix string
	// URI is where people read about the rule; it may be empty.
	URI string
	// Tags are at most ten words by which code hosts filter.
	Tags []string
}

// Finding is one thing that is wrong, and where.
type Finding struct {
	Level Level `json:"level"`
	// Rule is the ID of a rule.
	Rule string `json:"rule"`
	// File is the path as the user would write it, empty when the object is in no file. Line and
	// Column count from 1; 0 means that they are not known.
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Object names the object; empty for a file. Field is the path of the field.
	Object  string `json:"object,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	// Cause is what denied the object, or warned of it.
	Cause Cause `json:"cause,omitzero"`
	// Remedy says what to do, such as a command to run; it may be empty.
	Remedy string `json:"-"`
	// Href is where a page leads from the object.
	Href string `json:"-"`
}

// Cause is the part of admission behind a finding.
type Cause struct {
	// Plugin is the admission plugin, such as PodSecurity.
	Plugin string `json:"plugin,omitempty"`
	// Policy and Binding are the names of the admission policy and its binding; Validation is the
	// field of the policy that was violated.
	Policy     string `json:"policy,omitempty"`
	Binding    string `json:"binding,omitempty"`
	Validation string `json:"validation,omitempty"`
	// Webhook is CONFIGURATION/NAME.
	Webhook string `json:"webhook,omitempty"`
}

// Rule names the cause behind a rule: denied/PodSecurity, denied/policy/NAME,
// denied/webhook/CONFIGURATION/NAME.
func (c *Cause) Rule(base string) string {
	switch {
	case c.Policy != "":
		return base + "/policy/" + c.Policy
	case c.Webhook != "":
		return base + "/webhook/" + c.Webhook
	case c.Plugin != "":
		return base + "/" + c.Plugin
	}
	return base
}

// Suppressed is a finding that somebody accepted.
type Suppressed struct {
	Finding
	// Reason is why, and By where it was accepted: FILE:LINE, the configuration, or a flag.
	Reason string `json:"reason"`
	By     string `json:"by"`
}

// Acceptance accepts findings.
type Acceptance struct {
	Rule   string `json:"rule" doc:"rule of the findings, or what it begins with before a slash"`
	Object string `json:"object,omitempty" doc:"KIND/NAME or KIND/NAMESPACE/NAME of the object; all if it is empty"`
	File   string `json:"file,omitempty" doc:"pattern of the file; all if it is empty"`
	Reason string `json:"reason" doc:"why they do not count"`
}

// Accepts reports whether a finding of a rule, in a file and about an object as KIND/NAME or KIND/NAMESPACE/NAME, is
// accepted.
func (a *Acceptance) Accepts(rule, file, object string) bool {
	if a.File != "" {
		if ok, err := path.Match(a.File, filepath.ToSlash(file)); err != nil || !ok {
			return false
		}
	}
	return IsOf(rule, a.Rule) && (a.Object == "" || a.Object == object)
}

// IsOf reports whether a rule is another one, or that with a cause: denied/PodSecurity is of denied.
func IsOf(rule, base string) bool { return rule == base || strings.HasPrefix(rule, base+"/") }

// Text is the message with the field.
func (f *Finding) Text() string {
	if f.Field == "" || strings.Contains(f.Message, f.Field) {
		return f.Message
	}
	return f.Field + ": " + f.Message
}

// About is the message with the field, the object, and in a line of its own the remedy.
func (f *Finding) About() string {
	text := f.Text()
	if f.Object != "" {
		text = f.Object + ": " + text
	}
	if f.Remedy != "" {
		text += "\n" + f.Remedy
	}
	return text
}

// Place is where the finding is; empty when that is in no file.
func (f *Finding) Place() string { return Place(f.File, f.Line, f.Column) }

// Place writes a place as compilers do. A line or column of 0 is not known.
func Place(file string, line, column int) string {
	switch {
	case line == 0:
		return file
	case column == 0:
		return fmt.Sprintf("%s:%d", file, line)
	}
	return fmt.Sprintf("%s:%d:%d", file, line, column)
}

// Count writes a number of things: 1 policy, 2 policies, 2 keys.
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if stem, ok := strings.CutSuffix(one, "y"); ok && !strings.HasSuffix(stem, "e") {
		one = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Some joins names, of many the first ones, and counts the others.
func Some(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Case is one thing that was judged: an object, or a test.
type Case struct {
	Name, Class, File string
	Line              int
	Seconds           float64
	// Rule and Failure are why it failed, and Details is a longer text about that; all are empty
	// when it did not. Skipped is why it was not judged.
	Rule, Failure, Details string
	Skipped                string
	// Output is what else there is to say, such as warnings.
	Output string
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

// Report is what a command found.
type Report struct {
	// Tool is the name of the command, such as gatehouse lint, and Version the semantic version
	// of the program without a leading v, empty if it has none.
	Tool, Version string
	// Title says in one line what was looked at.
	Title string
	// Rules are those that were checked. A finding may have another rule, of which only the ID is
	// known then.
	Rules      []Rule
	Findings   []Finding
	Suppressed []Suppressed
	// Cases are what was judged. Where there are none, each finding is one.
	Cases []Case
	// Sums, Changes and Parts are for people.
	Sums    []Sum
	Changes []Difference
	Parts   []Part
	// Kubernetes is the release that was judged by, and VersionNote says that it is another one than
	// that of the cluster.
	Kubernetes, VersionNote string
	// Notes are sentences about what could not be looked at.
	Notes []string
	// Blind says what keeps the report from finding anything, if anything does.
	Blind string
	// Elsewhere is the file of findings that are in no file, where a format wants one.
	Elsewhere string
	// Data is the report for programs, as JSON. Its form is promised.
	Data any
	// Resources is what PolicyReports are about; a report without it has none.
	Resources []Resource
}

// notes are the notes, with what is to know of the release in front.
func (r *Report) notes() []string {
	if r.VersionNote == "" {
		return r.Notes
	}
	return append([]string{r.VersionNote}, r.Notes...)
}

// cases are what was judged.
func (r *Report) cases() []Case {
	if r.Cases != nil {
		return r.Cases
	}
	list := make([]Case, len(r.Findings))
	for i := range r.Findings {
		f := &r.Findings[i]
		c := Case{Name: f.Rule + ": " + cmp.Or(f.Object, f.Place(), "cluster"), Class: f.Rule, File: cmp.Or(f.File, r.Elsewhere), Line: f.Line}
		if f.Level == Error {
			c.Rule, c.Failure, c.Details = f.Rule, f.Text(), strings.TrimPrefix(f.Place()+": ", ": ")+f.About()
		} else {
			c.Output = string(f.Level) + ": " + f.Text()
		}
		list[i] = c
	}
	return list
}

// writers are the formats for programs.
var writers = map[string]func(*Report, io.Writer) error{
	"json":         (*Report).json,
	"sarif":        (*Report).sarif,
	"junit":        (*Report).junit,
	"github":       (*Report).gitHub,
	"gitlab":       (*Report).gitLab,
	"policyreport": (*Report).policyReports,
}

// Formats are the formats of every report, in the order in which they are documented: those for
// people, then those for programs. What is about the objects of a cluster has policyreport, too.
var Formats = []string{"text", "json", "html", "markdown", "sarif", "junit", "github", "gitlab"}

// ForPeople reports whether package view draws a format.
func ForPeople(format string) bool {
	return slices.Contains([]string{"text", "html", "markdown"}, format)
}

// Write writes the report for programs. The error is that of the writer, or names a format that is
// none of these.
func (r *Report) Write(w io.Writer, format string) error {
	write := writers[format]
	if write == nil {
		return fmt.Errorf("%q is not a format for programs", format)
	}
	return write(r, w)
}

func (r *Report) json(w io.Writer) error {
	data, err := json.MarshalIndent(r.Data, "", "    ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}
