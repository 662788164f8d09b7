package trace

import (
	"slices"

	"github.com/gatehouse-dev/gatehouse/internal/credentials"
)

// JudgementRecord is what one admission policy did about a request.
type JudgementRecord struct {
	// Known is written, derived or unknown; it is absent if a server of Gatehouse made the trace.
	Known Known `json:"known,omitempty"`
	// Policy is the policy, FailurePolicy its failure policy.
	Policy        EntryRecord `json:"policy"`
	FailurePolicy string      `json:"failurePolicy"`
	// Rule is the index of the rule that matched.
	Rule int `json:"rule"`
	// Kind, Resource and Subresource are what the policy sees the request is about.
	// Equivalent reports whether this differs from the request's own.
	Kind        KindRecord     `json:"kind"`
	Resource    ResourceRecord `json:"resource"`
	Subresource string         `json:"subresource,omitempty"`
	Equivalent  bool           `json:"equivalent,omitempty"`
	// Evaluations are those that were made, one for each param.
	Evaluations []EvaluationRecord `json:"evaluations,omitempty"`
	// Consequences are what follows of all that was found and is not as it should be, in
	// the order in which they count, 64 at most. MoreConsequences counts the others.
	Consequences     []ConsequenceRecord `json:"consequences,omitempty"`
	MoreConsequences int                 `json:"moreConsequences,omitempty"`
}

// EvaluationRecord is one evaluation of a policy.
type EvaluationRecord struct {
	// Param is the object that was param.
	Param *ParamRecord `json:"param,omitempty"`
	// Bindings are the names of bindings that lead to the evaluation, 16 at most.
	// MoreBindings counts the others.
	Bindings     []string `json:"bindings,omitempty"`
	MoreBindings int      `json:"moreBindings,omitempty"`
	// Start is when the evaluation began, Micros how long it took.
	Start  Time  `json:"start"`
	Micros int64 `json:"micros"`
	// Cost is what all expressions cost together, in the units of CEL.
	Cost int64 `json:"cost"`
	// FalseCondition is the name of the match condition that was false: nothing else was
	// evaluated then.
	FalseCondition string `json:"falseCondition,omitempty"`
	// Validations are those that were evaluated.
	Validations []ValidationRecord `json:"validations,omitempty"`
	// AuditAnnotations are those that were evaluated.
	AuditAnnotations []AnnotationRecord `json:"auditAnnotations,omitempty"`
	// Mutations are those of a mutating policy that were evaluated. Spared reports whether there
	// are none because the evaluation was not to be repeated.
	Mutations []MutationRecord `json:"mutations,omitempty"`
	Spared    bool             `json:"spared,omitempty"`
	// Error is why a mutating policy could not be evaluated at all.
	Error string `json:"error,omitempty"`
	// Enforcement is present when the binding of a mutating policy is soft: its mutations change
	// nothing.
	Enforcement *Enforcement `json:"enforcement,omitempty"`
}

