package suite

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	celparser "github.com/google/cel-go/parser"

	"github.com/gatehouse-dev/gatehouse/admission/plan"
	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/suite/mutants"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// The kinds of covered items.
const (
	ofRules       = "rules"
	ofSelectors   = "selectors"
	ofConditions  = "conditions"
	ofExpressions = "expressions"
	ofLists       = "lists"
	ofBoundaries  = "boundaries"
	ofBindings    = "bindings"
)

// CoverageKinds lists the kinds of covered items.
var CoverageKinds = []string{ofRules, ofSelectors, ofConditions, ofExpressions, ofLists, ofBoundaries, ofBindings}

// Coverage records which parts of the policies and webhooks in the test environments the tests have exercised. Its JSON
// is stable: fields are only ever added.
type Coverage struct {
	// Items are in the order of the files and lines.
	Items []*Covered `json:"items"`

	mu      sync.Mutex
	byField map[string]*Covered
	// byText has expressions by their owner and text, and bound the bindings of policies.
	byText, bound map[string][]*Covered
	known         map[string]bool
}

// Covered is one expression, rule, selector or binding.
type Covered struct {
	// Kind is one of CoverageKinds, Owner the policy or webhook configuration, Field the path in it.
	Kind  string `json:"kind"`
	Owner string `json:"owner"`
	Field string `json:"field"`
	File  string `json:"file"`
	Line  int    `json:"line"`
	Text  string `json:"text,omitempty"`
	// State is never, true, false, both, error or reached.
	State string `json:"state"`
	// Errors is the number of evaluations with an error.
	Errors int `json:"errors,omitempty"`
	// Branches are the decisions of an expression, each with two outcomes.
	Branches []*Branch `json:"branches,omitempty"`
	// Cases are all other observations, each with one outcome.
	Cases []*Case `json:"cases,omitempty"`

	hits, yes, no int
	// watched has functions that receive the values of the parts of an expression, by the ids of the parts, which are
	// the same each time the text is compiled. It is nil until the first evaluation of the expression.
	watched map[int64][]func(ref.Val)
	// column is the column of the field, from 1.
	column int
}

// Case is an observation that a test can make: an operation on a resource, a selector that does not match, the length
// of a list, a value at a boundary.
type Case struct {
	// Kind is one of CoverageKinds.
	Kind  string `json:"kind"`
	Text  string `json:"text"`
	Line  int    `json:"line,omitempty"`
	Count int    `json:"count"`

	operation, resource string
}

// Branch is a deciding part of an expression: an operand of a logical operator, the condition of a conditional, or the
// predicate of a macro.
type Branch struct {
	Text  string `json:"text"`
	True  int    `json:"true"`
	False int    `json:"false"`
	Line  int    `json:"line,omitempty"`

	begin int
}

// outcomes calls way for each possible outcome of the item, with its kind.
func (c *Covered) outcomes(way func(kind string, taken bool)) {
	for _, b := range c.Branches {
		way(c.Kind, b.True > 0)
		way(c.Kind, b.False > 0)
	}
	for _, k := range c.Cases {
		way(k.Kind, k.Count > 0)
	}
	if len(c.Branches) == 0 && c.Kind != ofRules && c.Kind != ofSelectors {
		way(c.Kind, c.hits > 0)
	}
}

// Ways returns the number of outcomes that occurred, and the number of all outcomes.
func (c *Covered) Ways() (taken, all int) {
	c.outcomes(func(_ string, was bool) {
		all++
		if was {
			taken++
		}
	})
	return taken, all
}

func newCoverage() *Coverage {
	return &Coverage{byField: map[string]*Covered{}, byText: map[string][]*Covered{}, bound: map[string][]*Covered{}, known: map[string]bool{}}
}

// declaring adds the coverable items of an object.
type declaring struct {
	*Coverage
	object *manifests.Object
	owner  string
}

