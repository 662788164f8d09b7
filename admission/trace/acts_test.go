package trace

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// S28.2: the answer of a webhook that is not enforced does not affect the outcome: a request fails
// if an enforced webhook failed.
func TestTheOutcomeIsThatOfWhoIsHard(t *testing.T) {
	soft, boom := Enforcement{Mode: registration.ModeAudit}, errors.New("boom")
	for _, tc := range []struct {
		name  string
		calls []Call
		want  Outcome
	}{
		{"denied, and a hard one failed", []Call{{Verdict: Denied, Err: boom, Enforcement: soft}, {Verdict: Failed, Err: boom}}, OutcomeFailed},
		{"failed, and a hard one denied", []Call{{Verdict: Failed, Err: boom, Enforcement: soft}, {Verdict: Denied, Err: boom}}, OutcomeDenied},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := new(Trace)
			tr.mu.steps = []Step{(&Run{Source: registration.Validating, Calls: tc.calls, Err: boom}).Step()}
			if got := tr.Outcome(); got != tc.want {
				t.Errorf("outcome %s, want %s", got, tc.want)
			}
		})
	}
}

// S28.2, S28.8: only enforced webhooks and policies reject a request, and the others would have; a
// rejection without another cause comes from the step's plugin. Records and in-process readers of
// traces have the same acts.
func TestWhoDidWhat(t *testing.T) {
	boom := errors.New("boom")
	soft := Enforcement{Mode: registration.ModeAudit}
	hook := func(name string) registration.Origin {
		return registration.Origin{Source: registration.Validating, Configuration: name, Name: "hook"}
	}
	policy := registration.Origin{Source: registration.ValidatingPolicies, Configuration: "p"}
	patch := []byte(`[{"op":"add","path":"/a","value":1}]`)
	calls := func(err error, calls ...Call) Step {
		return (&Run{Source: registration.Validating, Calls: calls, Err: err}).Step()
	}
	judged := func(err error, judgement Judgement) Step {
		judgement.Policy = policy
		return (&Run{Source: registration.ValidatingPolicies, Judgements: []Judgement{judgement}, Err: err}).Step()
	}
	denied := Consequence{Binding: "b", Code: violatedCode, Index: 2, Message: "no", Denied: true}
	spared := Consequence{Binding: "c", Code: violatedCode, Message: "no", Spared: true, Actions: []string{}, Enforcement: soft}
	for _, tc := range []struct {
		name string
		step Step
		// acts are all acts, and rejections the acts that rejected the request.
		acts, rejections string
	}{
		{"nothing", Step{Plugin: "A"}, "", ""},
		{"a plugin", Step{Plugin: "A", Err: boom}, "plugin A rejects: boom", "A"},
		{"a webhook", calls(boom, Call{Entry: hook("w"), Verdict: Denied, Err: boom}), "webhook w/hook rejects: boom", "w/hook"},
		{
			"a soft webhook before a hard one", calls(boom, Call{Entry: hook("a"), Verdict: Denied, Err: boom, Enforcement: soft}, Call{Entry: hook("b"), Verdict: Denied, Err: boom}),
			"webhook a/hook would reject: boom, webhook b/hook rejects: boom", "b/hook",
		},
		{"a soft webhook alone", calls(nil, Call{Entry: hook("a"), Verdict: Failed, Err: boom, Enforcement: soft}), "webhook a/hook would reject: boom", ""},
		{"a failure that is ignored", calls(nil, Call{Entry: hook("w"), Verdict: Failed, Err: boom, Ignored: true}), "webhook w/hook fails open: boom", ""},
		{"a failure that is ignored, of a soft webhook", calls(nil, Call{Entry: hook("w"), Verdict: Failed, Err: boom, Ignored: true, Enforcement: soft}), "webhook w/hook fails open: boom", ""},
		{"an answer that was not used", (&Run{Source: registration.Mutating, Discarded: []Call{{Entry: hook("w"), Verdict: Denied, Err: boom, Fate: Superseded}}}).Step(), "", ""},
		{"a change", calls(nil, Call{Entry: hook("w"), Patch: patch, Mutated: true}), "webhook w/hook changes", ""},
		{"a change by a soft webhook", calls(nil, Call{Entry: hook("w"), WouldPatch: patch, Enforcement: soft}), "webhook w/hook would change", ""},
		{"a patch that was refused, or changes nothing", calls(nil, Call{Entry: hook("w"), Patch: patch}), "", ""},
		{"a failure that is ignored, of a patch", calls(nil, Call{Entry: hook("w"), Verdict: Failed, Err: boom, Ignored: true, Patch: patch}), "webhook w/hook fails open: boom", ""},
		{"a plugin beside webhooks", calls(boom, Call{Entry: hook("w")}), "plugin ValidatingAdmissionWebhook rejects: boom", "ValidatingAdmissionWebhook"},
		{"a policy", judged(boom, Judgement{Consequences: []Consequence{denied, spared}}), "policy p/b[2] rejects: no, policy p/c[0] would reject: no", "p"},
		{"a policy without a binding", judged(boom, Judgement{Consequences: []Consequence{{Configuration: true, Code: "ParamKind", Denied: true}}}), "policy p rejects: ParamKind", "p"},
		{"a warning", judged(nil, Judgement{Consequences: []Consequence{{Binding: "b", Key: "k", Message: "m", Actions: []string{ActionWarn}}}}), "policy p/b notes: m", ""},
		{
			"mutations", judged(nil, Judgement{Evaluations: []Evaluation{
				{Bindings: []string{"b"}, Mutations: []Mutation{{Index: 0}, {Index: 1, Patch: patch, Changed: true}}},
				{Bindings: []string{"b"}, Mutations: []Mutation{{Index: 2, Patch: patch, Err: boom}}},
				{Bindings: []string{"c"}, Mutations: []Mutation{{Index: 0, WouldPatch: patch}}, Enforcement: soft},
			}}), "policy p/b[1] changes, policy p/c[0] would change", "",
		},
		{"an initializer", (&Run{Source: registration.Initializing, Initializing: []string{"i", "k"}, Written: patch}).Step(), "initializer i, k changes", ""},
	} {
		whole := New()
		whole.Add(tc.step)
		record := whole.Record(RecordOptions{})
		for _, r := range []*Record{&record, whole.Verdicts(true)} {
			if got := told(r.Acts()); got != tc.acts {
				t.Errorf("%s: %s, want %s", tc.name, got, tc.acts)
			}
			var by []string
			for a := range r.Rejections() {
				by = append(by, a.By)
			}
			if got := strings.Join(by, " "); got != tc.rejections {
				t.Errorf("%s: rejected by %q, want %q", tc.name, got, tc.rejections)
			}
			if spared, changes := told(r.Spared()), told(r.Changes()); strings.Contains(spared, " rejects") || strings.Contains(changes, "would") {
				t.Errorf("%s: spared %s, changes %s", tc.name, spared, changes)
			}
			// The iteration may end at any act.
			for range r.Acts() {
				break
			}
		}
	}
}

