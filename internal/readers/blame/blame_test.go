package blame

import (
	"encoding/json"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gatehouse-dev/gatehouse/admission/trace"
)

func TestWhetherAnObjectStillHasWhatWasSet(t *testing.T) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON([]byte(`{"apiVersion":"v1","kind":"Pod",
		"metadata":{"name":"web","labels":{"team":"red","a/b":"c"}},
		"spec":{"n":3,"f":1.5,"containers":[{"name":"web","image":"i","resources":{}},{"name":"side","image":"s","imagePullPolicy":"Always"}]}}`)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ op, path, value, want string }{
		{"add", "/metadata/labels/team", `"red"`, "same"},
		{"add", "/metadata/labels/team", `"blue"`, "changed"},
		{"add", "/metadata/labels/a~1b", `"c"`, "same"},
		{"add", "/metadata/labels", `{"team":"red"}`, "same"},
		{"add", "/metadata/labels", `{"team":"red","gone":"x"}`, "changed"},
		{"replace", "/spec/n", `3`, "same"},
		{"replace", "/spec/n", `4`, "changed"},
		{"replace", "/spec/f", `1.5`, "same"},
		{"add", "/spec/containers/1", `{"name":"side","image":"s"}`, "same"},
		{"add", "/spec/containers/-", `{"name":"side","image":"s"}`, "same"},
		{"add", "/spec/containers/-", `{"name":"gone"}`, "changed"},
		{"add", "/spec/containers/7", `{}`, "changed"},
		{"add", "/spec/containers", `[{"name":"web"}]`, "changed"},
		{"add", "/spec/m", `1`, "changed"},
		{"remove", "/spec/m", "", "same"},
		{"remove", "/spec/n", "", "changed"},
		{"add", "/spec/n", "", "unknown"},
		// A credential that the trace redacted.
		{"add", "/metadata/labels/team", `"[removed]"`, "unknown"},
		{"add", "/spec/containers/-", `{"name":"side","env":[{"name":"TOKEN","value":"[removed]"}]}`, "unknown"},
	} {
		p := &trace.PatchOperation{Op: c.op, Path: c.path, Value: json.RawMessage(c.value)}
		if got := now(object, p); got != c.want {
			t.Errorf("%s %s %s: got %s, want %s", c.op, c.path, c.value, got, c.want)
		}
		if got := now(nil, p); got != "unknown" {
			t.Errorf("of an object that cannot be read, %s is known", got)
		}
	}
}

// S30.11: traces from an audit log, as an agent serves them, are incomplete: blame always reports it.
func TestWhatAnAuditLogDoesNotHave(t *testing.T) {
	of := func(a *trace.Audit, outcome trace.Outcome, calls ...trace.CallRecord) *trace.Record {
		return &trace.Record{ID: "t1", Outcome: outcome, Audit: a, Request: trace.RequestRecord{Operation: "CREATE"}, Steps: []trace.StepRecord{{Plugin: "P", Allowed: true, Calls: calls}}}
	}
	const unlogged = "what built-in admission plugins and mutating policies changed: an audit log does not have it"
	hook := trace.EntryRecord{Configuration: "w", Name: "hook"}
	for _, c := range []struct {
		name    string
		records []*trace.Record
		want    []string
	}{
		{"a trace of a server", []*trace.Record{of(nil, trace.OutcomeAllowed, trace.CallRecord{Webhook: hook, Mutated: true})}, nil},
		{"a trace of an audit log", []*trace.Record{of(&trace.Audit{}, trace.OutcomeAllowed), of(&trace.Audit{}, trace.OutcomeAllowed)}, []string{unlogged}},
		{"a rejected request", []*trace.Record{of(&trace.Audit{}, trace.OutcomeDenied)}, []string{unlogged}},
		{"a change without its patch", []*trace.Record{of(&trace.Audit{}, trace.OutcomeAllowed, trace.CallRecord{Webhook: hook, Mutated: true})},
			[]string{"what webhook w/hook changed in the request of the trace t1: the audit event has no patch, which needs the level Request", unlogged}},
		{"no trace", nil, nil},
	} {
		b := &Blame{}
		b.Judge(c.records, nil)
		if !slices.Equal(b.Unknown, c.want) {
			t.Errorf("%s: %q is unknown, want %q", c.name, b.Unknown, c.want)
		}
	}
}