// declare adds the coverable items of the objects of a test environment.
func (c *Coverage) declare(objects []*manifests.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range objects {
		group, _, _ := strings.Cut(at(o.Content, "apiVersion"), "/")
		if group != registration.GroupName {
			continue
		}
		kind, name := at(o.Content, "kind"), at(o.Content, "metadata", "name")
		key := fmt.Sprintf("%s %s:%d", kind, o.File, o.Line)
		if c.known[key] {
			continue
		}
		c.known[key] = true
		d := &declaring{c, o, kind + " " + name}
		switch {
		case strings.HasSuffix(kind, "PolicyBinding"):
			item := d.add(ofBindings, "spec.policyName", at(o.Content, "spec", "policyName"))
			policy := strings.TrimSuffix(kind, "Binding") + " " + item.Text
			c.bound[policy] = append(c.bound[policy], item)
			d.constraints("spec.matchResources", walk(o.Content, "spec", "matchResources"))
		case strings.HasSuffix(kind, "AdmissionPolicy"):
			d.constraints("spec.matchConstraints", walk(o.Content, "spec", "matchConstraints"))
			d.texts(ofConditions, "spec.matchConditions", walk(o.Content, "spec", "matchConditions"), "expression")
			d.texts(ofExpressions, "spec.variables", walk(o.Content, "spec", "variables"), "expression")
			d.texts(ofExpressions, "spec.validations", walk(o.Content, "spec", "validations"), "expression")
			d.texts(ofExpressions, "spec.validations", walk(o.Content, "spec", "validations"), "messageExpression")
			d.texts(ofExpressions, "spec.auditAnnotations", walk(o.Content, "spec", "auditAnnotations"), "valueExpression")
			d.texts(ofExpressions, "spec.mutations", walk(o.Content, "spec", "mutations"), "applyConfiguration.expression")
			d.texts(ofExpressions, "spec.mutations", walk(o.Content, "spec", "mutations"), "jsonPatch.expression")
		case strings.HasSuffix(kind, "WebhookConfiguration"):
			list, _ := o.Content["webhooks"].([]any)
			for i, hook := range list {
				path := fmt.Sprintf("webhooks[%d]", i)
				d.constraints(path, hook)
				d.texts(ofConditions, path+".matchConditions", walk(hook, "matchConditions"), "expression")
			}
		}
	}
}

func (d *declaring) add(kind, field, text string) *Covered {
	line, column := d.object.Place(field)
	item := &Covered{Kind: kind, Owner: d.owner, Field: field, File: d.object.File, Line: line, column: column, Text: text, State: "never"}
	d.Items = append(d.Items, item)
	d.byField[d.owner+"\x00"+field] = item
	return item
}

// texts adds the expressions of the elements of a list.
func (d *declaring) texts(kind, path string, list any, key string) {
	elements, _ := list.([]any)
	for i, e := range elements {
		if text, _ := walk(e, strings.Split(key, ".")...).(string); text != "" {
			item := d.add(kind, fmt.Sprintf("%s[%d].%s", path, i, key), text)
			key := d.owner + "\x00" + text
			d.byText[key] = append(d.byText[key], item)
		}
	}
}

// constraints adds rules, each with its operations on its resources, and selectors.
func (d *declaring) constraints(path string, in any) {
	for _, name := range []string{"rules", "resourceRules", "excludeResourceRules"} {
		rules, _ := walk(in, name).([]any)
		for i, rule := range rules {
			item := d.add(ofRules, fmt.Sprintf("%s.%s[%d]", path, name, i), "")
			operations, _ := walk(rule, "operations").([]any)
			resources, _ := walk(rule, "resources").([]any)
			for _, o := range operations {
				for _, r := range resources {
					k := item.addCase(ofRules, fmt.Sprintf("%v %v", o, r), item.Line)
					k.operation, k.resource = fmt.Sprint(o), fmt.Sprint(r)
				}
			}
		}
	}
	for _, name := range []string{"namespaceSelector", "objectSelector"} {
		if selector, _ := walk(in, name).(map[string]any); len(selector) > 0 {
			item := d.add(ofSelectors, path+"."+name, "")
			item.addCase(ofSelectors, selects, item.Line)
			item.addCase(ofSelectors, selectsNot, item.Line)
		}
	}
}

// The cases of a selector.
const (
	selects    = "it selects"
	selectsNot = "it does not select"
)

// addCase returns the case of a kind and text.
func (c *Covered) addCase(kind, text string, line int) *Case {
	for _, k := range c.Cases {
		if k.Kind == kind && k.Text == text {
			return k
		}
	}
	c.Cases = append(c.Cases, &Case{Kind: kind, Text: text, Line: line})
	return c.Cases[len(c.Cases)-1]
}

// walk follows fields of mappings.
func walk(v any, fields ...string) any {
	for _, f := range fields {
		m, _ := v.(map[string]any)
		v = m[f]
	}
	return v
}

