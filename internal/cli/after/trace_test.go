package after

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

// What the record has, people see on a terminal: what was soft and what it would have changed
// (S28.2), the rule that excluded (S23.9), and the part of an expression that is false (S17.24).
func TestATraceSaysWhatTheRecordHas(t *testing.T) {
	soft := &trace.Enforcement{Mode: "Audit"}
	patch := []trace.PatchOperation{{Op: "add", Path: "/metadata/labels/team", Value: []byte(`"x"`)}}
	var out strings.Builder
	printTrace(&out, &trace.Record{Outcome: trace.OutcomeAllowed, Steps: []trace.StepRecord{{
		Plugin: "ValidatingAdmissionWebhook", Pass: "validating", Allowed: true,
		Calls: []trace.CallRecord{
			{Webhook: trace.EntryRecord{Configuration: "a", Name: "denies"}, Verdict: "denied", Turn: trace.InTurn.String(), Sent: true, Error: "no", Enforcement: soft},
			{Webhook: trace.EntryRecord{Configuration: "b", Name: "changes"}, Verdict: "allowed", Turn: trace.InTurn.String(), Sent: true, Enforcement: soft, WouldPatch: patch},
		},
		Exclusions: []trace.ExclusionRecord{{Rule: "nightly", Effect: "skip", Entries: []trace.EntryRecord{{Configuration: "c", Name: "spared"}}, More: 2}},
		Judgements: []trace.JudgementRecord{{
			Policy: trace.EntryRecord{Configuration: "replicas"},
			Evaluations: []trace.EvaluationRecord{{Bindings: []string{"all"}, Enforcement: soft,
				Validations: []trace.ValidationRecord{{Verdict: "violated", Expression: "a && b", Because: "object.spec.replicas < 4", Values: []trace.PartValueRecord{{Expression: "object.spec.replicas", Value: "7"}}}},
				Mutations:   []trace.MutationRecord{{Type: "JSONPatch", WouldPatch: patch}}}},
			Consequences: []trace.ConsequenceRecord{{Binding: "all", Message: "too many", Spared: true, Enforcement: soft}},
		}},
	}}})
	for _, want := range []string{
		"a/denies: denied, 0s, the request goes on: enforcement Audit\n",
		"b/changes: allowed, 0s, would change the object, the request goes on: enforcement Audit\n    add /metadata/labels/team \"x\"\n",
		"exclusion rule nightly, skip: c/spared, 2 more\n",
		"because this is false: object.spec.replicas < 4\n        object.spec.replicas = 7\n",
		"mutation 1, JSONPatch, cost 0: would change the object: enforcement Audit\n        add /metadata/labels/team \"x\"\n",
		"binding all: too many, the request goes on: enforcement Audit\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the trace does not say %q:\n%s", want, out.String())
		}
	}
}

func TestTheOutcomeIsTakenInAnyCase(t *testing.T) {
	for given, want := range map[string]string{"failed": "Failed", "FAILEDOPEN": "FailedOpen", "Denied": "Denied", "": ""} {
		o := traceOptions{output: "text", outcome: given}
		if err := o.check(); err != nil || o.outcome != want {
			t.Errorf("%q: %q, %v", given, o.outcome, err)
		}
	}
	o := traceOptions{output: "text", outcome: "fail"}
	if err := o.check(); err == nil {
		t.Error("an outcome that there is not was taken")
	}
}
