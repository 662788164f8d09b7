package report

import (
	"encoding/xml"
	"fmt"
	"io"
)

// The parts of a JUnit report that CI systems read.
type (
	junitSuites struct {
		XMLName  xml.Name      `xml:"testsuites"`
		Name     string        `xml:"name,attr"`
		Tests    int           `xml:"tests,attr"`
		Failures int           `xml:"failures,attr"`
		Time     string        `xml:"time,attr,omitempty"`
		Suites   []*junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Skipped  int    `xml:"skipped,attr"`
		Time     string `xml:"time,attr,omitempty"`
		// Properties are the emulated Kubernetes release, and notes about it.
		Properties *junitProperties `xml:"properties"`
		Cases      []junitCase      `xml:"testcase"`

		seconds float64
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr,omitempty"`
		Time    string        `xml:"time,attr,omitempty"`
		Failure *junitFailure `xml:"failure"`
		Skipped *junitSkipped `xml:"skipped"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
	junitProperties struct {
		List []junitProperty `xml:"property"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitSkipped struct {
		Message string `xml:"message,attr"`
	}
)

// junit writes a test case for each Case, in a suite for each file.
func (r *Document) junit(w io.Writer) error {
	all := junitSuites{Name: r.Tool}
	var properties *junitProperties
	if r.Kubernetes != "" {
		properties = &junitProperties{List: []junitProperty{{"kubernetesVersion", r.Kubernetes}}}
		if r.VersionNote != "" {
			properties.List = append(properties.List, junitProperty{"versionNote", r.VersionNote})
		}
	}
	suites, total := map[string]*junitSuite{}, 0.
	for _, c := range r.cases() {
		s := suites[c.File]
		if s == nil {
			s = &junitSuite{Name: c.File, Properties: properties}
			suites[c.File] = s
			all.Suites = append(all.Suites, s)
		}
		out := junitCase{Name: c.Name, Class: c.Class, File: c.File, Line: c.Line, Time: seconds(c.Seconds), Output: c.Output}
		s.Tests++
		all.Tests++
		switch {
		case c.Failure != "":
			out.Failure = &junitFailure{Type: c.Rule, Message: c.Failure, Text: c.Details}
			s.Failures++
			all.Failures++
		case c.Skipped != "":
			out.Skipped = &junitSkipped{Message: c.Skipped}
			s.Skipped++
		}
		s.seconds, total = s.seconds+c.Seconds, total+c.Seconds
		s.Time = seconds(s.seconds)
		s.Cases = append(s.Cases, out)
	}
	all.Time = seconds(total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// seconds formats a duration for JUnit; empty if unknown.
func seconds(s float64) string {
	if s == 0 {
		return ""
	}
	return fmt.Sprintf("%.4f", s)
}
