package trace

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Judgement is the result of one policy for a request.
type Judgement struct {
	// Known is the source of the fact that the policy was evaluated.
	Known Known
	// Policy is the policy, and FailurePolicy its failure policy.
	Policy        registration.Origin
	FailurePolicy registration.FailurePolicy
	// Rule is the index of the rule that matched. The policy is evaluated for Kind, Resource and
	// Subresource; Equivalent reports whether they differ from the request's own.
	Rule        int
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string
	Equivalent  bool
	// Evaluations has one evaluation for each param, in order.
	Evaluations []Evaluation
	// Consequences are the effects of all violations and errors, in order of precedence.
	Consequences []Consequence
}

// Evaluation is one evaluation of a policy.
type Evaluation struct {
	// Param names the param; nil if there was none.
	Param *Param
	// Bindings are the names of the bindings that lead to the evaluation, at most MaxBindings. More
	// counts the others.
	Bindings []string
	More     int
	Start    time.Time
	Latency  time.Duration
	// Cost is the cost of all expressions together, in CEL cost units.
	Cost uint64
	// Conditions reports whether the policy has match conditions. They took ConditionLatency, and
	// ConditionErrors of them failed. False is the name of the first false condition; no other
	// expression was evaluated in that case.
	Conditions       bool
	ConditionLatency time.Duration
	ConditionErrors  int
	False            string
	// Validations are the evaluated validations, in order.
	Validations []Validation
	// Annotations are the evaluated audit annotations, in order.
	Annotations []Annotation
	// Mutations are the evaluated mutations of a mutating policy, in order. Spared reports whether
	// there are none because the second round does not repeat the evaluation.
	Mutations []Mutation
	Spared    bool
	// Enforcement is the enforcement of the binding of a mutating policy. If the binding was not
	// enforced, the changes of its mutations were discarded.
	Enforcement Enforcement
	// Err is the error that prevented the evaluation of a mutating policy.
	Err error
}

// Mutated reports whether a mutation changed the object.
func (e *Evaluation) Mutated() bool {
	return slices.ContainsFunc(e.Mutations, func(m Mutation) bool { return m.Changed })
}

// Mutation is the evaluation of one mutation.
type Mutation struct {
	// Index is the index of the mutation in the policy, and Type is ApplyConfiguration or
	// JSONPatch.
	Index int
	Type  string
	// Patch is the change returned by the expression, as JSON patch operations; the fields of an
	// apply configuration have the op merge. It is nil if there is no change, or if the expression
	// failed with Err.
	Patch []byte
	// Edits are the fields and earlier values for the operations of a JSON patch, if the patch
	// changed the object.
	Edits []Edit
	// Changed reports whether the mutation changed the object.
	Changed bool
	// WouldPatch is the change that the mutation would have made if its binding were enforced
	// (S28.7).
	WouldPatch []byte
	// Err is the reason why the object was not changed.
	Err     error
	Cost    uint64
	Latency time.Duration
}

// MaxBindings is the maximum number of bindings named in an evaluation.
const MaxBindings = 16

// Param names an object.
type Param struct{ Namespace, Name string }

// String returns the object as messages name it: NAMESPACE/NAME, or NAME.
func (p *Param) String() string {
	if p.Namespace == "" {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}

// Validation is the evaluation of one validation.
type Validation struct {
	// Index is the index of the validation in the policy. Whole reports whether this element
	// represents all validations that were not evaluated; Index is then meaningless.
	Index int
	Whole bool
	// Violated reports whether the expression is false. Err is the evaluation error.
	Violated bool
	Err      error
	// Message is the message for the user; empty when the validation holds.
	Message string
	// Expression is the expression's source; empty when the validation holds.
	Expression string
	// Because is the part of the expression that makes it false, unless that is the whole
	// expression. Values are the values of its parts. Both are set for some violations that
	// rejected the request (S17.24).
	Because string
	Values  []PartValueRecord
	Cost    uint64
	Latency time.Duration
}

// Verdict names the result of the validation: holds, violated or failed.
func (v *Validation) Verdict() string {
	switch {
	case v.Violated:
		return "violated"
	case v.Err != nil:
		return "failed"
	}
	return "holds"
}

// Annotation is the evaluation of one audit annotation.
type Annotation struct {
	Key string
	// Value is empty if nothing is recorded. Err is the evaluation error.
	Value string
	Err   error
	Cost  uint64
}

// Consequence is one binding's reaction to one violation or error.
type Consequence struct {
	// Binding is empty for an error of the policy itself. Param is nil if the consequence does not
	// belong to an evaluation.
	Binding string
	Param   *Param
	// Code is a Code of package plan. Configuration reports whether the policy could not be
	// evaluated. Index is the index of the expression, and Key the key of the audit annotation, if
	// the consequence has one.
	Code          string
	Configuration bool
	Index         int
	Key           string
	// Message is the message for the user, and Reason the reason of a rejection.
	Message string
	Reason  metav1.StatusReason
	// Actions are the binding's actions that count, in order. Denied reports whether the
	// consequence rejects the request, and Forgiven whether it has no effect because the failure
	// policy is Ignore.
	Actions  []string
	Denied   bool
	Forgiven bool
	// Enforcement is the enforcement of the binding, or of the policy if there is no binding.
	// Spared reports whether the consequence would have rejected the request if enforced.
	Enforcement Enforcement
	Spared      bool
	Latency     time.Duration
}

// The actions of bindings.
const (
	ActionDeny  = "Deny"
	ActionWarn  = "Warn"
	ActionAudit = "Audit"
)

// Denied reports whether the policy rejects the request.
func (j *Judgement) Denied() bool {
	return slices.ContainsFunc(j.Consequences, func(c Consequence) bool { return c.Denied })
}

// Forgiven reports whether an error was ignored because of the failure policy.
func (j *Judgement) Forgiven() bool {
	return slices.ContainsFunc(j.Consequences, func(c Consequence) bool { return c.Forgiven })
}

// failedToJudge reports whether the first consequence that rejects the request is an evaluation
// error rather than a violation.
func (j *Judgement) failedToJudge() bool {
	i := slices.IndexFunc(j.Consequences, func(c Consequence) bool { return c.Denied })
	return i >= 0 && j.Consequences[i].Code != violatedCode
}

// violatedCode is the code of a false validation.
const violatedCode = "Violated"
