package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

var rules = []report.Description{
	{ID: "one", Level: report.Error, Title: "The first.", Why: "Because.", Fix: "Do.", URI: "https://example.com/one", Tags: []string{"webhooks"}},
	{ID: "two", Level: report.Note, Title: "The second."},
}

func write(t *testing.T, r *report.Document) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b, "sarif"); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// schema returns the official schema of SARIF.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile("testdata/sarif-schema-2.1.0.json")
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("report.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("report.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLogsFollowTheOfficialSchema(t *testing.T) {
	official := schema(t)
	valid := func(data []byte) error {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return official.Validate(document)
	}
	for name, r := range map[string]*report.Document{
		"nothing found":         {Tool: "gatehouse lint", Rules: rules},
		"nothing known":         {Tool: "gatehouse lint"},
		"a version, an address": {Tool: "gatehouse lint", Version: "1.2.3", Rules: rules},
		"in a file": {Tool: "gatehouse lint", Rules: rules, Findings: []report.Finding{
			{Rule: "one", Level: report.Error, Message: "broken", File: "deploy/hooks.yaml", Line: 7, Object: "ValidatingWebhookConfiguration/a"},
			{Rule: "two", Level: report.Warning, Message: "odd", File: "a dir/ü%.yaml"},
			{Rule: "two", Level: report.Note, Message: "odd", File: "/abs/x.yaml", Line: 1},
		}},
		"in a cluster": {Tool: "gatehouse lint", Rules: rules, Notes: []string{"may not list services"}, Findings: []report.Finding{
			{Rule: "one", Level: report.Error, Message: "broken", Object: "ValidatingWebhookConfiguration/a"},
			{Rule: "one", Level: report.Error, Message: "broken"},
		}},
	} {
		if err := valid(write(t, r)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The test detects an error.
	wrong := bytes.Replace(write(t, &report.Document{Tool: "x", Rules: rules}), []byte(`"level": "error"`), []byte(`"level": "fatal"`), 1)
	if err := valid(wrong); !errors.As(err, new(*jsonschema.ValidationError)) {
		t.Errorf("a log with a wrong level is valid: %v", err)
	}
}

func TestFindingsKeepTheirIdentityWhenTheyMove(t *testing.T) {
	f := report.Finding{Rule: "one", Level: report.Error, Message: "broken", File: "a.yaml", Line: 7}
	below := f
	below.Line = 9
	prints := func(findings ...report.Finding) (list []string) {
		var log struct {
			Runs []struct {
				Results []struct {
					PartialFingerprints map[string]string
				}
			}
		}
		if err := json.Unmarshal(write(t, &report.Document{Rules: rules, Findings: findings}), &log); err != nil {
			t.Fatal(err)
		}
		for _, r := range log.Runs[0].Results {
			list = append(list, r.PartialFingerprints["primaryLocationLineHash"])
		}
		return list
	}
	one, moved := prints(f), prints(below)
	if one[0] == "" || one[0] != moved[0] {
		t.Errorf("fingerprints %q and, some lines below, %q", one, moved)
	}
	if two := prints(f, below); two[0] != one[0] || two[1] == two[0] {
		t.Errorf("fingerprints of two equal findings: %q", two)
	}
}

func TestARunStaysWithinTheLimitsOfGitHub(t *testing.T) {
	r := &report.Document{Rules: rules}
	for i := range report.MaxResults + 3 {
		r.Findings = append(r.Findings, report.Finding{Rule: "one", Level: report.Error, Message: fmt.Sprint(i)})
	}
	text := string(write(t, r))
	if n := strings.Count(text, `"ruleId"`); n != report.MaxResults {
		t.Errorf("%d results", n)
	}
	if !strings.Contains(text, "3 findings are left out") {
		t.Error("the log does not say that findings are left out")
	}
}

// A rule that only a finding names is in the log, too: results refer to rules by index.
func TestTheRuleOfAFindingIsInTheLog(t *testing.T) {
	text := string(write(t, &report.Document{Rules: rules, Findings: []report.Finding{{Rule: "three", Level: report.Note, Message: "odd"}}}))
	if !strings.Contains(text, `"id": "three"`) || !strings.Contains(text, `"ruleIndex": 2`) {
		t.Errorf("the log is %s", text)
	}
}