// saw counts an evaluation.
func (c *Coverage) saw(entry *registration.Entry, e *expression.Expression, seen *expression.Seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner := entry.Source.Descriptor().Kind + " " + entry.Configuration
	for _, item := range c.byText[owner+"\x00"+e.Text()] {
		item.hits++
		switch {
		case seen.Err != nil:
			item.Errors++
		case seen.Value == types.True:
			item.yes++
		case seen.Value == types.False:
			item.no++
		}
		if seen.AST == nil {
			continue
		}
		if item.watched == nil {
			item.watch(seen.AST)
		}
		for _, part := range seen.Parts {
			for _, count := range item.watched[part.ID] {
				count(part.Value)
			}
		}
	}
}

// watch finds the decisions, lists and boundaries of an expression, and registers their counters.
func (c *Covered) watch(a *ast.AST) {
	c.watched = map[int64][]func(ref.Val){}
	on := func(e ast.Expr, count func(ref.Val)) { c.watched[e.ID()] = append(c.watched[e.ID()], count) }
	ast.PreOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			c.list(a, e.AsComprehension().IterRange(), on)
		case ast.CallKind:
			switch call := e.AsCall(); call.FunctionName() {
			case operators.LogicalAnd, operators.LogicalOr:
				for _, arg := range call.Args() {
					c.decision(a, arg, on)
				}
			case operators.Conditional:
				c.decision(a, call.Args()[0], on)
			case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
				c.boundary(a, e, on)
			}
		}
	}))
	if a.GetType(a.Expr().ID()) == types.BoolType {
		c.decision(a, a.Expr(), on)
	}
}

// decision counts the values of a deciding part. For a logical operator, its operands are counted instead.
func (c *Covered) decision(a *ast.AST, e ast.Expr, on func(ast.Expr, func(ref.Val))) {
	if e.Kind() == ast.CallKind && (e.AsCall().FunctionName() == operators.LogicalAnd || e.AsCall().FunctionName() == operators.LogicalOr) ||
		e.Kind() == ast.LiteralKind || e.Kind() == ast.IdentKind && strings.HasPrefix(e.AsIdent(), "@") || c.watched[e.ID()] != nil {
		return
	}
	text, line, begin := c.textOf(a, e)
	if text == "" {
		return
	}
	b := &Branch{Text: text, Line: line, begin: begin}
	c.Branches = append(c.Branches, b)
	on(e, func(v ref.Val) {
		switch v {
		case types.True:
			b.True++
		case types.False:
			b.False++
		}
	})
}

// list counts the lengths of a list that a macro iterates over.
func (c *Covered) list(a *ast.AST, e ast.Expr, on func(ast.Expr, func(ref.Val))) {
	text, line, _ := c.textOf(a, e)
	if text == "" || e.Kind() == ast.ListKind || e.Kind() == ast.MapKind {
		return
	}
	var cases []*Case
	for _, length := range []string{"no element", "one element", "several elements"} {
		cases = append(cases, c.addCase(ofLists, text+" has "+length, line))
	}
	on(e, func(v ref.Val) {
		if s, ok := v.(traits.Sizer); ok {
			if n, ok := s.Size().(types.Int); ok {
				cases[min(n, 2)].Count++
			}
		}
	})
}

// boundary counts evaluations in which the operands of a comparison are at its boundary.
func (c *Covered) boundary(a *ast.AST, e ast.Expr, on func(ast.Expr, func(ref.Val))) {
	args := e.AsCall().Args()
	if operand, values := mutants.Boundary(e); operand != nil {
		text, line, _ := c.textOf(a, operand)
		for _, value := range values {
			k := c.addCase(ofBoundaries, fmt.Sprintf("%s is %d", text, value), line)
			on(operand, func(v ref.Val) {
				if v.Equal(types.Int(value)) == types.True {
					k.Count++
				}
			})
		}
		return
	}
	left, line, _ := c.textOf(a, args[0])
	right, _, _ := c.textOf(a, args[1])
	k := c.addCase(ofBoundaries, left+" equals "+right, line)
	var first, second ref.Val
	for i, last := range []*ref.Val{&first, &second} {
		if args[i].Kind() == ast.LiteralKind {
			*last = args[i].AsLiteral()
		}
	}
	constant := second
	on(args[0], func(v ref.Val) {
		if first = v; constant != nil && v.Equal(constant) == types.True {
			k.Count++
		}
	})
	on(args[1], func(v ref.Val) {
		// The left operand was evaluated before.
		if first != nil && v.Equal(first) == types.True {
			k.Count++
		}
	})
}

