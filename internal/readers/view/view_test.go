package view

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
	"github.com/gatehouse-dev/gatehouse/internal/kit/terminal"
	"github.com/gatehouse-dev/gatehouse/internal/readers/report"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(micros int) trace.Time {
	return metav1.NewMicroTime(begin.Add(time.Duration(micros) * time.Microsecond))
}

// hostile is an attack in place of a name or a message.
const hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> | `code` @team #1 **bold** [x](javascript:alert(3)) \u202e\x1b[31m"

// record is a trace with every field set, and with text in every name and message.
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

// views has one Document of each kind, with text in every place that another author controls.
func views(text string) map[string]*Document {
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
	return map[string]*Document{
		"trace":  OfTrace(record(text), links),
		"traces": OfTraces([]*trace.Record{record(text), record(text)}),
		"plan":   OfPlans([]Explained{{Plan: p, Tried: []Tried{{Kind: "ValidatingAdmissionPolicy", Name: text, Problems: []string{text}, Costs: []Cost{{Field: text, Limit: 7}}}}}}, links),
		"plans":  OfPlans([]Explained{{Plan: p}, {For: text, Asked: text, Error: text}}, Links{}),
		"report": OfReport(&report.Document{Title: text, Sums: []report.Sum{{Name: "errors", N: 1}}, Findings: []report.Finding{{Level: report.Error, Rule: text, Object: text, File: text, Message: text, Remedy: text}},
			Changes: []report.Difference{{Heading: text, Diff: "@@\n-a\n+" + text, Notes: []string{text}}}, Parts: []report.Part{{Heading: "Not seen", Items: []string{text}}}}),
	}
}

// A request that admission allowed and the server refused is drawn as refused, with the response and its message.
func TestARefusedRequest(t *testing.T) {
	r := record("web")
	r.Outcome, r.Response, r.Steps = trace.OutcomeAllowed, &trace.ResponseRecord{Code: 422, Reason: "Invalid", Message: `Pod "web" is invalid`}, r.Steps[:4]
	for name, d := range map[string]*Document{"trace": OfTrace(r, Links{}), "list": OfList([]*trace.Record{r}, Links{})} {
		for _, format := range formats {
			got := drawnAs(t, d, format)
			if !strings.Contains(got, "Allowed, then 422 Invalid") {
				t.Errorf("%s as %s does not show the response:\n%s", name, format, got)
			}
			if name == "trace" && !strings.Contains(html.UnescapeString(got), r.Response.Message) {
				t.Errorf("%s as %s does not show the message:\n%s", name, format, got)
			}
		}
	}
	r.Response = &trace.ResponseRecord{Code: 201}
	if got := drawnAs(t, OfTrace(r, Links{}), "text"); strings.Contains(got, "then") {
		t.Errorf("a request that was stored: %s", got)
	}
}

// Texts of other authors stay text, in every format and in every place.
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
			shown := drawnAs(t, v, "text")
			if strings.ContainsAny(shown, "\x1b\u202e") || !strings.Contains(shown, `\x1b[31m`) {
				t.Errorf("characters act on a terminal:\n%s", shown)
			}
		})
	}
}

// A page loads nothing from elsewhere, has no script, and is small.
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

// Multi-line texts of other authors cannot imitate the program: on a terminal, only the program's own lines begin at
// the left margin.
func TestLinesOfOthersAreIndented(t *testing.T) {
	for name, v := range views("web\nDenied by nobody\n\n\nvalidating pass, forged: 1s") {
		for line := range strings.Lines(drawnAs(t, v, "text")) {
			if strings.HasPrefix(line, "Denied by nobody") || strings.HasPrefix(line, "validating pass, forged") {
				t.Errorf("%s: a line is %q", name, line)
			}
		}
	}
}

// Text fits the terminal: continuation lines are indented. Findings are printed as compilers print them, one line
// each, for programs that parse places.
func TestTextFitsTheTerminal(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	for name, v := range views("a-name-of-some-length that somebody wrote, which goes on and on") {
		for line := range strings.Lines(drawnAs(t, v, "text")) {
			if columns := terminal.Columns(strings.TrimSuffix(line, "\n")); columns > 80 && !strings.Contains(line, ": error: ") {
				t.Errorf("%s: %d columns: %s", name, columns, line)
			}
		}
	}
}

