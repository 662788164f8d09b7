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
	celparser "github.com/google/cel-go/parser"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/engine/expression"
	"github.com/gatehouse-dev/gatehouse/internal/manifests"
)

// Coverage is what tests have shown of the policies and webhooks of their worlds. Its JSON is
// stable: fields are only ever added.
type Coverage struct {
	// Items are in the order of the files and lines.
	Items []*Covered `json:"items"`

	mu      sync.Mutex
	byField map[string]*Covered
	known   map[string]bool
}

// Covered is one expression, rule or binding.
type Covered struct {
	// Owner is the policy or webhook, Field the path in it.
	Owner string `json:"owner"`
	Field string `json:"field"`
	File  string `json:"file"`
	Line  int    `json:"line"`
	Text  string `json:"text,omitempty"`
	// State is never, true, false, both, error or reached.
	State string `json:"state"`
	// Errors is how often it was in error.
	Errors int `json:"errors,omitempty"`
	// Branches are the decisions of an expression, each with two ways.
	Branches []*Branch `json:"branches,omitempty"`

	hits, yes, no int
	decisions     map[string]*Branch
	// column is where the field is in its line, from 1.
	column int
}

// Branch is a part of an expression that decides: an operand of a logical operator, the condition of
// a choice, or what a loop asks of an element.
type Branch struct {
	Text  string `json:"text"`
	True  int    `json:"true"`
	False int    `json:"false"`
	Line  int    `json:"line,omitempty"`

	begin int
}

// Ways returns how many ways of the item were taken, and how many there are.
func (c *Covered) Ways() (taken, all int) {
	count := func(n int) {
		all++
		if n > 0 {
			taken++
		}
	}
	switch {
	case len(c.Branches) > 0:
		for _, b := range c.Branches {
			count(b.True)
			count(b.False)
		}
	default:
		count(c.hits)
	}
	return taken, all
}

func newCoverage() *Coverage {
	return &Coverage{byField: map[string]*Covered{}, known: map[string]bool{}}
}

// declare adds what the objects of a world have to be covered.
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
		owner := kind + " " + name
		add := func(field, text string) {
			line, column := o.Place(field)
			item := &Covered{Owner: owner, Field: field, File: o.File, Line: line, column: column, Text: text, State: "never", decisions: map[string]*Branch{}}
			c.Items = append(c.Items, item)
			c.byField[owner+"\x00"+field] = item
		}
		texts := func(path, key string) {
			list, _ := walk(o.Content, strings.Split(path, ".")...).([]any)
			for i, e := range list {
				m, _ := e.(map[string]any)
				if text, ok := walk(m, strings.Split(key, ".")...).(string); ok {
					add(fmt.Sprintf("%s[%d].%s", path, i, key), text)
				}
			}
		}
		rules := func(path string, in map[string]any) {
			list, _ := in["rules"].([]any)
			if list == nil {
				list, _ = in["resourceRules"].([]any)
				path += ".resourceRules"
			} else {
				path += ".rules"
			}
			for i := range list {
				add(fmt.Sprintf("%s[%d]", path, i), "")
			}
		}
		switch {
		case strings.HasSuffix(kind, "PolicyBinding"):
			add("spec.policyName", at(o.Content, "spec", "policyName"))
		case strings.HasSuffix(kind, "AdmissionPolicy"):
			if m, ok := walk(o.Content, "spec", "matchConstraints").(map[string]any); ok {
				rules("spec.matchConstraints", m)
			}
			texts("spec.matchConditions", "expression")
			texts("spec.variables", "expression")
			texts("spec.validations", "expression")
			texts("spec.validations", "messageExpression")
			texts("spec.auditAnnotations", "valueExpression")
			texts("spec.mutations", "applyConfiguration.expression")
			texts("spec.mutations", "jsonPatch.expression")
		case strings.HasSuffix(kind, "WebhookConfiguration"):
			list, _ := o.Content["webhooks"].([]any)
			for i, e := range list {
				m, _ := e.(map[string]any)
				path := fmt.Sprintf("webhooks[%d]", i)
				rules(path, m)
				conditions, _ := m["matchConditions"].([]any)
				for k, e := range conditions {
					m, _ := e.(map[string]any)
					add(fmt.Sprintf("%s.matchConditions[%d].expression", path, k), at(m, "expression"))
				}
			}
		}
	}
}

// walk follows members of mappings.
func walk(v any, fields ...string) any {
	for _, f := range fields {
		m, _ := v.(map[string]any)
		v = m[f]
	}
	return v
}

// ownerOf names the object of an entry.
func ownerOf(e *registration.Entry) string { return e.Source.Descriptor().Kind + " " + e.Configuration }

// saw counts an evaluation.
func (c *Coverage) saw(entry *registration.Entry, e *expression.Expression, seen *expression.Seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner := ownerOf(entry)
	for _, item := range c.Items {
		if item.Owner != owner || item.Text != e.Text() || item.Text == "" {
			continue
		}
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
		decisions := item.branches(seen.AST)
		for _, part := range seen.Parts {
			b := decisions[part.ID]
			switch {
			case b == nil:
			case part.Value == types.True:
				b.True++
			case part.Value == types.False:
				b.False++
			}
		}
	}
}

