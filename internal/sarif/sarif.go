package sarif

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
)

// Level says how bad a finding is.
type Level string

// The levels of SARIF.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Note    Level = "note"
)

// MaxResults is how many results a run may have: GitHub refuses files with more.
const MaxResults = 25000

// Schema is the address of the schema that logs follow.
const Schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

// Run is one run of a tool.
type Run struct {
	// Tool is the name of the program, Version its semantic version without a leading v,
	// empty if it has none, and URI where people read about it.
	Tool, Version, URI string
	// Rules are all rules that were checked. Every Finding names one of them.
	Rules    []Rule
	Findings []Finding
	// Notes are sentences about what could not be looked at.
	Notes []string
}

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

// Finding is one place where a rule is broken.
type Finding struct {
	// Rule is the ID of a rule of the run.
	Rule    string
	Level   Level
	Message string
	// File is the path of a file as the user would write it, empty when the object is in no
	// file. Line counts from 1; 0 means that it is not known.
	File string
	Line int
	// Accepted is why somebody accepted the finding; empty when nobody did.
	Accepted string
	// Object names what the finding is about, such as
	// ValidatingWebhookConfiguration/hooks; it may be empty.
	Object string
}

// Write writes a run. The error is that of the writer, or names a finding whose rule the run
// does not have.
func Write(w io.Writer, r *Run) error {
	driver := component{Name: r.Tool, InformationURI: r.URI, SemanticVersion: r.Version, Rules: []reportingDescriptor{}}
	places := make(map[string]int, len(r.Rules))
	for i := range r.Rules {
		places[r.Rules[i].ID] = i
		driver.Rules = append(driver.Rules, descriptor(&r.Rules[i]))
	}
	out := run{Tool: tool{driver}, Results: []result{}, Invocations: []invocation{{Successful: true}}}
	notes := r.Notes
	findings := r.Findings
	if n := len(findings); n > MaxResults {
		findings = findings[:MaxResults]
		notes = append(notes[:len(notes):len(notes)], fmt.Sprintf("%d findings are left out: a run has at most %d", n-MaxResults, MaxResults))
	}
	for _, note := range notes {
		out.Invocations[0].Notifications = append(out.Invocations[0].Notifications, notification{Level: Note, Message: message{note}})
	}
	seen := map[string]int{}
	for i := range findings {
		f := &findings[i]
		place, ok := places[f.Rule]
		if !ok {
			return fmt.Errorf("sarif: the run has no rule %q", f.Rule)
		}
		one := result{RuleID: f.Rule, RuleIndex: place, Level: f.Level, Message: message{f.Message}}
		if f.Accepted != "" {
			one.Suppressions = []suppression{{Kind: "external", Justification: f.Accepted}}
		}
		if l := locate(f); l != nil {
			one.Locations = []location{*l}
		}
		// The line is not part of it: a finding stays the same when lines are added above.
		sum := sha256.Sum256([]byte(strings.Join([]string{f.Rule, f.File, f.Object, f.Message}, "\x00")))
		hash := hex.EncodeToString(sum[:8])
		seen[hash]++
		one.Fingerprints = map[string]string{"primaryLocationLineHash": fmt.Sprintf("%s:%d", hash, seen[hash])}
		out.Results = append(out.Results, one)
	}
	data, err := json.MarshalIndent(log{Schema: Schema, Version: "2.1.0", Runs: []run{out}}, "", "  ")
	if err != nil {
		return fmt.Errorf("sarif: %w", err)
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

func descriptor(r *Rule) reportingDescriptor {
	d := reportingDescriptor{ID: r.ID, Short: message{r.Title}, URI: r.URI, Configuration: configuration{r.Level}}
	if r.Why != "" {
		d.Full = &message{r.Why}
	}
	if help := strings.TrimSpace(r.Why + "\n\n" + r.Fix); help != "" {
		d.Help = &message{help}
	}
	if len(r.Tags) > 0 {
		d.Properties = &properties{r.Tags}
	}
	return d
}

func locate(f *Finding) *location {
	if f.File == "" && f.Object == "" {
		return nil
	}
	l := &location{}
	if f.File != "" {
		l.Physical = &physicalLocation{Artifact: artifact{uriOf(f.File)}}
		if f.Line > 0 {
			l.Physical.Region = &region{StartLine: f.Line}
		}
	}
	if f.Object != "" {
		l.Logical = []logicalLocation{{FullName: f.Object, Kind: "object"}}
	}
	return l
}

// uriOf is a path as a URI: relative paths stay relative.
func uriOf(file string) string {
	u := url.URL{Path: filepath.ToSlash(filepath.Clean(file))}
	if filepath.IsAbs(file) {
		u.Scheme = "file"
	}
	return u.String()
}

// The parts of the format that are written.
type (
	log struct {
		Schema  string `json:"$schema"`
		Version string `json:"version"`
		Runs    []run  `json:"runs"`
	}
	run struct {
		Tool        tool         `json:"tool"`
		Invocations []invocation `json:"invocations"`
		Results     []result     `json:"results"`
	}
	tool struct {
		Driver component `json:"driver"`
	}
	component struct {
		Name            string                `json:"name"`
		InformationURI  string                `json:"informationUri,omitempty"`
		SemanticVersion string                `json:"semanticVersion,omitempty"`
		Rules           []reportingDescriptor `json:"rules"`
	}
	reportingDescriptor struct {
		ID            string        `json:"id"`
		Short         message       `json:"shortDescription"`
		Full          *message      `json:"fullDescription,omitempty"`
		Help          *message      `json:"help,omitempty"`
		URI           string        `json:"helpUri,omitempty"`
		Configuration configuration `json:"defaultConfiguration"`
		Properties    *properties   `json:"properties,omitempty"`
	}
	configuration struct {
		Level Level `json:"level"`
	}
	properties struct {
		Tags []string `json:"tags"`
	}
	message struct {
		Text string `json:"text"`
	}
	invocation struct {
		Successful    bool           `json:"executionSuccessful"`
		Notifications []notification `json:"toolExecutionNotifications,omitempty"`
	}
	notification struct {
		Level   Level   `json:"level"`
		Message message `json:"message"`
	}
	result struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        Level             `json:"level"`
		Message      message           `json:"message"`
		Locations    []location        `json:"locations,omitempty"`
		Fingerprints map[string]string `json:"partialFingerprints"`
		Suppressions []suppression     `json:"suppressions,omitempty"`
	}
	suppression struct {
		Kind          string `json:"kind"`
		Justification string `json:"justification"`
	}
	location struct {
		Physical *physicalLocation `json:"physicalLocation,omitempty"`
		Logical  []logicalLocation `json:"logicalLocations,omitempty"`
	}
	physicalLocation struct {
		Artifact artifact `json:"artifactLocation"`
		Region   *region  `json:"region,omitempty"`
	}
	artifact struct {
		URI string `json:"uri"`
	}
	region struct {
		StartLine int `json:"startLine"`
	}
	logicalLocation struct {
		FullName string `json:"fullyQualifiedName"`
		Kind     string `json:"kind"`
	}
)