func outlineOf(t *testing.T, d *Document) Outline {
	t.Helper()
	for _, b := range d.Blocks {
		if o, ok := b.(Outline); ok {
			return o
		}
	}
	t.Fatal("there is no outline")
	return Outline{}
}

// A page of a trace shows durations, changes, the cause of a rejection, and the entries that were not called with
// the reason; a terminal prints the same in words.
func TestATrace(t *testing.T) {
	d := OfTrace(record("web"), Links{Entry: func(_, configuration string) string { return "#/" + configuration }})
	if c, ok := d.Blocks[1].(Callout); !ok || c.By != "web/deny" || c.Text != "web" || c.Href != "#/web" {
		t.Errorf("rejected by %+v", d.Blocks[1])
	}
	var got []string
	for _, r := range outlineOf(t, d).rows() {
		if r.Heading != "" {
			got = append(got, "== "+r.Heading)
			continue
		}
		line := fmt.Sprintf("%s [%.0f+%.0f %s] %s", r.Name, r.Bar.Left, r.Bar.Width, r.Took, r.Verdict.Text)
		if r.Child {
			line = "  " + line
		}
		got = append(got, strings.TrimRight(line, " "))
	}
	want := []string{
		"== mutating pass",
		"2 plugins allow it [0+2 ]",
		"LimitRanger [3+2 40µs]",
		"MutatingAdmissionWebhook [5+450 9ms]",
		"  web/inject [6+200 4ms] allowed",
		"  web/away [210+200 4ms] failed",
		"== validating pass",
		"ValidatingAdmissionPolicy [460+15 300µs]",
		"  web [460+10 200µs] violated",
		"ValidatingAdmissionWebhook [500+450 9ms] rejected",
		"  web/deny [500+445 8.9ms] denied",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the rows are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	text := `CREATE pods web in namespace shop, by web
Denied, 20ms in total, 900µs of it in admission itself
trace 5d1f0c6b2a9e4d37, at 2026-03-01T12:00:00Z, audit ID audit, with the registrations of revision 7

mutating pass, NamespaceLifecycle: 5µs, allowed

mutating pass, ServiceAccount: 30µs, allowed

mutating pass, LimitRanger: 40µs, changed the object
  replace /spec/x 2 (was 1)
  remove /spec/y (was "gone")

mutating pass, MutatingAdmissionWebhook: 9ms
  skipped: web/other, web
  web/inject: allowed, 4ms, changed the object
    add /metadata/labels/a "b"
    warning: web
  web/away: failed, 4ms, called ahead of its turn, not delivered, ignored: failurePolicy is Ignore
    web

validating pass, ValidatingAdmissionPolicy: 300µs
  web: violated, 200µs
    evaluated for web: 200µs, cost 12
      violated, cost 0: web
    binding web: web (Warn)

validating pass, ValidatingAdmissionWebhook: rejected, 9ms
  Internal error occurred: web
  web/deny: denied, 8.9ms
    web
`
	if got := drawnAs(t, d, "text"); got != text {
		t.Errorf("a terminal shows\n%s\nwant\n%s", got, text)
	}
}

// A large trace is drawn in part, and the page reports the omission.
func TestDrawingsAreBounded(t *testing.T) {
	r := record("web")
	for len(r.Steps) < maxItems+100 {
		r.Steps = append(r.Steps, r.Steps[2])
	}
	var patch []trace.PatchOperation
	for range maxChanges + 7 {
		patch = append(patch, trace.PatchOperation{Op: "add", Path: "/a", Value: json.RawMessage(`"` + strings.Repeat("x", 2*maxValue) + `"`)})
	}
	r.Steps[2].Patch = patch
	d := OfTrace(r, Links{})
	if n := len(outlineOf(t, d).Items); n > maxItems || !strings.Contains(drawnAs(t, d, "html"), " more steps are not drawn.") {
		t.Errorf("%d items, and no more", n)
	}
	e := outlineOf(t, d).Items[2].Inside[0].(Edits)
	if len(e.List) != maxChanges || e.More != 7 || len(e.List[0].After()) > maxValue || len(e.List[0].operation()) > maxValue {
		t.Errorf("%d changes of %d bytes, and %d more", len(e.List), len(e.List[0].After()), e.More)
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

// TestWriteSamples writes the views to the directory $GATEHOUSE_PAGES, for inspection.
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

// S28.2: only an enforced entry rejects, and the drawing of a warn-only webhook shows that the request continues.
func TestASoftWebhookDidNotReject(t *testing.T) {
	call := func(name string, soft *trace.Enforcement) trace.CallRecord {
		return trace.CallRecord{Webhook: trace.EntryRecord{Kind: "ValidatingWebhookConfiguration", Configuration: name, Name: "hook"}, Verdict: "denied", Fate: "Used", Sent: true, Error: name + " says no", Enforcement: soft}
	}
	for _, tc := range []struct {
		name           string
		soft           *trace.Enforcement
		rejected, says string
	}{
		{"on Gatehouse", &trace.Enforcement{Mode: "Audit"}, "b-hard/hook", "denied/warn the request goes on: enforcement Audit, denied/bad"},
		{"on a kube-apiserver", nil, "a-soft/hook", "denied/bad, denied/bad"},
	} {
		d := OfTrace(&trace.Record{Steps: []trace.StepRecord{{
			Plugin: "ValidatingAdmissionWebhook", Pass: "validating", Error: "denied", Calls: []trace.CallRecord{call("a-soft", tc.soft), call("b-hard", nil)},
		}}}, Links{})
		var says []string
		for _, p := range outlineOf(t, d).Items[0].Parts {
			text := p.Verdict.Text + "/" + string(p.Verdict.Class)
			for _, r := range p.Remarks {
				text += " " + r.Text
			}
			says = append(says, text)
		}
		c, _ := d.Blocks[1].(Callout)
		if got := strings.Join(says, ", "); c.By != tc.rejected || got != tc.says {
			t.Errorf("%s: rejected by %q, with %s; want %s, with %s", tc.name, c.By, got, tc.rejected, tc.says)
		}
	}
}

// Every format shows the facts of the record: warn-only failures and the changes they would have made (S28.2), the
// rule that excluded an entry (S23.9), and the false part of an expression with its values (S17.24).
func TestPeopleSeeWhatTheRecordHas(t *testing.T) {
	soft := &trace.Enforcement{Mode: "Warn", Rule: "careful"}
	patch := []trace.PatchOperation{{Op: "add", Path: "/metadata/labels/team", Value: []byte(`"x"`)}}
	r := &trace.Record{Outcome: trace.OutcomeAllowed, Steps: []trace.StepRecord{{
		Plugin: "MutatingAdmissionWebhook", Pass: "mutating", Allowed: true,
		Calls: []trace.CallRecord{
			{Webhook: trace.EntryRecord{Configuration: "soft", Name: "hook"}, Verdict: "allowed", Sent: true, Enforcement: soft, WouldPatch: patch},
			{Webhook: trace.EntryRecord{Configuration: "soft", Name: "denies"}, Verdict: "denied", Sent: true, Enforcement: soft, Error: "no"},
		},
		Exclusions: []trace.ExclusionRecord{{Rule: "nightly", Effect: "skip", Entries: []trace.EntryRecord{{Configuration: "spared", Name: "one"}}, More: 2}},
		Judgements: []trace.JudgementRecord{{
			Policy: trace.EntryRecord{Configuration: "replicas"},
			Evaluations: []trace.EvaluationRecord{{Bindings: []string{"all"}, Enforcement: soft,
				Validations: []trace.ValidationRecord{{Verdict: "violated", Expression: "a && b", Because: "object.spec.replicas < 4", Values: []trace.PartValueRecord{{Expression: "object.spec.replicas", Value: "7"}}}},
				Mutations:   []trace.MutationRecord{{Type: "JSONPatch", WouldPatch: patch}}}},
			Consequences: []trace.ConsequenceRecord{{Binding: "all", Message: "too many", Spared: true, Enforcement: soft}},
		}},
	}}}
	const mode = "the request goes on: enforcement Warn by rule careful of the server"
	want := map[string][]string{
		"text": {
			"soft/hook: allowed, 0s, would change the object, " + mode + "\n    add /metadata/labels/team \"x\"\n", "soft/denies: denied, 0s, " + mode + "\n    no\n",
			"exclusion rule nightly, skip: spared/one, 2 more\n", "because this is false: object.spec.replicas < 4\n        object.spec.replicas = 7\n",
			"mutation 1, JSONPatch, cost 0: would change the object, 0s, " + mode + "\n        add /metadata/labels/team \"x\"\n", "binding all: too many, " + mode + "\n",
		},
		"markdown": {
			"`soft/hook`: **allowed**, 0s, would change the object, " + mode + "\n      - add `/metadata/labels/team` `\"x\"`\n", "`soft/denies`: **denied**, 0s, " + mode + "\n      - `no`\n",
			"exclusion rule nightly, skip: spared/one, 2 more\n", "because this is false: `object.spec.replicas < 4`\n", "`object.spec.replicas` = `7`\n",
			"cost 0: **would change the object**, 0s, " + mode, "binding all: too many, " + mode,
		},
		"html": {
			`<span class="warn">` + mode + "</span>", `<span class="warn">would change the object</span>`, `<div class="add">+ &#34;x&#34;</div>`, `<span class="badge warn">denied</span>`,
			"exclusion rule nightly, skip: spared/one, 2 more<", "This part is false: <code>object.spec.replicas &lt; 4</code>", `<td class="mono">object.spec.replicas</td><td class="mono">7</td>`,
			`<span class="badge warn">would change the object</span>`, "binding all: too many, " + mode,
		},
	}
	for format, list := range want {
		got := drawnAs(t, OfTrace(r, Links{}), format)
		for _, want := range list {
			if !strings.Contains(got, want) {
				t.Errorf("%s does not say %q:\n%s", format, want, got)
			}
		}
	}
}

// A terminal prints each finding on one line, as compilers do, and changed outcomes as a diff. Empty lists are
// omitted.
func TestAReport(t *testing.T) {
	r := &report.Document{Findings: []report.Finding{
		{Level: report.Error, Rule: "denied/policy/teams", File: "a.yaml", Line: 3, Column: 5, Object: "ConfigMap a", Message: "no team\nat all"},
		{Level: report.Note, Rule: "unseen", Message: "not all was seen"},
	}}
	d := &Document{Blocks: []Block{
		Diff{Heading: "a.yaml:3: ConfigMap a", Diff: "@@ -1 +1 @@\n-a: 1\n+a: 2\n b: 3\n", Notes: []string{"set by a webhook: /a"}}, FindingsOf(r),
		Together{List{"Not called", nil}, List{"Skipped", []string{"b.yaml"}}, Note("2 objects")},
	}}
	const want = `a.yaml:3: ConfigMap a
    @@ -1 +1 @@
    -a: 1
    +a: 2
     b: 3
    set by a webhook: /a

a.yaml:3:5: error: ConfigMap a: no team
    at all [denied/policy/teams]
cluster: note: not all was seen [unseen]

Skipped:
  - b.yaml
2 objects
`
	if got := drawnAs(t, d, "text"); got != want {
		t.Errorf("a terminal shows\n%s\nwant\n%s", got, want)
	}
	if got := drawnAs(t, OfReport(r), "markdown"); !strings.Contains(got, "| error | `a.yaml:3:5`<br>`ConfigMap a` | `no team at all` | `denied/policy/teams` |") {
		t.Errorf("the Markdown is\n%s", got)
	}
}

// The verdict of a plan is first on a page. It is last on a terminal, where readers see the last line first.
func TestAPlan(t *testing.T) {
	rule := 0
	p := func(name string) *plan.Plan {
		return &plan.Plan{
			Request: plan.About{Operation: "CREATE", APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: name, User: "ann"}, Rejection: "no", WorstCaseSeconds: 2.5, Notes: []string{"of both"},
			Steps: []plan.Step{
				{Pass: "mutating", Plugin: "NamespaceLifecycle", Effect: plan.Run},
				{Pass: "validating", Plugin: "ValidatingAdmissionPolicy", Entry: &plan.Entry{Kind: "ValidatingAdmissionPolicy", Configuration: "limits"}, Effect: plan.Reject, FailurePolicy: "Fail", Rule: &rule,
					Evaluations: []plan.PolicyEvaluation{{Bindings: []string{"all"}, Verdict: "violated", Validations: []plan.PolicyValidation{{Verdict: "violated", Expression: "a < b", Cost: 3, CostLimit: 9, Values: []plan.PartValue{{Expression: "a", Value: "7"}}}}}}},
			},
		}
	}
	own := p("a")
	own.Notes = append(own.Notes, "of one")
	const one = `CREATE Pod shop/a (v1 pods), by ann

#  PHASE       EFFECT  BY      AS  IF IT FAILS  TIMEOUT  REMARKS
   validating  reject  limits      Fail                  rule 1

limits:
  violated, cost 3 of 9: a < b
    a = 7

Plugin NamespaceLifecycle allows it.

In the worst case webhooks and initializers take 2.5s in total.

Unknown to this plan:
  - of one

The request would be rejected: no
`
	every := strings.NewReplacer("BY      AS", "BY                  AS", "limits      Fail", "limits                  Fail",
		"   validating  reject", "1  mutating    run     NamespaceLifecycle\n   validating  reject", "Plugin NamespaceLifecycle allows it.\n\n", "", "  - of one\n", "  - of both\n  - of one\n").Replace(one)
	for _, c := range []struct {
		name string
		list []Explained
		want string
	}{
		{"one", []Explained{{Plan: own}}, strings.Replace(one, "  - of one\n", "  - of both\n  - of one\n", 1)},
		{"every plugin", []Explained{{Plan: own, All: true}}, every},
		{"several", []Explained{{Plan: own}, {For: "it", Plan: p("c")}}, one + "\nFor it, its controller would create:\n\n" +
			strings.Replace(strings.Replace(one, "shop/a", "shop/c", 1), "Unknown to this plan:\n  - of one\n\n", "", 1) + `
Unknown to these plans:
  - of both

2 of 2 requests would be rejected: Pod shop/a (limits), Pod shop/c (limits)
`},
		{"without a plan", []Explained{{Plan: own}, {Asked: "CREATE pods b", Error: "forbidden"}}, strings.Replace(one, "  - of one\n", "  - of both\n  - of one\n", 1) + `
CREATE pods b

Rejected before admission: forbidden

2 of 2 requests would be rejected: Pod shop/a (limits), CREATE pods b
`},
	} {
		if got := drawnAs(t, OfPlans(c.list, Links{}), "text"); got != c.want {
			t.Errorf("%s: a terminal shows\n%s\nwant\n%s", c.name, got, c.want)
		}
		for _, format := range []string{"html", "markdown"} {
			got := drawnAs(t, OfPlans(c.list, Links{}), format)
			if verdict, steps := strings.Index(got, "would be rejected"), strings.Index(got, "NamespaceLifecycle"); verdict < 0 || verdict > steps {
				t.Errorf("%s, %s: the verdict does not come first:\n%s", c.name, format, got)
			}
		}
	}
}

// The last line names every cause that a step of a plan has. The last line of several requests is never more
// favourable than their plans.
func TestTheLastLineHasEveryCause(t *testing.T) {
	pod := plan.About{Operation: "CREATE", APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: "a"}
	refused := &plan.Plan{Request: pod, Rejection: "no right", Causes: []string{"no right", "no room, unless W changes the object"}, Steps: []plan.Step{{Plugin: "Authorization", Effect: plan.Reject}}}
	likely := &plan.Plan{Request: pod, Likely: "no room, unless W changes the object", Causes: []string{"no room, unless W changes the object", "too large, unless W changes the object"}}
	hidden := &plan.Plan{Request: pod, Steps: []plan.Step{{Plugin: "W", Effect: plan.Undecided}}}
	called := &plan.Plan{Request: pod, Steps: []plan.Step{{Plugin: "W", Effect: plan.Call}}}
	fine := &plan.Plan{Request: pod}
	for _, c := range []struct {
		plans []*plan.Plan
		want  string
	}{
		{[]*plan.Plan{refused}, "The request would be rejected: no right; and if that were not so: no room, unless W changes the object\n"},
		{[]*plan.Plan{likely}, "The request would be rejected: no room, unless W changes the object; too large, unless W changes the object\n"},
		{[]*plan.Plan{fine, likely}, "1 of 2 requests would be rejected: Pod shop/a (no room, unless W changes the object)\n"},
		{[]*plan.Plan{fine, hidden}, "Nothing that can be seen rejects the 2 requests. Steps that are unknown can reject 1 of them.\n"},
		{[]*plan.Plan{called, called}, "Nothing in the plans of 2 requests rejects them. Webhooks can reject them.\n"},
		{[]*plan.Plan{fine, fine}, "None of the 2 requests is rejected in its plan.\n"},
	} {
		var list []Explained
		for _, p := range c.plans {
			list = append(list, Explained{Plan: p})
		}
		if got := drawnAs(t, OfPlans(list, Links{}), "text"); !strings.HasSuffix(got, "\n"+c.want) {
			t.Errorf("the last line of\n%s\nis not %q", got, c.want)
		}
	}
}

// The effect "pend" of JSON is "initialize" in a table.
func TestInitializersOfAPlan(t *testing.T) {
	p := &plan.Plan{Steps: []plan.Step{{Pass: "mutating", Plugin: "Initializers", Entry: &plan.Entry{Configuration: "a", Name: "b.example.com"}, Effect: plan.Pend}}}
	if got := drawnAs(t, OfPlans([]Explained{{Plan: p}}, Links{}), "text"); !strings.Contains(got, "1  mutating  initialize  a/b.example.com") {
		t.Errorf("the plan is\n%s", got)
	}
}

// Requests of one kind with the same plan are drawn once.
func TestTheSamePlanIsDrawnOnce(t *testing.T) {
	p := func(kind, name, change string) *plan.Plan {
		return &plan.Plan{
			Request: plan.About{Operation: "CREATE", APIVersion: "v1", Kind: kind, Resource: "r", Namespace: "shop", Name: name},
			Steps: []plan.Step{
				{Pass: "mutating", Plugin: "ServiceAccount", Effect: plan.Run, Patch: json.RawMessage(`[{"op":"add","path":"/spec/volumes","value":[{"name":"kube-api-access-` + change + `"}]}]`)},
				{Pass: "mutating", Plugin: "One", Effect: plan.Run}, {Pass: "validating", Plugin: "One", Effect: plan.Run}, {Pass: "validating", Plugin: "Two", Effect: plan.Run},
			},
		}
	}
	other := p("Pod", "d", "x")
	other.Steps[0].Patch = nil
	list := []Explained{{Plan: p("Pod", "a", "abcde")}, {Plan: p("Pod", "b", "12345")}, {Plan: p("Widget", "c", "x")}, {Plan: other}, {Plan: p("Pod", "", "x"), For: "Job x"}, {Plan: p("Pod", "", "y"), For: "Job y"}}
	got := drawnAs(t, OfPlans(list, Links{}), "text")
	for want, n := range map[string]int{
		"CREATE Pod shop/a": 1, "\nThe same plan: Pod shop/b\n": 1, "CREATE Pod shop/b": 0, "CREATE Widget shop/c": 1, "CREATE Pod shop/d": 1, "\n2 plugins allow it (--all shows each).\n": 3,
		"For Job x, its controller would create:\n": 1, "\nThe same plan: Pod for Job y\n": 1, "\n3 plugins allow it": 1,
	} {
		if strings.Count(got, want) != n {
			t.Errorf("%q is not there %d times:\n%s", want, n, got)
		}
	}
}