// MutationRecord is one mutation that was evaluated.
type MutationRecord struct {
	// Index is the place of the mutation in the policy, Type is ApplyConfiguration or
	// JSONPatch.
	Index int    `json:"index"`
	Type  string `json:"type"`
	// Mutated reports whether the mutation changed the object. Patch is what it said.
	Mutated bool             `json:"mutated,omitempty"`
	Patch   []PatchOperation `json:"patch,omitempty"`
	// WouldPatch is what the mutation would have changed if the binding were hard.
	WouldPatch []PatchOperation `json:"wouldPatch,omitempty"`
	// Error is why nothing was changed.
	Error string `json:"error,omitempty"`
	// Cost is what the expression cost, in the units of CEL; Micros is how long it took to
	// evaluate it and to change the object.
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

// ValidationRecord is one validation that was evaluated.
type ValidationRecord struct {
	// Index is the place of the validation in the policy; it is absent for what stands for
	// all validations together.
	Index *int `json:"index,omitempty"`
	// Verdict is holds, violated or failed.
	Verdict string `json:"verdict"`
	// Message is what the user gets, Expression what the validation says; both are
	// absent when it holds.
	Message    string `json:"message,omitempty"`
	Expression string `json:"expression,omitempty"`
	// Because is the part of the expression that makes it false, if that is less than all of it.
	// Values are the values of its parts, if they come from the objects of the request alone. Both
	// are there for violations for which the request was rejected, of several requests a second,
	// and absent when the record is redacted.
	Because string            `json:"because,omitempty"`
	Values  []PartValueRecord `json:"values,omitempty"`
	// Cost is what the expression cost, in the units of CEL; Nanos is how many nanoseconds
	// it took.
	Cost  int64 `json:"cost"`
	Nanos int64 `json:"nanos"`
}

// PartValueRecord is the value of a part of an expression.
type PartValueRecord struct {
	// Expression is the part.
	Expression string `json:"expression"`
	// Value is its value in JSON; the end of a long one is cut off.
	Value string `json:"value"`
}

// AnnotationRecord is one audit annotation that was evaluated.
type AnnotationRecord struct {
	// Key is the key in the policy. Value is absent when nothing was recorded.
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
	// Error is why there is no value.
	Error string `json:"error,omitempty"`
}

// ConsequenceRecord is what one binding made of one thing that is not as it should be.
type ConsequenceRecord struct {
	// Binding is absent for what is wrong with the policy itself, Param if it is not about
	// an evaluation with one.
	Binding string       `json:"binding,omitempty"`
	Param   *ParamRecord `json:"param,omitempty"`
	// Code names what is wrong, Message is what the user gets, Reason the reason of a
	// rejection.
	Code    string `json:"code"`
	Message string `json:"message"`
	Reason  string `json:"reason,omitempty"`
	// Index is the place of the validation or mutation in the policy, and Annotation the key of the
	// audit annotation, that the consequence is about; they are absent if it is about none.
	Index      *int   `json:"index,omitempty"`
	Annotation string `json:"annotation,omitempty"`
	// Actions are those of the binding that count, in order.
	Actions []string `json:"actions,omitempty"`
	// Denied reports whether the request is rejected for it, Ignored whether nothing follows,
	// because the failure policy is Ignore.
	Denied  bool `json:"denied,omitempty"`
	Ignored bool `json:"ignored,omitempty"`
	// Enforcement is present when the binding, or the policy, is soft, and Spared reports whether
	// the request would have been rejected if it were hard.
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
			Binding: c.Binding, Param: paramRecord(c.Param), Code: c.Code, Message: w.said(c.Message, c.Configuration), Reason: string(c.Reason),
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
		one := ValidationRecord{Verdict: v.Verdict(), Message: w.said(v.Message, false), Expression: w.cut(v.Expression), Cost: int64(v.Cost), Nanos: v.Latency.Nanoseconds()}
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
	out.Spared, out.Error = e.Spared, w.said(w.text(e.Err), false)
	out.Mutations = records(e.Mutations, func(m *Mutation) MutationRecord {
		return MutationRecord{
			Index: m.Index, Type: m.Type, Mutated: m.Changed, Patch: w.patch(m.Patch, m.Edits), WouldPatch: w.patch(m.WouldPatch, m.Edits), Error: w.said(w.text(m.Err), false),
			Cost: int64(m.Cost), Micros: m.Latency.Microseconds(),
		}
	})
	out.AuditAnnotations = records(e.Annotations, func(a *Annotation) AnnotationRecord {
		return AnnotationRecord{Key: a.Key, Value: w.said(a.Value, false), Error: w.said(w.text(a.Err), false)}
	})
	return out
}

// said returns a text, or withheld if the object has secrets and the text may quote the object.
// Texts about configuration cannot.
func (w writer) said(s string, configuration bool) string {
	if w.secret && !configuration && s != "" {
		return withheld
	}
	return w.shown(s)
}

func paramRecord(p *Param) *ParamRecord {
	if p == nil {
		return nil
	}
	return &ParamRecord{Namespace: p.Namespace, Name: p.Name}
}
