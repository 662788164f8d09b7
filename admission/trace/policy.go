package trace

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
)

// Judgement is what one policy did about a request.
type Judgement struct {
	// Known says how it is known that the policy was evaluated.
	Known Known
	// Policy is the policy, FailurePolicy its failure policy.
	Policy        registration.Origin
	FailurePolicy registration.FailurePolicy
	// Rule is the index of the rule that matched. Kind, Resource and Subresource are what
	// the policy sees the request is about; Equivalent reports whether this differs from the
	// request's own.
	Rule        int
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string
	Equivalent  bool
	// Evaluations are those that were made, one for each param, in order.
	Evaluations []Evaluation
	// Consequences are what follows of all that was found and is not as it should be, in
	// the order in which they count.
	Consequences []Consequence
}

// Evaluation is one evaluation of a policy.
type Evaluation struct {
	// Param names the object that was param; nil when there was none.
	Param *Param
	// Bindings are the names of the bindings that lead to the evaluation, MaxBindings at most.
	// More counts the others.
	Bindings []string
	More     int
	Start    time.Time
	Latency  time.Duration
	// Cost is what all expressions cost together, in the units of CEL.
	Cost uint64
	// Conditions reports whether there were match conditions, which took ConditionLatency and
	// of which ConditionErrors failed. False is the name of the one that was false: nothing
	// else was evaluated then.
	Conditions       bool
	ConditionLatency time.Duration
	ConditionErrors  int
	False            string
	// Validations are those that were evaluated, in order.
	Validations []Validation
	// Annotations are the audit annotations that were evaluated, in order.
	Annotations []Annotation
	// Mutations are those of a mutating policy that were evaluated, in order. Spared reports
	// whether there are none because the evaluation need not be repeated in the second round.
	Mutations []Mutation
	Spared    bool
	// Enforcement says how hard the binding of a mutating policy was. If it was soft, the
	// changes of its mutations were discarded.
	Enforcement Enforcement
	// Err is why a mutating policy could not be evaluated at all.
	Err error
}

// Mutated reports whether a mutation changed the object.
func (e *Evaluation) Mutated() bool {
	return slices.ContainsFunc(e.Mutations, func(m Mutation) bool { return m.Changed })
}

// Mutation is one mutation that was evaluated.
type Mutation struct {
	// Index is the place of the mutation in the policy, Type is ApplyConfiguration or
	// JSONPatch.
	Index int
	Type  string
	// Patch is the change that the expression gave, as the operations of a JSON patch; those of
	// an apply configuration have the op merge. It is nil when there is nothing to change, or
	// when the expression failed with Err.
	Patch []byte
	// Edits are what the operations of a JSON patch were about, if it changed the object.
	Edits []Edit
	// Changed reports whether the mutation changed the object.
	Changed bool
	// WouldPatch is the change that a mutation would have made if its binding were hard
	// (S28.7).
	WouldPatch []byte
	// Err is why nothing was changed.
	Err     error
	Cost    uint64
	Latency time.Duration
}

// MaxBindings is how many bindings of an evaluation are named.
const MaxBindings = 16

// Param names an object.
type Param struct{ Namespace, Name string }

// String names the object as messages do.
func (p *Param) String() string {
	if p.Namespace == "" {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}

// Validation is one validation that was evaluated.
type Validation struct {
	// Index is the place of the validation in the policy. Whole reports whether this element
	// stands for all validations that were not evaluated; Index then means nothing.
	Index int
	Whole bool
	// Violated reports whether the expression is false. Err is why it could not be evaluated.
	Violated bool
	Err      error
	// Message is the message for the user; empty when the validation holds.
	Message string
	// Expression is the expression's source; empty when the validation holds.
	Expression string
	// Because is the part of the expression that makes it false, if that is less than all of it,
	// and Values are the values of its parts. Both are there for some violations for which the
	// request was rejected (S17.24).
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

// Annotation is one audit annotation that was evaluated.
type Annotation struct {
	Key string
	// Value is empty when nothing is recorded. Err is why the value could not be evaluated.
	Value string
	Err   error
	Cost  uint64
}

// Consequence is what one binding made of one thing that is not as it should be.
type Consequence struct {
	// Binding is empty if the policy itself is wrong. Param is nil if the consequence is not
	// about an evaluation.
	Binding string
	Param   *Param
	// Code is a Code of package plan. Configuration reports whether the policy could not be
	// evaluated. Index is the place of the expression, and Key the key of the audit annotation,
	// if the consequence is about one.
	Code          string
	Configuration bool
	Index         int
	Key           string
	// Message is the message for the user, and Reason the reason of a rejection.
	Message string
	Reason  metav1.StatusReason
	// Actions are the binding's actions that count, in order. Denied reports whether the
	// consequence rejects the request, and Forgiven whether it has no effect because the
	// failure policy is Ignore.
	Actions  []string
	Denied   bool
	Forgiven bool
	// Enforcement says how hard the binding was, or the policy if there is no binding. Spared
	// reports whether the request would have been rejected if the binding or policy were hard.
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

// failedToJudge reports whether an evaluation error, and not a violation, is the first
// thing that rejects the request.
func (j *Judgement) failedToJudge() bool {
	i := slices.IndexFunc(j.Consequences, func(c Consequence) bool { return c.Denied })
	return i >= 0 && j.Consequences[i].Code != violatedCode
}

// violatedCode is the code of a validation that is false.
const violatedCode = "Violated"