// S28.8: the acts of a registration that is not enforced are its own, or belong to one of its
// bindings. An ignored failure rejects nothing, whether or not the webhook is enforced.
func TestWhatASoftRegistrationWouldHaveDone(t *testing.T) {
	patch := []PatchOperation{{Op: "add", Path: "/a"}}
	soft := &Enforcement{Mode: registration.ModeAudit}
	hooks := EntryRecord{Kind: "MutatingWebhookConfiguration", Configuration: "own", Name: "hook"}
	other := EntryRecord{Kind: "MutatingWebhookConfiguration", Configuration: "other", Name: "hook"}
	policy := EntryRecord{Kind: "ValidatingAdmissionPolicy", Configuration: "own"}
	r := &Record{Steps: []StepRecord{{
		Calls: []CallRecord{
			{Webhook: hooks, Verdict: "denied", Error: "no", Enforcement: soft},
			{Webhook: hooks, Verdict: "failed", Error: "away", Ignored: true, Enforcement: soft},
			{Webhook: hooks, Verdict: "allowed", Enforcement: soft, WouldPatch: patch},
			{Webhook: other, Verdict: "denied", Error: "no", Enforcement: soft},
		},
		Judgements: []JudgementRecord{{Policy: policy, Consequences: []ConsequenceRecord{{Binding: "teams", Message: "no team", Spared: true, Enforcement: soft}}}},
	}}}
	for _, c := range []struct{ kind, name, want string }{
		{"MutatingWebhookConfiguration", "own", "webhook own/hook would reject: no, webhook own/hook would change"},
		{"ValidatingWebhookConfiguration", "own", ""},
		{"ValidatingAdmissionPolicy", "own", "policy own/teams would reject: no team"},
		{"ValidatingAdmissionPolicyBinding", "teams", "policy own/teams would reject: no team"},
		{"MutatingAdmissionPolicyBinding", "teams", ""},
		{"ValidatingAdmissionPolicyBinding", "own", ""},
	} {
		if got := told(r.SparedBy(c.kind, c.name)); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.kind, c.name, got, c.want)
		}
	}
}

