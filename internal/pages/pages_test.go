package pages

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/trace"
	"github.com/gatehouse-dev/gatehouse/internal/report"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(micros int) trace.Time {
	return metav1.NewMicroTime(begin.Add(time.Duration(micros) * time.Microsecond))
}

// hostile is what somebody may write where a name or a message stands.
const hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> | `code` @team #1 **bold** [x](javascript:alert(3)) \u202e\x1b[31m"

// record is a trace with everything in it, written by text.
func record(text string) *trace.Record {
	webhook := func(name string) trace.EntryRecord {
		return trace.EntryRecord{Kind: "MutatingWebhookConfiguration", Configuration: text, Name: name}
	}
	index := 0
	return &trace.Record{
		ID: "5d1f0c6b2a9e4d37", AuditID: "audit", Start: at(0), Outcome: trace.OutcomeDenied, Revision: "7", TotalMicros: 20_000, OwnMicros: 900,
		Request: trace.RequestRecord{
			Operation: "CREATE", Resource: trace.ResourceRecord{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: text, User: text,
		},
		Steps: []trace.StepRecord{
			{Plugin: "NamespaceLifecycle", Pass: "mutating", Start: at(10), Micros: 5, Allowed: true},
			{Plugin: "ServiceAccount", Pass: "mutating", Start: at(20), Micros: 30, Allowed: true},
			{Plugin: "LimitRanger", Pass: "mutating", Start: at(60), Micros: 40, Allowed: true, Patch: []trace.PatchOperation{
				{Op: "replace", Path: "/spec/x", Field: "spec.x", Was: json.RawMessage(`1`), Value: json.RawMessage(`2`)},
				{Op: "remove", Path: "/spec/y", Field: "spec.y", Was: json.RawMessage(`"` + "gone" + `"`)},
			}},
			{Plugin: "MutatingAdmissionWebhook", Pass: "mutating", Start: at(100), Micros: 9_000, Allowed: true, Calls: []trace.CallRecord{
				{Webhook: webhook("inject"), Start: at(110), Micros: 4_000, Sent: true, Fate: "Used", Verdict: "allowed", Turn: "InTurn", Mutated: true, Warnings: []string{text},
					Patch: []trace.PatchOperation{{Op: "add", Path: "/metadata/labels/a", Field: text, Value: json.RawMessage(`"b"`)}}},
				{Webhook: webhook("away"), Start: at(4_200), Micros: 4_000, Fate: "Used", Verdict: "failed", Turn: "Ahead", Error: text, Ignored: true, FailurePolicy: "Ignore"},
			}, Skips: []trace.SkipRecord{{Entry: webhook("other"), Code: "NoRule", Reason: text}}},
			{Plugin: "ValidatingAdmissionPolicy", Pass: "validating", Start: at(9_200), Micros: 300, Allowed: true, Judgements: []trace.JudgementRecord{{
				Policy: trace.EntryRecord{Kind: "ValidatingAdmissionPolicy", Configuration: text}, FailurePolicy: "Fail",
				Evaluations:  []trace.EvaluationRecord{{Bindings: []string{text}, Start: at(9_210), Micros: 200, Cost: 12, Validations: []trace.ValidationRecord{{Index: &index, Verdict: "violated", Expression: text, Message: text}}}},
				Consequences: []trace.ConsequenceRecord{{Binding: text, Code: "Violation", Message: text, Actions: []string{"Warn"}}},
			}}},
			{Plugin: "ValidatingAdmissionWebhook", Pass: "validating", Start: at(10_000), Micros: 9_000, Error: "Internal error occurred: " + text, Calls: []trace.CallRecord{
				{Webhook: webhook("deny"), Start: at(10_010), Micros: 8_900, Sent: true, Fate: "Used", Verdict: "denied", Turn: "InTurn", Error: text, Code: 403},
			}},
		},
	}
}

// views are one of each kind, with a text wherever somebody else writes.
func views(text string) map[string]View {
	rule := 0
	links := Links{Trace: func(id string) string { return "#/traces/" + id }, Entry: func(kind, configuration string) string { return "#/chain/" + kind + "/" + configuration }}
	p := &plan.Plan{
		Request: plan.About{Operation: "CREATE", APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: text, User: text}, Rejection: text, Notes: []string{text},
		Steps: []plan.Step{
			{Pass: "mutating", Plugin: "NamespaceLifecycle", Effect: plan.Run},
			{Pass: "mutating", Plugin: "MutatingAdmissionWebhook", Entry: &plan.Entry{Kind: "MutatingWebhookConfiguration", Configuration: text, Name: text}, Effect: plan.Call, Rule: &rule, TimeoutSeconds: 5, FailurePolicy: "Fail"},
			{Pass: "validating", Plugin: "ValidatingAdmissionPolicy", Entry: &plan.Entry{Kind: "ValidatingAdmissionPolicy", Configuration: text}, Effect: plan.Reject, Reason: &plan.Explanation{Code: "Violated", Message: text},
				Evaluations: []plan.PolicyEvaluation{{Bindings: []string{text}, Verdict: "violated", Validations: []plan.PolicyValidation{{Index: &rule, Verdict: "violated", Expression: text, Because: text, Message: text}}}}},
		},
	}
	return map[string]View{
		"trace":  OfTrace(record(text), links),
		"traces": OfTraces([]*trace.Record{record(text), record(text)}),
		"plan":   OfPlans([]Explained{{Plan: p, Tried: []Tried{{Name: "ValidatingAdmissionPolicy " + text, Problems: []string{text}, Costs: []Cost{{Field: text, WorstCase: text, Limit: 7}}}}}}, links),
		"plans":  OfPlans([]Explained{{Plan: p}, {Heading: text, Asked: text, Error: text}}, Links{}),
		"report": OfReport(&report.Report{Title: text, Sums: []report.Sum{{Name: "errors", N: 1}}, Findings: []report.Finding{{Level: report.Error, Rule: text, Object: text, File: text, Message: text, Remedy: text}},
			Changes: []report.Difference{{Heading: text, Diff: "@@\n-a\n+" + text, Notes: []string{text}}}, Parts: []report.Part{{Heading: "Not seen", Items: []string{text}}}}),
	}
}

// What somebody wrote stays text, in every form and in every place.
func TestWhatOthersWroteStaysText(t *testing.T) {
	for name, v := range views(hostile) {
		t.Run(name, func(t *testing.T) {
			var page, text strings.Builder
			if err := v.HTML(&page); err != nil {
				t.Fatal(err)
			}
			body := page.String()
			for z := html.NewTokenizer(strings.NewReader(body)); z.Next() != html.ErrorToken; {
				token := z.Token()
				if slices.Contains([]string{"script", "img", "iframe"}, token.Data) && token.Type == html.StartTagToken {
					t.Errorf("the page has %s", token)
				}
				for _, a := range token.Attr {
					if strings.HasPrefix(a.Key, "on") || a.Key == "href" && !strings.HasPrefix(a.Val, "#") || a.Key == "style" {
						t.Errorf("the page has %s", token)
					}
				}
			}
			if !strings.Contains(body, "&lt;script&gt;alert(1)&lt;/script&gt;") {
				t.Error("the page does not show the text")
			}
			if strings.ContainsAny(body, "\x1b\u202e") {
				t.Error("the page has characters that act")
			}
			if err := v.Markdown(&text); err != nil {
				t.Fatal(err)
			}
			// Outside of code spans there is neither markup nor a mention.
			outside := regexp.MustCompile("`[^`]*`").ReplaceAllString(text.String(), "")
			for _, bad := range []string{"<script", "<img", "@team", "**bold**", "\x1b", "\u202e", "](javascript"} {
				if strings.Contains(outside, bad) {
					t.Errorf("the Markdown has %q outside of code:\n%s", bad, outside)
				}
			}
			for _, bad := range []string{"\x1b", "\u202e"} {
				if strings.Contains(text.String(), bad) {
					t.Errorf("the Markdown has %q", bad)
				}
			}
		})
	}
}

// A page needs nothing from elsewhere, has no script, and is small.
func TestPagesStandAlone(t *testing.T) {
	for name, v := range views("web") {
		var page strings.Builder
		if err := v.HTML(&page); err != nil {
			t.Fatal(err)
		}
		body := page.String()
		for _, bad := range []string{"<script", "<link", "<img", "src=", "@import", "url("} {
			if strings.Contains(body, bad) {
				t.Errorf("%s: the page has %q", name, bad)
			}
		}
		if !strings.Contains(body, "default-src &#39;none&#39;") && !strings.Contains(body, "default-src 'none'") {
			t.Errorf("%s: the page forbids nothing", name)
		}
		if len(body) > 100<<10 {
			t.Errorf("%s: the page has %d bytes", name, len(body))
		}
	}
}

// A waterfall says what took the time, what changed, who rejected the request, and what was not
// called and why.
func TestAWaterfall(t *testing.T) {
	w := newWaterfall(record("web"), Links{Entry: func(_, configuration string) string { return "#/" + configuration }})
	if w.Rejected == nil || w.Rejected.By != "web/deny" || w.Rejected.Text != "web" || w.Rejected.Href != "#/web" {
		t.Errorf("rejected by %+v", w.Rejected)
	}
	var got []string
	for i := range w.Spans {
		s := &w.Spans[i]
		if s.Pass != "" {
			got = append(got, "== "+s.Pass)
			continue
		}
		line := fmt.Sprintf("%s [%.0f+%.0f %s] %s", s.Name, s.Bar.Left, s.Bar.Width, s.Took, s.State)
		if s.Child {
			line = "  " + line
		}
		got = append(got, strings.TrimRight(line, " "))
	}
	want := []string{
		"== mutating pass",
		"2 plugins let it go on [0+2 40µs]",
		"LimitRanger [3+2 40µs] changed",
		"MutatingAdmissionWebhook [5+450 9ms]",
		"  web/inject [6+200 4ms] changed",
		"  web/away [210+200 4ms] ignored",
		"== validating pass",
		"ValidatingAdmissionPolicy [460+15 300µs]",
		"  web [460+10 200µs] violated",
		"ValidatingAdmissionWebhook [500+450 9ms] rejected",
		"  web/deny [500+445 8.9ms] denied",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the rows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	limits := w.Spans[2].Inside.Changes
	if len(limits) != 2 || limits[0] != (edit{Field: "spec.x", Was: "1", Is: "2", Had: true, Has: true}) || limits[1] != (edit{Field: "spec.y", Was: `"gone"`, Had: true}) {
		t.Errorf("the changes are %+v", limits)
	}
	if notes := w.Spans[3].Inside.Notes; !slices.Contains(notes, "Not called: web/other, because web.") {
		t.Errorf("the notes are %q", notes)
	}
}

// What is large is drawn in part, and the page says so.
func TestDrawingsAreBounded(t *testing.T) {
	r := record("web")
	for len(r.Steps) < maxSpans+100 {
		r.Steps = append(r.Steps, r.Steps[2])
	}
	var patch []trace.PatchOperation
	for range maxChanges + 7 {
		patch = append(patch, trace.PatchOperation{Op: "add", Path: "/a", Value: json.RawMessage(`"` + strings.Repeat("x", 2*maxValue) + `"`)})
	}
	r.Steps[2].Patch = patch
	w := newWaterfall(r, Links{})
	if len(w.Spans) != maxSpans || w.More == 0 {
		t.Errorf("%d spans, and %d more", len(w.Spans), w.More)
	}
	in := w.Spans[2].Inside
	if len(in.Changes) != maxChanges || in.More != 7 || len(in.Changes[0].Is) > maxValue {
		t.Errorf("%d changes of %d bytes, and %d more", len(in.Changes), len(in.Changes[0].Is), in.More)
	}
	var many []*trace.Record
	for i := range maxRows + 3 {
		one := record("web")
		one.ID = fmt.Sprint(i)
		many = append(many, one)
	}
	var page strings.Builder
	if err := OfTraces(many).HTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 more requests are not listed", fmt.Sprintf("The steps of %d earlier requests", len(many)-maxWhole)} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestWriteSamples writes the views to a folder, to look at them: -args is not needed, the folder
// is that of GATEHOUSE_PAGES.
func TestWriteSamples(t *testing.T) {
	dir := os.Getenv("GATEHOUSE_PAGES")
	if dir == "" {
		t.Skip("GATEHOUSE_PAGES names no folder")
	}
	for name, v := range views("web") {
		f, err := os.Create(filepath.Join(dir, name+".html"))
		if err != nil {
			t.Fatal(err)
		}
		if err := v.HTML(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

// S28.2: who rejected is who was hard, and a soft webhook says what it would have done.
func TestASoftWebhookDidNotReject(t *testing.T) {
	call := func(name string, soft *trace.Enforcement) trace.CallRecord {
		return trace.CallRecord{Webhook: trace.EntryRecord{Kind: "ValidatingWebhookConfiguration", Configuration: name, Name: "hook"}, Verdict: "denied", Fate: "Used", Error: name + " says no", Enforcement: soft}
	}
	for _, tc := range []struct {
		name     string
		soft     *trace.Enforcement
		rejected string
		states   string
	}{
		{"on Gatehouse", &trace.Enforcement{Mode: "Audit"}, "b-hard/hook", "would reject, denied"},
		{"on a kube-apiserver", nil, "a-soft/hook", "denied, denied"},
	} {
		w := newWaterfall(&trace.Record{Steps: []trace.StepRecord{{
			Plugin: "ValidatingAdmissionWebhook", Pass: "validating", Error: "denied", Calls: []trace.CallRecord{call("a-soft", tc.soft), call("b-hard", nil)},
		}}}, Links{})
		var states []string
		for i := range w.Spans {
			if s := &w.Spans[i]; s.Child {
				states = append(states, s.State)
			}
		}
		if got := strings.Join(states, ", "); w.Rejected == nil || w.Rejected.By != tc.rejected || got != tc.states {
			t.Errorf("%s: rejected by %+v, with %s; want %s, with %s", tc.name, w.Rejected, got, tc.rejected, tc.states)
		}
	}
}

// What the record has, people see: what was soft and what it would have changed, the rule that
// excluded, and the part of an expression that is false, with its values.
func TestPeopleSeeWhatTheRecordHas(t *testing.T) {
	soft := &trace.Enforcement{Mode: "Warn", Rule: "careful"}
	patch := []trace.PatchOperation{{Op: "add", Path: "/metadata/labels/team", Value: []byte(`"x"`)}}
	r := &trace.Record{Outcome: trace.OutcomeAllowed, Steps: []trace.StepRecord{{
		Plugin: "MutatingAdmissionWebhook", Pass: "mutating", Allowed: true,
		Calls:      []trace.CallRecord{{Webhook: trace.EntryRecord{Configuration: "soft", Name: "hook"}, Verdict: "allowed", Sent: true, Enforcement: soft, WouldPatch: patch}},
		Exclusions: []trace.ExclusionRecord{{Rule: "nightly", Effect: "skip", Entries: []trace.EntryRecord{{Configuration: "spared", Name: "one"}}, More: 2}},
		Judgements: []trace.JudgementRecord{{
			Policy: trace.EntryRecord{Configuration: "replicas"},
			Evaluations: []trace.EvaluationRecord{{Bindings: []string{"all"}, Enforcement: soft,
				Validations: []trace.ValidationRecord{{Verdict: "violated", Expression: "a && b", Because: "object.spec.replicas < 4", Values: []trace.PartValueRecord{{Expression: "object.spec.replicas", Value: "7"}}}},
				Mutations:   []trace.MutationRecord{{Type: "JSONPatch", WouldPatch: patch}}}},
			Consequences: []trace.ConsequenceRecord{{Binding: "all", Message: "too many", Spared: true, Enforcement: soft}},
		}},
	}}}
	var page, text strings.Builder
	if err := OfTrace(r, Links{}).HTML(&page); err != nil {
		t.Fatal(err)
	}
	if err := OfTrace(r, Links{}).Markdown(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"enforcement Warn by rule careful of the server", "would change", "fields would have been changed", "nightly", "spared/one", "object.spec.replicas &lt; 4", "7", "The request goes on"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not say %q", want)
		}
		if want = strings.ReplaceAll(want, "&lt;", "<"); !strings.Contains(text.String(), want) {
			t.Errorf("the Markdown does not say %q:\n%s", want, text.String())
		}
	}
}
