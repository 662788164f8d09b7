package lint

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/snapshot"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
)

var expressionInvalid = &Rule{
	ID: "expression-invalid", Level: Error,
	check: func(p *pass) {
		for _, f := range p.analyses() {
			if f.broken != nil {
				p.finds(f.at(), "the expression of %s does not compile: %s", f.entry, oneLine(f.broken.Error()))
			}
		}
		for o, w := range p.Written {
			for _, i := range w.Invalid {
				if strings.Contains(i.Field, "xpression") {
					p.finds(place{o, parsePath(i.Field)}, "the expression does not compile: %s", oneLine(i.Message))
				}
			}
		}
	},
}

var expressionCost = &Rule{
	ID: "expression-cost", Level: Warning,
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
				level := p.rule.Level
				if strings.Contains(f.text, "params") || f.use != condition && !p.rejects(f.entry) && f.entry.Bindings != nil {
					// The author of the params knows their size, and an error that rejects nothing is a warning at most.
					level = Note
				}
				p.findsCause(level, f.at(), f.entry.String(), "the expression at "+pathText(f.at().path), "an expression of %s costs up to %s for an object with lists of %d elements, and the limit is %d", f.entry, costText(f.cost), longList, uint64(expression.PerExpression))
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

var expressionTypes = &Rule{
	ID: "expression-types", Level: Error,
	Reads: []Part{Kinds, Definitions},
	check: func(p *pass) {
		if p.Schemas == nil {
			p.misses("the schemas of kinds: %s", p.rule.ID)
			return
		}
		for _, f := range p.analyses() {
			if f.broken == nil {
				p.findsMistakes(f)
				p.findsImpossible(f)
			}
		}
		p.entries(func(e *snapshot.Entry) {
			if e.Policy == nil {
				return
			}
			for i, v := range e.Entry.Policy.Variables {
				one := &fact{entry: e, use: other, text: v.Expression, path: []any{"variables", i, "expression"}}
				for _, f := range p.factsOf(e) {
					if f.trials != nil {
						one.trials = f.trials.Named(v.Name)
					}
				}
				p.findsMistakes(one)
				p.findsImpossible(one)
			}
		})
	},
}

// findsMistakes adds a finding for the type errors of an expression.
func (p *pass) findsMistakes(f *fact) {
	found := p.mistakes(f)
	if len(found) == 0 {
		return
	}
	var texts, said, kinds []string
	of := map[string][]string{}
	for _, m := range found {
		text := fmt.Sprintf("%s at %d:%d of the expression", m.Text, m.At.Line, m.At.Column)
		if of[text] == nil {
			texts = append(texts, text)
		}
		if kind := kindText(m.Kind); !slices.Contains(of[text], kind) {
			of[text] = append(of[text], kind)
		}
		if m.Always && !slices.Contains(kinds, m.Kind.Kind) {
			kinds = append(kinds, m.Kind.Kind)
		}
	}
	for i, text := range texts {
		if i == 0 || !slices.Equal(of[text], of[texts[i-1]]) {
			text = few(of[text]) + ": " + text
		}
		said = append(said, text)
	}
	level, follows := Warning, ""
	if len(kinds) > 0 && f.use != other && p.rejects(f.entry) {
		level, follows = Error, "; each request about a "+few(kinds)+" is rejected"
	}
	p.findsAs(level, f.at(), "the expression does not fit the types: %s%s", strings.Join(said, "; "), follows)
}

var variableNull = &Rule{
	ID: "variable-null", Level: Error,
	Reads: []Part{Kinds},
	check: eachEntry(func(p *pass, e *snapshot.Entry) {
		if e.Policy != nil {
			p.nullNamespace(e)
			p.nullParams(e)
		}
		p.nullObjects(e)
	}),
}

// nullObjects finds expressions that read oldObject of a new object, or object of a deleted one, under a condition. Rules
// condition-fails and validation-constant report the expressions that always do.
func (p *pass) nullObjects(e *snapshot.Entry) {
	for _, f := range p.factsOf(e) {
		if f.use == other || f.trials == nil || !strings.Contains(f.text, "bject") {
			continue
		}
		for _, o := range f.outcomes {
			if o.known || o.operation != "CREATE" && o.operation != "DELETE" {
				continue
			}
			s := &expression.Setting{Known: expression.Known{Operation: o.operation, Namespace: f.use != condition}}
			trial, open, fails := p.fails(f, s)
			if !fails {
				continue
			}
			level, which, _ := p.remaining(s, nil, open)
			name := "oldObject, which is null"
			if o.operation == "DELETE" {
				name = "object, which is null"
			}
			p.findsAs(level, f.at(), "an expression of %s reads %s for every %s%s: %s", e, name, o.operation, conditional(trial.If), p.failure(e, "each such request"+which))
			break
		}
	}
}

// nullNamespace finds expressions that read the namespace object for cluster-scoped objects.
func (p *pass) nullNamespace(e *snapshot.Entry) {
	_, others := p.subjects(e)
	for _, f := range p.factsOf(e) {
		reach, ok := expression.NewReach(f.text)
		if !ok || f.use == condition || f.use == other || !strings.Contains(f.text, "namespaceObject") {
			continue
		}
		var failing []string
		for i := range p.Resources {
			r := &p.Resources[i]
			if r.Namespaced || others && r.GroupVersionResource.GroupResource() != (schema.GroupResource{Resource: "namespaces"}) || !isWritten(e, r) {
				continue
			}
			if reach.Uses(p.ctx, "namespaceObject", r.Kind).Always && !slices.Contains(failing, r.Resource) {
				failing = append(failing, r.Resource)
			}
		}
		if len(failing) > 0 {
			level, follows := Warning, "the expression fails"
			if p.rejects(e) {
				level, follows = Error, "each such request is rejected"
			}
			p.findsAs(level, f.at(), "an expression of %s reads namespaceObject, which is null for %s: %s", e, few(failing), follows)
		}
	}
}

// isWritten reports whether an entry matches writes of a cluster-scoped resource.
func isWritten(e *snapshot.Entry, r *Resource) bool {
	return slices.ContainsFunc([]admission.Operation{admission.Create, admission.Update, admission.Delete}, func(o admission.Operation) bool {
		return matchesAny(e.Rules, &plan.Request{Operation: o, Resource: r.GroupVersionResource, Kind: r.Kind})
	})
}

// nullParams finds the bindings that give no params to a policy that reads them (S15.2).
func (p *pass) nullParams(e *snapshot.Entry) {
	if e.Entry.Policy.ParamKind == nil || e.Bindings == nil {
		return
	}
	reads, always := false, false
	list, _ := p.subjects(e)
	for _, f := range p.factsOf(e) {
		reach, ok := expression.NewReach(f.text)
		if !ok {
			continue
		}
		// A policy that tests whether there are params works without them.
		if reach.Uses(p.ctx, "params", schema.GroupVersionKind{}).Whole {
			return
		}
		reads = reads || strings.Contains(f.text, "params.")
		always = always || f.use != other && len(list) > 0 && !slices.ContainsFunc(list, func(s subject) bool {
			return !reach.Uses(p.ctx, "params", s.kind).Always
		})
	}
	for i := range e.Bindings.Groups {
		for _, b := range e.Bindings.Groups[i].Bindings {
			switch {
			case b.Binding.ParamRef != nil || !p.isWanted(b):
			case always && failsClosed(e) && denies(b):
				p.finds(at(b.Entry), "the binding %s has no paramRef, so that params is null, and the policy %s reads params: each request that it is about is rejected", b, e)
			case reads:
				p.findsAs(Warning, at(b.Entry), "the binding %s has no paramRef, so that params is null, and the policy %s reads params: an expression that does fails", b, e)
			}
		}
	}
}
