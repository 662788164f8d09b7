package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Level is the severity of a finding.
type Level string

// The levels, the most severe first.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Note    Level = "note"
)

// Levels has all levels, the most severe first.
var Levels = []Level{Error, Warning, Note}

// Description is the rule of a kind of findings.
type Description struct {
	// ID names the rule, such as self-deadlock. Level is the usual level of its findings.
	ID    string
	Level Level
	// Title is one short sentence, Why a longer text, and Fix the remedy. All are plain text.
	Title, Why, Fix string
	// URI is the address of the rule's documentation; it may be empty.
	URI string
	// Tags are at most ten words for the filters of code hosts.
	Tags []string
}

// Finding is a problem with its place.
type Finding struct {
	Level Level `json:"level"`
	// Rule is the ID of a rule.
	Rule string `json:"rule"`
	// File is the path in the user's notation, empty if the object is in no file. Line and Column count from 1; 0
	// means unknown.
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Object names the object; empty for a file. Field is the path of the field.
	Object  string `json:"object,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	// Cause is the part of admission that rejected the object, or warned of it.
	Cause Cause `json:"cause,omitzero"`
	// Remedy is an instruction, such as a command to run; it may be empty.
	Remedy string `json:"-"`
	// Href is the link of the object on a page.
	Href string `json:"-"`
}

// Title names an object in a message: Deployment shop/web.
func Title(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

// Cause is the part of admission behind a finding.
type Cause struct {
	// Plugin is the admission plugin, such as PodSecurity.
	Plugin string `json:"plugin,omitempty"`
	// Policy and Binding are the names of the admission policy and its binding; Validation is the field of the
	// violated validation in the policy.
	Policy     string `json:"policy,omitempty"`
	Binding    string `json:"binding,omitempty"`
	Validation string `json:"validation,omitempty"`
	// Webhook is CONFIGURATION/NAME.
	Webhook string `json:"webhook,omitempty"`
}

// Description returns base with the cause: denied/PodSecurity, denied/policy/NAME, denied/webhook/CONFIGURATION/NAME.
func (c *Cause) Description(base string) string {
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

// Suppressed is an accepted finding.
type Suppressed struct {
	Finding
	// Reason is the given reason, and By the place of the acceptance: FILE:LINE, the configuration, or a flag.
	Reason string `json:"reason"`
	By     string `json:"by"`
}

// Acceptance accepts findings.
type Acceptance struct {
	Rule   string `json:"rule" doc:"rule of the findings, or its part before a slash"`
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

// IsOf reports whether a rule is base, or base with a cause: denied/PodSecurity is of denied.
func IsOf(rule, base string) bool { return rule == base || strings.HasPrefix(rule, base+"/") }

// Text returns the message with the field.
func (f *Finding) Text() string {
	if f.Field == "" || strings.Contains(f.Message, f.Field) {
		return f.Message
	}
	return f.Field + ": " + f.Message
}

// About returns the message with the field, the object, and the remedy on a line of its own.
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

// Place returns the place of the finding; empty if it is in no file.
func (f *Finding) Place() string { return Place(f.File, f.Line, f.Column) }

// Place formats a place as compilers do. A line or column of 0 is unknown.
func Place(file string, line, column int) string {
	switch {
	case line == 0:
		return file
	case column == 0:
		return fmt.Sprintf("%s:%d", file, line)
	}
	return fmt.Sprintf("%s:%d:%d", file, line, column)
}

// Count formats a count with its noun: 1 policy, 2 policies, 2 keys.
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if stem, ok := strings.CutSuffix(one, "y"); ok && !strings.HasSuffix(stem, "e") {
		one = stem + "ie"
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Some joins up to most names, and counts the others.
func Some(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// mostPlaces bounds the places that a merged finding names.
const mostPlaces = 5

// Grouped merges the findings of a directory that differ only in their places and in the names of their objects. The
// first finding of each group stays, and its message names the places of the others.
func Grouped(list []Finding) []Finding {
	type key struct {
		level                           Level
		rule, directory, field, message string
	}
	var grouped []Finding
	first, more := map[key]int{}, map[int][]string{}
	for _, f := range list {
		k := key{f.Level, f.Rule, path.Dir(filepath.ToSlash(f.File)), f.Field, f.anonymous()}
		i, known := first[k]
		if !known {
			first[k] = len(grouped)
			grouped = append(grouped, f)
			continue
		}
		more[i] = append(more[i], Place(path.Base(filepath.ToSlash(f.File)), f.Line, 0))
	}
	for i, places := range more {
		if others := slices.Compact(places); others[0] != "" && others[0] != "." {
			grouped[i].Message += "; also at " + Some(others, mostPlaces)
		}
	}
	return grouped
}

var placeForm = regexp.MustCompile(`[^\s"']+:\d+\b`)

// anonymous returns the message without places, and without the names of the object and of objects made from it.
func (f *Finding) anonymous() string {
	_, name, _ := strings.Cut(f.Object, " ")
	namespace, short, namespaced := strings.Cut(name, "/")
	if !namespaced {
		namespace, short = "", name
	}
	words := strings.FieldsFunc(placeForm.ReplaceAllString(f.Message, ""), func(c rune) bool { return strings.ContainsRune(" \"'`,:;()", c) })
	for i, word := range words {
		if name != "" && (word == name || word == short || word == namespace || strings.HasPrefix(word, short+"-")) {
			words[i] = ""
		}
	}
	return strings.Join(words, " ")
}

// Case is the result for one object or test.
type Case struct {
	Name, Class, File string
	Line              int
	Seconds           float64
	// Rule and Failure are the reason of a failure, and Details is a longer text about it; all are empty for a
	// passed case. Skipped is the reason why it was not evaluated.
	Rule, Failure, Details string
	Skipped                string
	// Output has further information, such as warnings.
	Output string
}

// Sum is a count with a name.
type Sum struct {
	Name string
	N    int
}

// Part is a list of sentences under a heading.
type Part struct {
	Heading string
	Items   []string
}

// Difference is the change of an object, as a unified diff.
type Difference struct {
	Heading, Diff string
	Notes         []string
}

// Document is the result of a command.
type Document struct {
	// Tool is the name of the command, such as gatehouse lint, and Version the semantic version of the program
	// without a leading v, empty if it has none.
	Tool, Version string
	// Title describes the subject of the report in one line.
	Title string
	// Rules are the checked rules. A finding may have another rule, of which only the ID is known.
	Rules      []Description
	Findings   []Finding
	Suppressed []Suppressed
	// Cases are the evaluated objects or tests. If it is nil, each finding counts as a case.
	Cases []Case
	// Sums, Changes and Parts are for people.
	Sums    []Sum
	Changes []Difference
	Parts   []Part
	// Kubernetes is the emulated release, and VersionNote warns if it differs from the cluster's release.
	Kubernetes, VersionNote string
	// Notes are sentences about parts that could not be checked.
	Notes []string
	// Blind is the reason why the report cannot have findings; empty if it can.
	Blind string
	// Elsewhere is the file for findings without a file, in formats that require one.
	Elsewhere string
	// Data is the report for programs, as JSON. Its form is promised.
	Data any
	// Resources are the results for PolicyReports; a report without Resources has none.
	Resources []Resource
}

// notes returns the notes, after the note about the release.
func (r *Document) notes() []string {
	if r.VersionNote == "" {
		return r.Notes
	}
	return append([]string{r.VersionNote}, r.Notes...)
}

// cases returns the cases, or the findings as cases.
func (r *Document) cases() []Case {
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
var writers = map[string]func(*Document, io.Writer) error{
	"json":         (*Document).json,
	"sarif":        (*Document).sarif,
	"junit":        (*Document).junit,
	"github":       (*Document).gitHub,
	"gitlab":       (*Document).gitLab,
	"policyreport": (*Document).policyReports,
}

// Formats are the formats of every report, in the order of the documentation: first for people, then for programs.
// Reports about objects of a cluster also have the format policyreport.
var Formats = []string{"text", "json", "html", "markdown", "sarif", "junit", "github", "gitlab"}

// ForPeople reports whether package view draws a format.
func ForPeople(format string) bool {
	return slices.Contains([]string{"text", "html", "markdown"}, format)
}

// Write writes the report for programs. It returns the error of w, or an error that names an unknown format.
func (r *Document) Write(w io.Writer, format string) error {
	write := writers[format]
	if write == nil {
		return fmt.Errorf("%q is not a format for programs", format)
	}
	return write(r, w)
}

func (r *Document) json(w io.Writer) error {
	data, err := json.MarshalIndent(r.Data, "", "    ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}
