package report

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

// ProjectURI is the address of the program's documentation.
const ProjectURI = "https://github.com/gatehouse-dev/gatehouse"

// MaxResults is the maximum number of results in a run: GitHub rejects files with more.
const MaxResults = 25000

// Schema is the address of the log's schema.
const Schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

// sarif writes the report for code scanning.
func (r *Document) sarif(w io.Writer) error {
	driver := component{Name: r.Tool, InformationURI: ProjectURI, SemanticVersion: r.Version, Rules: []reportingDescriptor{}}
	places := make(map[string]int, len(r.Rules))
	add := func(rule *Description) {
		places[rule.ID] = len(driver.Rules)
		driver.Rules = append(driver.Rules, descriptor(rule))
	}
	for i := range r.Rules {
		add(&r.Rules[i])
	}
	out := run{Tool: tool{driver}, Results: []result{}, Invocations: []invocation{{Successful: true}}}
	notes := r.notes()
	findings, suppressed := r.Findings, r.Suppressed
	if n := len(findings) + len(suppressed); n > MaxResults {
		findings = findings[:min(len(findings), MaxResults)]
		suppressed = suppressed[:MaxResults-len(findings)]
		notes = append(notes[:len(notes):len(notes)], fmt.Sprintf("%d findings are left out: a run has at most %d", n-MaxResults, MaxResults))
	}
	for _, note := range notes {
		out.Invocations[0].Notifications = append(out.Invocations[0].Notifications, notification{Level: Note, Message: message{note}})
	}
	prints := fingerprints{}
	one := func(f *Finding, accepted ...suppression) {
		if _, ok := places[f.Rule]; !ok {
			add(&Description{ID: f.Rule, Level: f.Level, Title: f.Rule + "."})
		}
		out.Results = append(out.Results, result{
			RuleID: f.Rule, RuleIndex: places[f.Rule], Level: f.Level, Message: message{f.About()}, Suppressions: accepted,
			Locations: locate(f), Fingerprints: map[string]string{"primaryLocationLineHash": prints.of(f, 8, ":")},
		})
	}
	for i := range findings {
		one(&findings[i])
	}
	for i := range suppressed {
		one(&suppressed[i].Finding, suppression{Kind: "external", Justification: suppressed[i].Reason})
	}
	out.Tool.Driver.Rules = driver.Rules
	data, err := json.MarshalIndent(log{Schema: Schema, Version: "2.1.0", Runs: []run{out}}, "", "  ")
	if err != nil {
		return fmt.Errorf("sarif: %w", err)
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// fingerprints distinguish the findings of a report. They omit the line, so that a finding keeps its
// fingerprint when lines are added above.
type fingerprints map[string]int

// of returns the fingerprint of a finding, the first size bytes of a hash. Equal findings are
// numbered.
func (p fingerprints) of(f *Finding, size int, separator string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{f.Rule, f.File, f.Object, f.Text()}, "\x00")))
	hash := hex.EncodeToString(sum[:size])
	p[hash]++
	return fmt.Sprintf("%s%s%d", hash, separator, p[hash])
}

func descriptor(r *Description) reportingDescriptor {
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

func locate(f *Finding) []location {
	if f.File == "" && f.Object == "" {
		return nil
	}
	l := location{}
	if f.File != "" {
		l.Physical = &physicalLocation{Artifact: artifact{uriOf(f.File)}}
		if f.Line > 0 {
			l.Physical.Region = &region{StartLine: f.Line, StartColumn: f.Column}
		}
	}
	if f.Object != "" {
		l.Logical = []logicalLocation{{FullName: f.Object, Kind: "object"}}
	}
	return []location{l}
}

// uriOf returns a path as a URI: relative paths stay relative.
func uriOf(file string) string {
	u := url.URL{Path: filepath.ToSlash(filepath.Clean(file))}
	if filepath.IsAbs(file) {
		u.Scheme = "file"
	}
	return u.String()
}

// The written parts of the format.
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
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
	logicalLocation struct {
		FullName string `json:"fullyQualifiedName"`
		Kind     string `json:"kind"`
	}
)
