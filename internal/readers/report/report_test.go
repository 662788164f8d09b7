package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

// found is a report with every field set.
var found = report.Document{
	Tool: "gatehouse check", Version: "1.2.3", Title: "Check of 2 objects",
	Rules: rules, Sums: []report.Sum{{Name: "rejected", N: 1}, {Name: "errors", N: 1}},
	Findings: []report.Finding{
		{Level: report.Error, Rule: "one", File: "a.yaml", Line: 3, Column: 5, Object: "Pod shop/web", Field: "spec.x", Message: "no, 100%", Cause: report.Cause{Plugin: "PodSecurity"}},
		{Level: report.Note, Rule: "two", Message: "odd\nindeed", Remedy: "again: run"},
	},
	Suppressed: []report.Suppressed{{Finding: report.Finding{Level: report.Error, Rule: "one", Object: "Pod shop/old", Message: "known"}, Reason: "it goes soon", By: "a.yaml:1"}},
	Kubernetes: "v1.37.2", VersionNote: "judged as 1.36", Notes: []string{"may not list services"}, Elsewhere: "cluster.yaml",
	Data: map[string]string{"kind": "CheckReport"},
	Resources: []report.Resource{
		{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "7", Policy: "images", Rule: "0", Result: "fail", Message: "no"},
		{APIVersion: "v1", Kind: "Namespace", Name: "shop", Policy: "team", Result: "warn"},
	},
}

func in(t *testing.T, r report.Document, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b, format); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFormatsForPrograms(t *testing.T) {
	if diff := cmp.Diff(`::error file=a.yaml,line=3,col=5,title=one::Pod shop/web: spec.x: no, 100%25
::notice title=two::odd%0Aindeed%0Aagain: run
Check of 2 objects: 1 rejected, 1 errors
`, in(t, found, "github")); diff != "" {
		t.Errorf("github (-want +got):\n%s", diff)
	}
	var quality []struct {
		Description, Severity, Fingerprint string
		Location                           struct {
			Path  string
			Lines struct{ Begin int }
		}
	}
	if err := json.Unmarshal([]byte(in(t, found, "gitlab")), &quality); err != nil {
		t.Fatal(err)
	}
	if len(quality) != 2 || quality[0].Severity != "critical" || quality[0].Location.Lines.Begin != 3 ||
		quality[1].Location.Path != "cluster.yaml" || quality[1].Location.Lines.Begin != 1 || quality[1].Fingerprint == "" {
		t.Errorf("gitlab: %+v", quality)
	}
	log := in(t, found, "sarif")
	for _, part := range []string{`"startColumn": 5`, `"semanticVersion": "1.2.3"`, `"text": "judged as 1.36"`, `"text": "may not list services"`, `"justification": "it goes soon"`} {
		if !strings.Contains(log, part) {
			t.Errorf("sarif has no %s:\n%s", part, log)
		}
	}
	if got := in(t, found, "json"); got != "{\n    \"kind\": \"CheckReport\"\n}\n" {
		t.Errorf("json: %s", got)
	}
	if err := found.Write(io.Discard, "yaml"); err == nil {
		t.Error("yaml is no format, and there is no error")
	}
}