// textOf returns a part of the expression as written, with its line and its offset in the text; empty for parts generated
// by the compiler.
func (c *Covered) textOf(a *ast.AST, e ast.Expr) (text string, line, begin int) {
	text, err := celparser.Unparse(e, a.SourceInfo())
	if err != nil || strings.Contains(text, "@") && e.Kind() == ast.IdentKind {
		return "", 0, 0
	}
	line, begin = c.Line, byteAt(c.Text, mutants.Begin(a.SourceInfo(), e))
	if begin >= 0 {
		line += strings.Count(c.Text[:begin], "\n")
	}
	return oneLine(text), line, begin
}

// byteAt returns the offset of a character of a text; -1 if the text is shorter.
func byteAt(text string, character int) int {
	for i := range text {
		if character == 0 {
			return i
		}
		character--
	}
	return -1
}

// took counts the rules, selectors and bindings in the trace of an outcome.
func (c *Coverage) took(o *Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	record := o.trace.Verdicts(false)
	for j := range record.Judged() {
		owner := j.Policy.Kind + " " + j.Policy.Configuration
		c.rule(owner, fmt.Sprintf("spec.matchConstraints.resourceRules[%d]", j.Rule), o.plan.Operation, j.Resource.Resource, j.Subresource)
		c.selected(owner, "spec.matchConstraints", selects)
		applied := map[string]bool{}
		for i := range j.Evaluations {
			for _, b := range j.Evaluations[i].Bindings {
				applied[j.Policy.Kind+"Binding "+b] = true
			}
		}
		for _, b := range c.bound[owner] {
			if applied[b.Owner] {
				b.hits++
				c.selected(b.Owner, "spec.matchResources", selects)
			} else {
				c.selected(b.Owner, "spec.matchResources", selectsNot)
			}
		}
	}
	for call := range record.Calls() {
		owner, path := call.Webhook.Kind+" "+call.Webhook.Configuration, fmt.Sprintf("webhooks[%d]", call.Webhook.Index)
		c.rule(owner, fmt.Sprintf("%s.rules[%d]", path, call.Rule), o.plan.Operation, call.Resource.Resource, call.Subresource)
		c.selected(owner, path, selects)
	}
	for skip := range record.Skipped() {
		owner, path := skip.Entry.Kind+" "+skip.Entry.Configuration, "spec.matchConstraints"
		if strings.HasSuffix(skip.Entry.Kind, "WebhookConfiguration") {
			path = fmt.Sprintf("webhooks[%d]", skip.Entry.Index)
		}
		field := map[string]string{plan.NamespaceNotSelected.String(): ".namespaceSelector", plan.ObjectNotSelected.String(): ".objectSelector"}[skip.Code]
		switch item := c.byField[owner+"\x00"+path+field]; {
		case skip.Code == plan.Excluded.String():
			for i := 0; c.rule(owner, fmt.Sprintf("%s.excludeResourceRules[%d]", path, i), o.plan.Operation, o.plan.Kind.Resource.Resource, o.plan.Subresource); i++ {
			}
		case field != "" && item != nil:
			item.show(selectsNot)
		case field != "" || skip.Code == plan.NoBindingApplies.String():
			// The selector belongs to the only binding.
			c.selected(owner, path, selects)
			for _, b := range c.bound[owner] {
				c.selected(b.Owner, "spec.matchResources", selectsNot)
			}
		case skip.Code == plan.ConditionFalse.String():
			c.selected(owner, path, selects)
		}
	}
}

// rule counts a request that a rule matches, and reports whether the rule exists.
func (c *Coverage) rule(owner, field, operation, resource, subresource string) bool {
	item := c.byField[owner+"\x00"+field]
	if item == nil {
		return false
	}
	for _, k := range item.Cases {
		of, sub, _ := strings.Cut(k.resource, "/")
		if (k.operation == "*" || k.operation == operation) && (of == "*" || of == resource) && (sub == "*" || sub == subresource) {
			k.Count++
			item.hits++
		}
	}
	return true
}

// selected counts the results of the selectors below a path.
func (c *Coverage) selected(owner, path, what string) {
	for _, name := range []string{".namespaceSelector", ".objectSelector"} {
		if item := c.byField[owner+"\x00"+path+name]; item != nil {
			item.show(what)
		}
	}
}

// show counts a case.
func (c *Covered) show(text string) {
	c.hits++
	c.addCase(c.Kind, text, c.Line).Count++
}