// told describes acts.
func told(acts iter.Seq[Act]) string {
	var list []string
	for a := range acts {
		text := a.Kind + " " + a.By
		if a.Binding != "" {
			text += "/" + a.Binding
		}
		if a.Index != nil {
			text += fmt.Sprintf("[%d]", *a.Index)
		}
		text += " " + string(a.Deed)
		if a.Message != "" {
			text += ": " + a.Message
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// Verdicts neither withholds nor truncates texts.
func TestVerdictsAreWhole(t *testing.T) {
	long := strings.Repeat("x", 2*MaxText)
	whole := New()
	whole.Note(Subject{Request: Request{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}})
	whole.Add((&Run{Source: registration.Validating, Err: errors.New(long), Calls: []Call{{UID: "u", Verdict: Denied, Err: errors.New(long), Warnings: []string{long}}}}).Step())
	for _, c := range slices.Collect(whole.Verdicts(false).Calls()) {
		if c.Error != long || c.Warnings[0] != long {
			t.Errorf("%d bytes of an error, and %d of a warning", len(c.Error), len(c.Warnings[0]))
		}
	}
	record := whole.Record(RecordOptions{})
	for c := range record.Calls() {
		if c.Error != withheld {
			t.Errorf("the record shows %q", c.Error)
		}
	}
}

// After a write conflict admission runs again, and only the last attempt was stored.
func TestTheLastAttempt(t *testing.T) {
	step := func(plugin, pass string, round int) StepRecord {
		return StepRecord{Plugin: plugin, Pass: pass, Round: round, Namespace: "shop", Name: "web"}
	}
	once := []StepRecord{step("A", "mutating", 0), step("B", "mutating", 0), step("A", "mutating", 1), step("A", "validating", 0)}
	for name, steps := range map[string][]StepRecord{"once": once, "twice": slices.Concat(once, once), "rejected first": slices.Concat(once[:1], once), "none": nil} {
		n := 0
		for s := range (&Record{Steps: steps}).LastAttempt() {
			if s.Plugin != once[n].Plugin || s.Pass != once[n].Pass || s.Round != once[n].Round {
				t.Errorf("%s: %+v", name, s)
			}
			n++
		}
		if want := min(len(steps), len(once)); n != want {
			t.Errorf("%s: %d steps, want %d", name, n, want)
		}
	}
}

// An act identifies its warning to the client, whatever the text of the warning.
func TestActsKnowTheirWarnings(t *testing.T) {
	for _, source := range []registration.Source{registration.ValidatingPolicies, registration.MutatingPolicies} {
		run := &Run{Source: source, Judgements: []Judgement{{Policy: registration.Origin{Source: source, Configuration: "p"}, Consequences: []Consequence{
			{Binding: "b", Message: "no", Actions: []string{ActionWarn}}, {Message: "nothing", Actions: []string{ActionWarn}},
		}}}}
		whole := New()
		whole.Add(run.Step())
		acts := slices.Collect(whole.Verdicts(false).Acts())
		warnings := publish(t, auditinternal.LevelMetadata, run).Warnings
		if len(acts) != 2 || len(warnings) != 2 {
			t.Fatalf("%d acts, warnings %q", len(acts), warnings)
		}
		for i := range acts {
			for k, text := range warnings {
				if acts[i].WarnedBy(text) != (i == k) {
					t.Errorf("%s: the warning %q is of act %d", source, text, i)
				}
			}
		}
	}
}
