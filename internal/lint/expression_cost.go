package lint

import (
	"fmt"
	"math"

	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

var expressionCost = &Rule{
	ID: "expression-cost", Level: Warning,
	Title: "Expressions may cost more than they are allowed to",
	Why: "The API server ends an evaluation that costs too much, and the failure policy decides. An expression with loops inside loops passes its tests on small " +
		"objects and fails on the first large one. The estimate is for an object as large as an API server takes it: lists of 200 elements, whose elements have " +
		"lists of 5, params with lists of 20, and texts of 100 characters.",
	Fix: "Loop once: filter first, or compare with a map. Put what is used more than once into a variable.",
	Fails: policy(`validations:
- expression: "object.spec.containers.all(c, c.env.all(e, object.spec.volumes.exists(v, v.name == e.name)))"
`),
	Passes: policy(`validations:
- expression: "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))"
`),
	check: func(p *pass) {
		// sums has the costs of the expressions that share a budget.
		type budget struct {
			entry      *snapshot.Entry
			conditions bool
		}
		sums := map[budget]uint64{}
		for _, f := range p.analyses() {
			b := budget{f.entry, f.use == condition}
			if sum := sums[b] + f.cost; sum >= f.cost {
				sums[b] = sum
			} else {
				sums[b] = math.MaxUint64
			}
			if f.cost >= expression.PerExpression {
				p.findsCause(p.rule.Level, f.at(), f.entry.String(), "the expression at "+pathText(f.at().path), "an expression of %s costs up to %s for an object with lists of %d elements, and the limit is %d", f.entry, costText(f.cost), longList, uint64(expression.PerExpression))
				// The finding is added once for each budget.
				sums[b] = 0
			}
		}
		for _, f := range p.analyses() {
			b := budget{f.entry, f.use == condition}
			limit, what := uint64(expression.RunBudget), "expressions"
			if b.conditions {
				limit, what = expression.ConditionsBudget, "match conditions"
			}
			if sums[b] >= limit {
				p.finds(f.at(), "the %s of %s cost up to %s together for an object with lists of %d elements, and the limit is %d", what, f.entry, costText(sums[b]), longList, limit)
			}
			delete(sums, b)
		}
	},
}

func costText(cost uint64) string {
	if cost == math.MaxUint64 {
		return "any amount"
	}
	return fmt.Sprint(cost)
}