// branches returns the decisions of an expression by their ids. The ids are the same whenever the
// text is compiled.
func (c *Covered) branches(a *ast.AST) map[int64]*Branch {
	out := map[int64]*Branch{}
	note := func(e ast.Expr) {
		if e.Kind() == ast.CallKind {
			switch e.AsCall().FunctionName() {
			case operators.LogicalAnd, operators.LogicalOr:
				// Its operands decide.
				return
			}
		}
		if e.Kind() == ast.LiteralKind || e.Kind() == ast.IdentKind && strings.HasPrefix(e.AsIdent(), "@") {
			return
		}
		key := fmt.Sprint(e.ID())
		b := c.decisions[key]
		if b == nil {
			text, err := celparser.Unparse(e, a.SourceInfo())
			if err != nil {
				return
			}
			b = &Branch{Text: oneLine(text)}
			b.begin = byteAt(c.Text, startOf(a, e))
			b.Line = c.Line
			if b.begin >= 0 {
				b.Line += strings.Count(c.Text[:b.begin], "\n")
			}
			c.decisions[key] = b
			c.Branches = append(c.Branches, b)
		}
		out[e.ID()] = b
	}
	ast.PreOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.CallKind {
			switch call := e.AsCall(); call.FunctionName() {
			case operators.LogicalAnd, operators.LogicalOr:
				for _, arg := range call.Args() {
					note(arg)
				}
			case operators.Conditional:
				note(call.Args()[0])
			}
		}
	}))
	if a.GetType(a.Expr().ID()) == types.BoolType {
		note(a.Expr())
	}
	return out
}

// byteAt is where a character of a text begins; -1 when the text has none of that number.
func byteAt(text string, character int) int {
	for i := range text {
		if character == 0 {
			return i
		}
		character--
	}
	return -1
}

// startOf is the first character of an expression in its text; -1 when that is not known.
func startOf(a *ast.AST, e ast.Expr) int {
	first := -1
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		if r, ok := a.SourceInfo().GetOffsetRange(e.ID()); ok && (first < 0 || int(r.Start) < first) {
			first = int(r.Start)
		}
	}))
	return first
}

// took counts what the trace of an outcome says: rules and bindings.
func (c *Coverage) took(o *Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hit := func(owner, field string) {
		if item := c.byField[owner+"\x00"+field]; item != nil {
			item.hits++
		}
	}
	record := o.trace.Verdicts(false)
	for j := range record.Judged() {
		hit(j.Policy.Kind+" "+j.Policy.Configuration, fmt.Sprintf("spec.matchConstraints.resourceRules[%d]", j.Rule))
		for i := range j.Evaluations {
			for _, b := range j.Evaluations[i].Bindings {
				hit(j.Policy.Kind+"Binding "+b, "spec.policyName")
			}
		}
	}
	for call := range record.Calls() {
		hit(call.Webhook.Kind+" "+call.Webhook.Configuration, fmt.Sprintf("webhooks[%d].rules[%d]", call.Webhook.Index, call.Rule))
	}
}

// finish says of each item what was seen of it.
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

// Total is what all items have.
func (c *Coverage) Total() (taken, all int) {
	for _, i := range c.Items {
		t, a := i.Ways()
		taken, all = taken+t, all+a
	}
	return taken, all
}

// percent is a share, rounded down: 100 % means everything.
func percent(taken, all int) int {
	if all == 0 {
		return 100
	}
	return taken * 100 / all
}

// Lines says for each policy what its tests have shown, and what they have not.
func (c *Coverage) Lines() []string {
	byOwner := map[string][]*Covered{}
	var order []string
	for _, i := range c.Items {
		if byOwner[i.Owner] == nil {
			order = append(order, i.Owner)
		}
		byOwner[i.Owner] = append(byOwner[i.Owner], i)
	}
	var lines []string
	for _, owner := range order {
		taken, all := 0, 0
		var missing []string
		for _, i := range byOwner[owner] {
			t, a := i.Ways()
			taken, all = taken+t, all+a
			where := fmt.Sprintf("    %s:%d: %s", i.File, i.Line, i.Field)
			switch i.State {
			case "never":
				missing = append(missing, where+" was never reached")
			case "error":
				missing = append(missing, where+" was only ever in error")
			}
			if i.State == "never" {
				continue
			}
			for _, b := range i.Branches {
				switch {
				case b.True == 0 && b.False == 0:
					missing = append(missing, fmt.Sprintf("    %s:%d: %s: never decided: %s", i.File, b.Line, i.Field, b.Text))
				case b.True == 0:
					missing = append(missing, fmt.Sprintf("    %s:%d: %s: only ever false: %s", i.File, b.Line, i.Field, b.Text))
				case b.False == 0:
					missing = append(missing, fmt.Sprintf("    %s:%d: %s: only ever true: %s", i.File, b.Line, i.Field, b.Text))
				}
			}
		}
		lines = append(lines, fmt.Sprintf("%3d %%  %s (%d of %d)", percent(taken, all), owner, taken, all))
		lines = append(lines, missing...)
	}
	return lines
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
