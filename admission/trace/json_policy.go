package trace

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/kit/credentials"
)

// JudgementRecord is the result of one admission policy for a request.
type JudgementRecord struct {
	// Known is written, derived or unknown; it is absent if a server of Gatehouse made the trace.
	Known Known `json:"known,omitempty"`
	// Policy is the policy, FailurePolicy its failure policy.
	Policy        EntryRecord `json:"policy"`
	FailurePolicy string      `json:"failurePolicy"`
	// Rule is the index of the rule that matched.
	Rule int `json:"rule"`
	// Kind, Resource and Subresource are the kind, resource and subresource that the policy was
	// evaluated for. Equivalent reports whether they differ from the request's own.
	Kind        KindRecord     `json:"kind"`
	Resource    ResourceRecord `json:"resource"`
	Subresource string         `json:"subresource,omitempty"`
	Equivalent  bool           `json:"equivalent,omitempty"`
	// Evaluations are the evaluations of the policy, one for each param.
	Evaluations []EvaluationRecord `json:"evaluations,omitempty"`
	// Consequences are the effects of all violations and errors, in order of precedence, 64 at
	// most. MoreConsequences counts the others.
	Consequences     []ConsequenceRecord `json:"consequences,omitempty"`
	MoreConsequences int                 `json:"moreConsequences,omitempty"`
}

// EvaluationRecord is one evaluation of a policy.
type EvaluationRecord struct {
	// Param names the param; absent if there was none.
	Param *ParamRecord `json:"param,omitempty"`
	// Bindings are the names of the bindings that lead to the evaluation, 16 at most. MoreBindings
	// counts the others.
	Bindings     []string `json:"bindings,omitempty"`
	MoreBindings int      `json:"moreBindings,omitempty"`
	// Start is when the evaluation began, Micros how long it took.
	Start  Time  `json:"start"`
	Micros int64 `json:"micros"`
	// Cost is the cost of all expressions together, in CEL cost units.
	Cost int64 `json:"cost"`
	// FalseCondition is the name of the match condition that was false. No other expression was
	// evaluated in that case.
	FalseCondition string `json:"falseCondition,omitempty"`
	// Validations are the evaluated validations.
	Validations []ValidationRecord `json:"validations,omitempty"`
	// AuditAnnotations are the evaluated audit annotations.
	AuditAnnotations []AnnotationRecord `json:"auditAnnotations,omitempty"`
	// Mutations are the evaluated mutations of a mutating policy. Spared reports whether there are
	// none because the second round does not repeat the evaluation.
	Mutations []MutationRecord `json:"mutations,omitempty"`
	Spared    bool             `json:"spared,omitempty"`
	// Error is the error that prevented the evaluation of a mutating policy.
	Error string `json:"error,omitempty"`
	// Enforcement is present if the binding of a mutating policy is not enforced: its mutations
	// change nothing.
	Enforcement *Enforcement `json:"enforcement,omitempty"`
}

// MutationRecord is the evaluation of one mutation.
type MutationRecord struct {
	// Index is the index of the mutation in the policy, Type is ApplyConfiguration or JSONPatch.
	Index int    `json:"index"`
	Type  string `json:"type"`
	// Mutated reports whether the mutation changed the object. Patch is the change returned by the
	// expression.
	Mutated bool             `json:"mutated,omitempty"`
	Patch   []PatchOperation `json:"patch,omitempty"`
	// WouldPatch is the change that the mutation would have made if the binding were enforced.
	WouldPatch []PatchOperation `json:"wouldPatch,omitempty"`
	// Error is the reason why the object was not changed.
	Error string `json:"error,omitempty"`
	// Cost is the cost of the expression, in CEL cost units. Micros is the time taken to evaluate
	// it and to change the object.
	Cost   int64 `json:"cost"`
	Micros int64 `json:"micros"`
}

// ParamRecord names an object.
type ParamRecord struct {
	// Namespace is empty for a kind that is not in namespaces.
	Namespace string `json:"namespace,omitempty"`
	// Name is the name.
	Name string `json:"name"`
}

// ValidationRecord is the evaluation of one validation.
type ValidationRecord struct {
	// Index is the index of the validation in the policy. It is absent for a record that represents
	// all validations that were not evaluated.
	Index *int `json:"index,omitempty"`
	// Verdict is holds, violated or failed.
	Verdict string `json:"verdict"`
	// Message is the message for the user, and Expression the source of the validation's
	// expression. Both are absent if the validation holds.
	Message    string `json:"message,omitempty"`
	Expression string `json:"expression,omitempty"`
	// Because is the part of the expression that makes it false, unless that is the whole
	// expression. Values are the values of its parts, if they depend on the objects of the request
	// only. Both are set for violations that rejected the request, for several requests a second,
	// and are absent when the record is redacted.
	Because string            `json:"because,omitempty"`
	Values  []PartValueRecord `json:"values,omitempty"`
	// Cost is the cost of the expression, in CEL cost units. Nanos is the time taken by the
	// evaluation, in nanoseconds.
	Cost  int64 `json:"cost"`
	Nanos int64 `json:"nanos"`
}

// PartValueRecord is the value of a part of an expression.
type PartValueRecord struct {
	// Expression is the part.
	Expression string `json:"expression"`
	// Value is its value in JSON. A long value is truncated.
	Value string `json:"value"`
}

