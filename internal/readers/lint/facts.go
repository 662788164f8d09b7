package lint

import (
	"context"
	"runtime"
	"slices"

	"github.com/google/cel-go/common/types"
	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

// fact has the results of the analysis of an expression of an entry.
type fact struct {
	entry *snapshot.Entry
	use   use
	// name is the name of a condition or variable.
	name string
	path []any
	text string

	analysis *expression.Analysis
	// broken is the compilation error of the expression.
	broken error
	// outcomes are the outcomes for the operations of the entry, in order.
	outcomes []outcome
	// trials evaluates the expression for objects that are known in parts; nil if it does not compile, or rejects no
	// request.
	trials *expression.Trials
	// cost is an estimate for an object with lists of longList elements.
	cost uint64
}

// use is the purpose of an expression.
type use uint8

const (
	condition use = iota
	validation
	mutation
	// other is an expression whose failure rejects no request.
	other
)

// outcome is the result of an expression for every request with an operation.
type outcome struct {
	operation string
	// known is set if the expression always has the same result: value, or an error.
	known bool
	value bool
	err   error
}

// longList is the assumed length of lists for the estimate of costs.
const longList = 200

// analyses returns the facts about all expressions for which findings are wanted. It compiles the expressions
// once, on all processors: there may be thousands.
func (p *pass) analyses() []*fact {
	if p.facts != nil {
		return p.facts
	}
	p.facts = []*fact{}
	p.entries(func(e *snapshot.Entry) {
		add := func(u use, name, text string, x *expression.Expression, path ...any) {
			p.facts = append(p.facts, &fact{entry: e, use: u, name: name, text: text, path: path, analysis: expression.Analyze(x)})
		}
		conditions := e.Conditions
		if e.Policy != nil {
			conditions = e.Policy.Conditions
		}
		for i, x := range conditions.Expressions() {
			c := e.MatchConditions[i]
			add(condition, c.Name, c.Expression, x, "matchConditions", i, "expression")
		}
		if e.Policy == nil {
			return
		}
		for i := range e.Policy.Validations {
			v := &e.Policy.Validations[i]
			add(validation, "", v.Expression, v.Holds, "validations", i, "expression")
			if v.Says != nil {
				add(other, "", v.MessageExpression, v.Says, "validations", i, "messageExpression")
			}
		}
		for i, a := range e.Policy.AuditAnnotations {
			add(other, "", a.Value.Text(), a.Value, "auditAnnotations", i, "valueExpression")
		}
		for i, m := range e.Policy.Mutations {
			field := "applyConfiguration"
			if m.JSONPatch {
				field = "jsonPatch"
			}
			add(mutation, "", m.Patch.Text(), m.Patch, "mutations", i, field, "expression")
		}
	})
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range p.facts {
		group.Go(func() error { return f.find(p.ctx) })
	}
	// Check ends early when the context ends.
	_ = group.Wait()
	return p.facts
}

// find analyses the expression. When ctx ends, it leaves the remaining facts unset, and returns the error of ctx.
func (f *fact) find(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f.broken = f.analysis.Err(); f.broken != nil {
		return nil
	}
	f.cost = f.analysis.Cost(longList)
	if f.use == other {
		return nil
	}
	f.trials, _ = f.analysis.Trials()
	known := expression.Known{Namespace: f.use != condition}
	known.Group, known.Resource = only(f.entry)
	for _, operation := range operations(f.entry.Rules) {
		known.Operation = operation
		o := outcome{operation: operation}
		value, err, ok := f.analysis.Constant(ctx, &known)
		o.known, o.err, o.value = ok, err, value == types.True
		f.outcomes = append(f.outcomes, o)
	}
	return ctx.Err()
}

// operations returns the operations that rules name.
func operations(rules []registration.Rule) []string {
	var list []string
	for _, o := range []string{"CREATE", "UPDATE", "DELETE", "CONNECT"} {
		if slices.ContainsFunc(rules, func(r registration.Rule) bool {
			return slices.Contains(r.Operations, o) || slices.Contains(r.Operations, "*")
		}) {
			list = append(list, o)
		}
	}
	return list
}

// only returns the group and the resource that all rules of an entry name; nil if they name several, or match
// equivalent resources.
func only(e *snapshot.Entry) (group, resource *string) {
	if e.Equivalent && e.Entry.Policy == nil {
		// The conditions of webhooks see the requested resource, not the converted one.
		return nil, nil
	}
	if len(e.Rules) != 1 || len(e.Rules[0].APIGroups) != 1 || len(e.Rules[0].Resources) != 1 {
		return nil, nil
	}
	r := &e.Rules[0]
	if r.APIGroups[0] == "*" || !plainName(r.Resources[0]) {
		return nil, nil
	}
	return &r.APIGroups[0], &r.Resources[0]
}

// plainName reports whether an entry of a rule names one resource, without subresources.
func plainName(resource string) bool {
	for _, c := range resource {
		if c == '*' || c == '/' {
			return false
		}
	}
	return true
}

// spared returns the operations of an entry for which a condition is always false, so that its other expressions
// are not evaluated.
func (p *pass) spared(e *snapshot.Entry) map[string]bool {
	spared := map[string]bool{}
	for _, f := range p.factsOf(e) {
		if f.use != condition {
			continue
		}
		for _, o := range f.outcomes {
			if o.known && o.err == nil && !o.value {
				spared[o.operation] = true
			}
		}
	}
	return spared
}

// factsOf returns the facts about an entry.
func (p *pass) factsOf(e *snapshot.Entry) []*fact {
	if p.factsByEntry == nil {
		p.factsByEntry = map[*snapshot.Entry][]*fact{}
		for _, f := range p.analyses() {
			p.factsByEntry[f.entry] = append(p.factsByEntry[f.entry], f)
		}
	}
	return p.factsByEntry[e]
}

// at returns the place of the expression.
func (f *fact) at() place { return at(f.entry.Entry, f.path...) }

// always returns the value of the expression, if it is the same for all operations that are not in spared; same
// reports whether it is.
func (f *fact) always(spared map[string]bool) (value, same bool) {
	seen := false
	for _, o := range f.outcomes {
		switch {
		case spared[o.operation]:
			continue
		case !o.known || o.err != nil, seen && o.value != value:
			return false, false
		}
		value, seen = o.value, true
	}
	return value, seen
}

// failures returns the operations for which the expression always fails, and the error of the first one.
func (f *fact) failures(spared map[string]bool) (operations []string, err error) {
	for _, o := range f.outcomes {
		if o.err != nil && !spared[o.operation] {
			if operations = append(operations, o.operation); err == nil {
				err = o.err
			}
		}
	}
	return operations, err
}