// A field has one name, whether the trace has it or only the path of the patch.
func TestAFieldHasOneName(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": "red"}}, "spec": map[string]any{"containers": []any{map[string]any{"name": "web", "image": "i"}}}}}
	for _, c := range []struct{ path, value, field, want string }{
		{"/metadata/labels/team", `"red"`, "metadata.labels.team", "metadata.labels.team"},
		{"/metadata/labels/team", `"red"`, "", "metadata.labels.team"},
		{"/metadata/labels/team", `"blue"`, "", "metadata.labels.team"},
		{"/metadata/labels/example.com~1team", `"red"`, "", "metadata.labels[example.com/team]"},
		{"/spec/containers/0/image", `"i"`, "spec.containers[name=web].image", "spec.containers[name=web].image"},
		{"/spec/containers/0/image", `"i"`, "", "spec.containers[name=web].image"},
		// The element may be another one by now.
		{"/spec/containers/0/image", `"j"`, "", "spec.containers[0].image"},
		{"/spec/containers/-", `{"name":"side"}`, "", "spec.containers[-]"},
	} {
		r := &trace.Record{Outcome: trace.OutcomeAllowed, Audit: &trace.Audit{}, Steps: []trace.StepRecord{{Plugin: "P", Allowed: true, Calls: []trace.CallRecord{{
			Verdict: "allowed", Mutated: true, Patch: []trace.PatchOperation{{Op: "replace", Path: c.path, Field: c.field, Value: json.RawMessage(c.value)}}}}}}}
		b := &Blame{}
		b.Judge([]*trace.Record{r}, object)
		if len(b.Changes) != 1 || b.Changes[0].Field != c.want {
			t.Errorf("%s %s, named %q: %+v, want %s", c.path, c.value, c.field, b.Changes, c.want)
		}
	}
}

// Blame names the author of a field, and never the author of a change that had no effect: a warn-only change (S28.7),
// a patch that was refused or changes nothing (S5.12), a response that was not used, a request that was rejected or
// refused after admission, or an attempt that conflicted with another write.
func TestWhoChangedNothingIsNotBlamed(t *testing.T) {
	patch := []trace.PatchOperation{{Op: "add", Path: "/metadata/labels/team", Field: "metadata.labels.team", Value: json.RawMessage(`"red"`)}}
	hook := func(name string) trace.EntryRecord { return trace.EntryRecord{Configuration: name, Name: "hook"} }
	soft := &trace.Enforcement{Mode: "Audit"}
	step := func(s trace.StepRecord) *trace.Record {
		s.Plugin, s.Allowed = "P", true
		return &trace.Record{Outcome: trace.OutcomeAllowed, Steps: []trace.StepRecord{s}}
	}
	mutations := func(e *trace.Enforcement, list ...trace.MutationRecord) *trace.Record {
		return step(trace.StepRecord{Judgements: []trace.JudgementRecord{{Policy: trace.EntryRecord{Configuration: "p"}, Evaluations: []trace.EvaluationRecord{{Enforcement: e, Mutations: list}}}}})
	}
	rejected := step(trace.StepRecord{Calls: []trace.CallRecord{{Webhook: hook("w"), Mutated: true, Patch: patch}}})
	rejected.Outcome = trace.OutcomeDenied
	refused := step(trace.StepRecord{Calls: []trace.CallRecord{{Webhook: hook("w"), Mutated: true, Patch: patch}}})
	refused.Response = &trace.ResponseRecord{Code: 422, Reason: "Invalid"}
	twice := step(trace.StepRecord{Calls: []trace.CallRecord{{Webhook: hook("first"), Mutated: true, Patch: patch}}})
	twice.Steps = append(twice.Steps, step(trace.StepRecord{Calls: []trace.CallRecord{{Webhook: hook("second"), Mutated: true, Patch: patch}}}).Steps...)
	for _, c := range []struct {
		name   string
		record *trace.Record
		want   []string
	}{
		{"a webhook", step(trace.StepRecord{Calls: []trace.CallRecord{{Webhook: hook("w"), Mutated: true, Patch: patch}}}), []string{"webhook w/hook"}},
		{"a soft webhook", step(trace.StepRecord{Calls: []trace.CallRecord{{Webhook: hook("w"), Enforcement: soft, WouldPatch: patch}}}), nil},
		{"a patch that was refused", step(trace.StepRecord{Calls: []trace.CallRecord{{Webhook: hook("w"), Verdict: "failed", Ignored: true, Patch: patch}}}), nil},
		{"an answer that was not used", step(trace.StepRecord{Discarded: []trace.CallRecord{{Webhook: hook("w"), Mutated: true, Patch: patch}}}), nil},
		{"a policy", mutations(nil, trace.MutationRecord{Mutated: true, Patch: patch}), []string{"policy p"}},
		{"a soft policy", mutations(soft, trace.MutationRecord{WouldPatch: patch}), nil},
		{"a mutation that failed", mutations(nil, trace.MutationRecord{Patch: patch, Error: "no such field"}), nil},
		{"a plugin", step(trace.StepRecord{Patch: patch}), []string{"plugin P"}},
		{"a request that was rejected", rejected, nil},
		{"a request that validation refused", refused, nil},
		{"an attempt that met another write", twice, []string{"webhook second/hook"}},
	} {
		b := &Blame{}
		b.Judge([]*trace.Record{c.record}, nil)
		var got []string
		for i := range b.Changes {
			got = append(got, b.Changes[i].ByKind+" "+b.Changes[i].By)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q are blamed, want %q", c.name, got, c.want)
		}
	}
}