// AnnotationRecord is the evaluation of one audit annotation.
type AnnotationRecord struct {
	// Key is the key in the policy. Value is absent if no annotation was recorded.
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
	// Error is the reason why there is no value.
	Error string `json:"error,omitempty"`
}

// ConsequenceRecord is one binding's reaction to one violation or error.
type ConsequenceRecord struct {
	// Binding is absent for an error of the policy itself. Param is absent if the consequence does
	// not belong to an evaluation with a param.
	Binding string       `json:"binding,omitempty"`
	Param   *ParamRecord `json:"param,omitempty"`
	// Code identifies the violation or error, Message is the message for the user, and Reason the
	// reason in the status of a rejection.
	Code    string `json:"code"`
	Message string `json:"message"`
	Reason  string `json:"reason,omitempty"`
	// Index is the index of the violated or failed validation or mutation in the policy, and
	// Annotation the key of the failed audit annotation. Each is absent if the consequence concerns
	// none.
	Index      *int   `json:"index,omitempty"`
	Annotation string `json:"annotation,omitempty"`
	// Actions are the binding's actions that count, in order.
	Actions []string `json:"actions,omitempty"`
	// Denied reports whether the consequence rejects the request. Ignored reports whether it has no
	// effect because the failure policy is Ignore.
	Denied  bool `json:"denied,omitempty"`
	Ignored bool `json:"ignored,omitempty"`
	// Enforcement is present if the binding or the policy is not enforced. Spared reports whether
	// the request would have been rejected if they were enforced.
	Enforcement *Enforcement `json:"enforcement,omitempty"`
	Spared      bool         `json:"spared,omitempty"`
}

// maxConsequences bounds the number of consequences of a policy in a Record.
const maxConsequences = 64

func (w writer) judgement(j *Judgement) JudgementRecord {
	out := JudgementRecord{
		Known: j.Known, Policy: entryRecord(&j.Policy), FailurePolicy: string(j.FailurePolicy), Rule: j.Rule,
		Kind: kindRecord(j.Kind), Resource: resourceRecord(j.Resource), Subresource: j.Subresource, Equivalent: j.Equivalent,
	}
	out.Evaluations = records(j.Evaluations, w.evaluation)
	list := j.Consequences
	if len(list) > w.consequences {
		out.MoreConsequences = len(list) - w.consequences
		list = list[:w.consequences]
	}
	out.Consequences = records(list, func(c *Consequence) ConsequenceRecord {
		one := ConsequenceRecord{
			Binding: c.Binding, Param: paramRecord(c.Param), Code: c.Code, Message: w.orWithheld(c.Message, c.Configuration), Reason: string(c.Reason),
			Actions: slices.Clone(c.Actions), Denied: c.Denied, Ignored: c.Forgiven,
			Enforcement: c.Enforcement.record(), Spared: c.Spared, Annotation: c.Key,
		}
		if !c.Configuration && c.Key == "" {
			one.Index = new(c.Index)
		}
		return one
	})
	return out
}

func (w writer) evaluation(e *Evaluation) EvaluationRecord {
	out := EvaluationRecord{
		Param: paramRecord(e.Param), Bindings: slices.Clone(e.Bindings), MoreBindings: e.More,
		Start: at(e.Start), Micros: e.Latency.Microseconds(), Cost: int64(e.Cost), FalseCondition: e.False,
	}
	out.Validations = records(e.Validations, func(v *Validation) ValidationRecord {
		one := ValidationRecord{Verdict: v.Verdict(), Message: w.orWithheld(v.Message, false), Expression: w.cut(v.Expression), Cost: int64(v.Cost), Nanos: v.Latency.Nanoseconds()}
		if !v.Whole {
			one.Index = new(v.Index)
		}
		if !w.redact {
			one.Because = w.cut(v.Because)
			for _, part := range v.Values {
				value := part.Value
				if !w.plain {
					value = credentials.Evaluated(part.Expression, value)
				}
				one.Values = append(one.Values, PartValueRecord{w.cut(part.Expression), w.cut(value)})
			}
		}
		return one
	})
	out.Enforcement = e.Enforcement.record()
	out.Spared, out.Error = e.Spared, w.orWithheld(w.text(e.Err), false)
	out.Mutations = records(e.Mutations, func(m *Mutation) MutationRecord {
		return MutationRecord{
			Index: m.Index, Type: m.Type, Mutated: m.Changed, Patch: w.patch(m.Patch, m.Edits), WouldPatch: w.patch(m.WouldPatch, m.Edits), Error: w.orWithheld(w.text(m.Err), false),
			Cost: int64(m.Cost), Micros: m.Latency.Microseconds(),
		}
	})
	out.AuditAnnotations = records(e.Annotations, func(a *Annotation) AnnotationRecord {
		return AnnotationRecord{Key: a.Key, Value: w.orWithheld(a.Value, false), Error: w.orWithheld(w.text(a.Err), false)}
	})
	return out
}

// orWithheld returns a text, or withheld if the object has secrets and the text may quote the object.
// Texts about configuration cannot.
func (w writer) orWithheld(s string, configuration bool) string {
	if w.secret && !configuration && s != "" {
		return withheld
	}
	return w.redacted(s)
}

func paramRecord(p *Param) *ParamRecord {
	if p == nil {
		return nil
	}
	return &ParamRecord{Namespace: p.Namespace, Name: p.Name}
}