// finish sets the state of each item.
func (c *Coverage) finish() {
	slices.SortStableFunc(c.Items, func(a, b *Covered) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	for _, i := range c.Items {
		switch {
		case i.hits == 0:
			i.State = "never"
		case i.Errors == i.hits:
			i.State = "error"
		case i.yes > 0 && i.no > 0:
			i.State = "both"
		case i.yes > 0:
			i.State = "true"
		case i.no > 0:
			i.State = "false"
		default:
			i.State = "reached"
		}
	}
}

// Total returns the outcomes of all items that occurred, and all their outcomes.
func (c *Coverage) Total() (taken, all int) {
	for _, i := range c.Items {
		t, a := i.Ways()
		taken, all = taken+t, all+a
	}
	return taken, all
}

// Share counts, for a kind, the outcomes that occurred, and all outcomes.
type Share struct {
	Kind       string
	Taken, All int
}

// Shares returns the shares of all kinds that have outcomes.
func (c *Coverage) Shares() []Share {
	shares := make([]Share, len(CoverageKinds))
	for i, kind := range CoverageKinds {
		shares[i].Kind = kind
	}
	for _, item := range c.Items {
		item.outcomes(func(kind string, taken bool) {
			s := &shares[slices.Index(CoverageKinds, kind)]
			s.All++
			if taken {
				s.Taken++
			}
		})
	}
	return slices.DeleteFunc(shares, func(s Share) bool { return s.All == 0 })
}

// Percent returns a percentage, rounded down, so that 100 % means complete.
func Percent(taken, all int) int {
	if all == 0 {
		return 100
	}
	return taken * 100 / all
}

// Lines lists the coverage of each kind, and the gaps of each item.
func (c *Coverage) Lines() []string {
	var list []string
	for _, s := range c.Shares() {
		list = append(list, fmt.Sprintf("%s: %d %% (%d of %d)", s.Kind, Percent(s.Taken, s.All), s.Taken, s.All))
	}
	for _, i := range c.Items {
		list = append(list, i.missing()...)
	}
	return list
}

// missing lists the gaps of an item.
func (c *Covered) missing() []string {
	where := fmt.Sprintf("%s:%d: %s", c.File, c.Line, c.Field)
	switch c.State {
	case "never":
		return []string{where + " was never reached"}
	case "error":
		return []string{where + " was only ever in error"}
	}
	var list []string
	for _, b := range c.Branches {
		seen := ""
		switch {
		case b.True == 0 && b.False == 0:
			seen = "never decided"
		case b.True == 0:
			seen = "only ever false"
		case b.False == 0:
			seen = "only ever true"
		default:
			continue
		}
		list = append(list, fmt.Sprintf("%s:%d: %s: %s: %s", c.File, b.Line, c.Field, seen, b.Text))
	}
	for _, k := range c.Cases {
		if k.Count == 0 {
			list = append(list, fmt.Sprintf("%s:%d: %s: never seen: %s", c.File, k.Line, c.Field, k.Text))
		}
	}
	return list
}

// LCOV writes the coverage for code hosts: a line for each item, and its branches.
func (c *Coverage) LCOV(w io.Writer) error {
	var b strings.Builder
	files := map[string][]*Covered{}
	for _, i := range c.Items {
		files[i.File] = append(files[i.File], i)
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "TN:gatehouse test\nSF:%s\n", file)
		hits := map[int]int{}
		found, taken := 0, 0
		for n, i := range files[file] {
			hits[i.Line] += i.hits
			for k, d := range i.Branches {
				if d.Line != i.Line {
					hits[d.Line] += d.True + d.False
				}
				for way, count := range []int{d.True, d.False} {
					found++
					text := "-"
					if i.hits > 0 {
						text = fmt.Sprint(count)
					}
					if count > 0 {
						taken++
					}
					fmt.Fprintf(&b, "BRDA:%d,%d,%d,%s\n", d.Line, n, 2*k+way, text)
				}
			}
			for k, d := range i.Cases {
				found++
				if d.Count > 0 {
					taken++
				}
				fmt.Fprintf(&b, "BRDA:%d,%d,%d,%d\n", d.Line, n, 2*len(i.Branches)+k, d.Count)
			}
		}
		fmt.Fprintf(&b, "BRF:%d\nBRH:%d\n", found, taken)
		hit := 0
		for _, line := range slices.Sorted(maps.Keys(hits)) {
			fmt.Fprintf(&b, "DA:%d,%d\n", line, hits[line])
			if hits[line] > 0 {
				hit++
			}
		}
		fmt.Fprintf(&b, "LF:%d\nLH:%d\nend_of_record\n", len(hits), hit)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