// suites are the parts of a JUnit report that the tests read.
type suites struct {
	Tests    int `xml:"tests,attr"`
	Failures int `xml:"failures,attr"`
	Suites   []struct {
		Name       string `xml:"name,attr"`
		Skipped    int    `xml:"skipped,attr"`
		Time       string `xml:"time,attr"`
		Properties []struct {
			Name  string `xml:"name,attr"`
			Value string `xml:"value,attr"`
		} `xml:"properties>property"`
		Cases []struct {
			Name    string `xml:"name,attr"`
			Failure string `xml:"failure"`
			Output  string `xml:"system-out"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

func TestJUnit(t *testing.T) {
	read := func(r report.Document) (s suites) {
		if err := xml.Unmarshal([]byte(in(t, r, "junit")), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := read(found)
	if s.Tests != 2 || s.Failures != 1 || len(s.Suites) != 2 || s.Suites[1].Name != "cluster.yaml" {
		t.Fatalf("a report without cases: %+v", s)
	}
	if got := s.Suites[0].Cases[0].Failure; got != "a.yaml:3:5: Pod shop/web: spec.x: no, 100%" {
		t.Errorf("the failure is %q", got)
	}
	if got := s.Suites[1].Cases[0]; got.Failure != "" || got.Output != "note: odd\nindeed" {
		t.Errorf("a note is %+v", got)
	}
	if got := fmt.Sprint(s.Suites[0].Properties); got != "[{kubernetesVersion v1.37.2} {versionNote judged as 1.36}]" {
		t.Errorf("the properties are %s", got)
	}
	with := found
	with.Cases = []report.Case{
		{Name: "a", File: "t.yaml", Seconds: 0.25}, {Name: "b", File: "t.yaml", Seconds: 0.5, Skipped: "needs a program"},
		{Name: "c", File: "t.yaml", Rule: "fail", Failure: "no", Details: "no, because"},
	}
	s = read(with)
	if s.Tests != 3 || s.Failures != 1 || len(s.Suites) != 1 || s.Suites[0].Skipped != 1 || s.Suites[0].Time != "0.7500" {
		t.Errorf("a report with cases: %+v", s)
	}
}

func TestPolicyReports(t *testing.T) {
	many := found
	for i := range 1001 {
		many.Resources = append(many.Resources, report.Resource{APIVersion: "v1", Kind: "Pod", Namespace: "big", Name: fmt.Sprint(i), Policy: "images", Result: "fail"})
	}
	var got []string
	for part := range strings.SplitSeq(strings.TrimPrefix(in(t, many, "policyreport"), "---\n"), "---\n") {
		var r struct {
			APIVersion, Kind string
			Metadata         struct{ Name, Namespace string }
			Summary          map[string]int
			Results          []struct{ Message string }
		}
		if err := yaml.Unmarshal([]byte(part), &r); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s/%s %d fail %d warn: %s", r.Kind, r.Metadata.Namespace, r.Metadata.Name, r.Summary["fail"], r.Summary["warn"], r.Results[0].Message))
	}
	want := []string{
		"ClusterPolicyReport /gatehouse-audit 0 fail 1 warn: no message",
		"PolicyReport big/gatehouse-audit 1000 fail 0 warn: no message",
		"PolicyReport big/gatehouse-audit-2 1 fail 0 warn: no message",
		"PolicyReport shop/gatehouse-audit 1 fail 0 warn: no",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

// Every format returns the error of the writer.
func TestAWriterThatFails(t *testing.T) {
	for _, format := range []string{"json", "sarif", "junit", "github", "gitlab", "policyreport"} {
		if err := found.Write(broken{}, format); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestCount(t *testing.T) {
	for _, c := range []struct {
		n    int
		one  string
		want string
	}{{1, "policy", "1 policy"}, {2, "policy", "2 policies"}, {0, "key", "0 keys"}, {2, "object", "2 objects"}} {
		if got := report.Count(c.n, c.one); got != c.want {
			t.Errorf("%d %s: %s", c.n, c.one, got)
		}
	}
}

// Equal findings of a directory become one, which names the other places.
func TestEqualFindingsAreGrouped(t *testing.T) {
	at := func(file string, line int, rule, object, message string) report.Finding {
		return report.Finding{Level: report.Warning, Rule: rule, File: file, Line: line, Column: 1, Object: object, Message: message}
	}
	var many []report.Finding
	for i := range 9 {
		many = append(many, at("a/x.yaml", i+1, "twice", fmt.Sprintf("ConfigMap shop/c%d", i), fmt.Sprintf("the same object is at b/y.yaml:%d, too", i)))
	}
	for name, tc := range map[string]struct {
		findings []report.Finding
		want     []string
	}{
		"messages with the place of another": {many, []string{"a/x.yaml:1:1: the same object is at b/y.yaml:0, too; also at x.yaml:2, x.yaml:3, x.yaml:4, x.yaml:5, x.yaml:6 and 3 more"}},
		"messages with the names of objects": {[]report.Finding{
			at("x.yaml", 1, "denied", "Pod shop/one", `pods "one" is forbidden: no owner`), at("y.yaml", 4, "denied", "Pod park/two", `pods "two" is forbidden: no owner`),
			at("y.yaml", 9, "denied", "Deployment park/web", `the Pod of web-6b-x9 would be rejected: pods "web-6b-x9" is forbidden`), at("z.yaml", 1, "denied", "Deployment park/api", `the Pod of api-7-a would be rejected: pods "api-7-a" is forbidden`),
		}, []string{`x.yaml:1:1: pods "one" is forbidden: no owner; also at y.yaml:4`, `y.yaml:9:1: the Pod of web-6b-x9 would be rejected: pods "web-6b-x9" is forbidden; also at z.yaml:1`}},
		"other directories, rules and kinds": {[]report.Finding{
			at("a/x.yaml", 1, "kind", "Foo a", `no matches for kind "Foo"`), at("a/x.yaml", 2, "kind", "Bar a", `no matches for kind "Bar"`),
			at("b/x.yaml", 1, "kind", "Foo a", `no matches for kind "Foo"`), at("a/x.yaml", 3, "other", "Foo a", `no matches for kind "Foo"`),
		}, []string{`a/x.yaml:1:1: no matches for kind "Foo"`, `a/x.yaml:2:1: no matches for kind "Bar"`, `b/x.yaml:1:1: no matches for kind "Foo"`, `a/x.yaml:3:1: no matches for kind "Foo"`}},
		"without a place": {[]report.Finding{{Rule: "unseen", Message: "a"}, {Rule: "unseen", Message: "b"}}, []string{": a", ": b"}},
	} {
		var got []string
		for _, f := range report.Grouped(tc.findings) {
			got = append(got, f.Place()+": "+f.Message)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}
