package policy

import (
	"fmt"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// Cost is the cost so far of one expression of a policy.
type Cost struct {
	// Field is the path of the expression in the policy.
	Field string
	// Text is the expression, and Scope the scope of its variables.
	Text  string
	Scope expression.Scope
	// Most is the highest cost of one evaluation since the policy was written or this process
	// began, in CEL cost units, including the variables that it evaluated first; 0 if it was not
	// evaluated. Limit is the limit of one evaluation.
	Most, Limit uint64
}

// spent has the highest cost of each expression, in the order of the fields.
type spent struct {
	validations, messages, annotations, mutations []expression.Most
}

func newSpent(p *registration.Policy) spent {
	return spent{
		validations: make([]expression.Most, len(p.Validations)), messages: make([]expression.Most, len(p.Validations)),
		annotations: make([]expression.Most, len(p.AuditAnnotations)), mutations: make([]expression.Most, len(p.Mutations)),
	}
}

// Costs returns the costs of the expressions so far, in the order of the fields. The cost of an
// expression includes the variables that it evaluated first.
func (p *Policy) Costs() []Cost {
	var list []Cost
	add := func(field string, e *expression.Expression, most *expression.Most) {
		list = append(list, Cost{field, e.Text(), e.Scope(), most.Load(), expression.PerExpression})
	}
	p.conditions(add)
	p.otherExpressions(add)
	return list
}

// visit is called with an expression of a policy, the path of its field, and its highest cost.
type visit func(field string, e *expression.Expression, most *expression.Most)

// conditions calls f with the match conditions, in order.
func (p *Policy) conditions(f visit) {
	p.Conditions.Costs(func(i int, e *expression.Expression, most *expression.Most) {
		f(fmt.Sprintf("spec.matchConditions[%d].expression", i), e, most)
	})
}

// otherExpressions calls f with all expressions except the match conditions and the variables, in the order
// of the fields.
func (p *Policy) otherExpressions(f visit) {
	for i := range p.Validations {
		v := &p.Validations[i]
		f(fmt.Sprintf("spec.validations[%d].expression", i), v.Holds, &p.spent.validations[i])
		if v.Says != nil {
			f(fmt.Sprintf("spec.validations[%d].messageExpression", i), v.Says, &p.spent.messages[i])
		}
	}
	for i := range p.AuditAnnotations {
		f(fmt.Sprintf("spec.auditAnnotations[%d].valueExpression", i), p.AuditAnnotations[i].Value, &p.spent.annotations[i])
	}
	for i := range p.Mutations {
		f(p.Mutations[i].field(i), p.Mutations[i].Patch, &p.spent.mutations[i])
	}
}

// field returns the path of the mutation's expression.
func (m *Mutation) field(i int) string {
	if m.JSONPatch {
		return fmt.Sprintf("spec.mutations[%d].jsonPatch.expression", i)
	}
	return fmt.Sprintf("spec.mutations[%d].applyConfiguration.expression", i)
}
