package mutants

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gatehouse-dev/gatehouse/admission/registration"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// Kind is a kind of change.
type Kind string

// The kinds of changes.
const (
	Clause        Kind = "clause"
	Operator      Kind = "operator"
	AtBoundary    Kind = "boundary"
	Quantifier    Kind = "quantifier"
	RuleOperation Kind = "rule-operation"
	Resource      Kind = "resource"
	Subresource   Kind = "subresource"
	Selector      Kind = "selector"
	FailurePolicy Kind = "failure-policy"
)

// Kinds lists all kinds.
var Kinds = []Kind{Clause, Operator, AtBoundary, Quantifier, RuleOperation, Resource, Subresource, Selector, FailurePolicy}

// Mutant is a registration with one change.
type Mutant struct {
	Kind Kind `json:"kind"`
	// File, Line and Column are the position of the change. Object names the registration, Field is the changed field.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column,omitempty"`
	Object string `json:"object"`
	Field  string `json:"field"`
	// Was and Is are the part before and after the change; Is is empty for a removal.
	Was string `json:"was"`
	Is  string `json:"is,omitempty"`
	// Notice describes a request that would kill the mutant.
	Notice string `json:"notice"`
	// Widens reports whether the changed registration may apply to more requests.
	Widens bool `json:"-"`
	// Content is the whole registration after the change.
	Content map[string]any `json:"-"`
}

// What describes the change.
func (m *Mutant) What() string {
	if m.Is == "" {
		return "the removal of " + code(m.Was)
	}
	return code(m.Is) + " in place of " + code(m.Was)
}

// Of returns the mutants of an object, in the order of its fields; none for an object that is not a registration.
// source is the file of the object, empty if it cannot be read.
func Of(o *manifests.Object, source string) []*Mutant {
	kind, _ := o.Content["kind"].(string)
	version, _ := o.Content["apiVersion"].(string)
	if group, _, _ := strings.Cut(version, "/"); group != registration.GroupName {
		return nil
	}
	m := &making{object: o, source: source, title: kind + " " + o.Name()}
	switch {
	case strings.HasSuffix(kind, "PolicyBinding"):
		m.constraints(path{"spec", "matchResources"}, "that the policy rejects")
		m.widened(func() {
			m.flip(path{"spec", "paramRef", "parameterNotFoundAction"}, "", "Deny", "Allow", "a request for which there are no params")
		})
	case strings.HasSuffix(kind, "AdmissionPolicy"):
		m.policy()
	case strings.HasSuffix(kind, "WebhookConfiguration"):
		for i, hook := range m.mappings(path{"webhooks"}) {
			at := path{"webhooks", i}
			name, _ := hook["name"].(string)
			m.constraints(at, "that the webhook rejects or changes")
			m.conditions(at.to("matchConditions"))
			m.flip(at.to("failurePolicy"), "Fail", "Fail", "Ignore", fmt.Sprintf("a request whose call fails, as with {webhook: %s, refuse: true} among the webhooks of the test", name))
		}
	}
	return m.list
}

// path leads to a part of an object, by names and indexes.
type path []any

func (p path) to(more ...any) path { return append(slices.Clone(p), more...) }

func (p path) String() string {
	var b strings.Builder
	for _, step := range p {
		if i, ok := step.(int); ok {
			fmt.Fprintf(&b, "[%d]", i)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		fmt.Fprint(&b, step)
	}
	return b.String()
}

// get returns the value at the path; nil if absent.
func (p path) get(content any) any {
	for _, step := range p {
		switch step := step.(type) {
		case string:
			m, _ := content.(map[string]any)
			content = m[step]
		case int:
			list, _ := content.([]any)
			if step >= len(list) {
				return nil
			}
			content = list[step]
		}
	}
	return content
}

// making makes the mutants of an object.
type making struct {
	object        *manifests.Object
	source, title string
	list          []*Mutant
}

// add adds a mutant with another value at a path, of which the last step is a name.
func (m *making) add(kind Kind, at path, value any, was, is, notice string) *Mutant {
	content := runtime.DeepCopyJSON(m.object.Content)
	parent, _ := at[:len(at)-1].get(content).(map[string]any)
	if parent == nil {
		return &Mutant{}
	}
	parent[at[len(at)-1].(string)] = value
	line, column := m.object.Place(at.String())
	made := &Mutant{Kind: kind, File: m.object.File, Line: line, Column: column, Object: m.title, Field: at.String(), Was: was, Is: is, Notice: notice, Content: content}
	m.list = append(m.list, made)
	return made
}

// mappings returns the elements of a list that are mappings.
func (m *making) mappings(at path) []map[string]any {
	list, _ := at.get(m.object.Content).([]any)
	out := make([]map[string]any, len(list))
	for i := range list {
		out[i], _ = list[i].(map[string]any)
	}
	return out
}

// without removes each operation from a list of several, one at a time.
func (m *making) without(at path, notice func(element any) string) {
	list, _ := at.get(m.object.Content).([]any)
	for i, element := range list {
		if len(list) > 1 {
			changed := slices.Delete(slices.Clone(list), i, i+1)
			made := m.add(RuleOperation, at, changed, fmt.Sprint(element), "", notice(element))
			made.Line, made.Column = m.object.Place(at.to(i).String())
		}
	}
}

// flip exchanges two values of a field. usual is the value of an absent field; empty if there is none.
func (m *making) flip(at path, usual, one, other, notice string) {
	value, _ := at.get(m.object.Content).(string)
	if value == "" {
		value = usual
	}
	switch value {
	case one:
		m.add(FailurePolicy, at, other, one, other, notice)
	case other:
		m.add(FailurePolicy, at, one, other, one, notice)
	}
}

// widened marks the mutants made by do as widening the registration.
func (m *making) widened(do func()) {
	from := len(m.list)
	do()
	for _, made := range m.list[from:] {
		made.Widens = true
	}
}

// policy changes a policy.
func (m *making) policy() {
	m.constraints(path{"spec", "matchConstraints"}, "that the policy rejects or changes")
	m.conditions(path{"spec", "matchConditions"})
	for i := range m.mappings(path{"spec", "variables"}) {
		m.expression(path{"spec", "variables", i, "expression"}, role{})
	}
	failure, _ := path{"spec", "failurePolicy"}.get(m.object.Content).(string)
	for i := range m.mappings(path{"spec", "validations"}) {
		m.expression(path{"spec", "validations", i, "expression"}, role{decides: true, yes: "the validation allows", no: "the validation alone rejects", strict: failure != "Ignore"})
	}
	for i := range m.mappings(path{"spec", "mutations"}) {
		for kind, nothing := range map[string]string{"applyConfiguration": "Object{}", "jsonPatch": "[]"} {
			at := path{"spec", "mutations", i, kind, "expression"}
			if text, ok := at.get(m.object.Content).(string); ok {
				m.add(Clause, at, nothing, text, "", "a request that the mutation changes")
				m.expression(at, role{})
			}
		}
	}
	m.flip(path{"spec", "failurePolicy"}, "Fail", "Fail", "Ignore", "a request for which an expression of the policy is in error, such as one without a field that it needs")
}

func (m *making) conditions(at path) {
	m.widened(func() {
		for i := range m.mappings(at) {
			m.expression(at.to(i, "expression"), role{decides: true, yes: "the condition lets through", no: "the condition alone leaves out"})
		}
	})
}

// constraints changes rules and selectors. acted describes the effect on requests that the rules select.
func (m *making) constraints(at path, acted string) {
	rules := at.to("resourceRules")
	if at[0] == "webhooks" {
		rules = at.to("rules")
	}
	list := m.mappings(rules)
	for i, rule := range list {
		operations, _ := rule["operations"].([]any)
		resources, _ := rule["resources"].([]any)
		of := texts(resources)
		m.without(rules.to(i, "operations"), func(o any) string { return fmt.Sprintf("a request to %v %s %s", o, of, acted) })
		if slices.Contains(operations, any("*")) {
			all := []any{"CREATE", "UPDATE", "DELETE", "CONNECT"}
			for k, o := range all[:3] {
				m.add(RuleOperation, rules.to(i, "operations"), slices.Delete(slices.Clone(all), k, k+1), fmt.Sprint(o), "", fmt.Sprintf("a request to %s %s %s", o, of, acted))
			}
		}
		m.resources(rules.to(i, "resources"), acted)
		if len(list) > 1 && len(operations) == 1 && len(resources) == 1 {
			made := m.add(resourceKind(of), rules, slices.Delete(slices.Clone(rules.get(m.object.Content).([]any)), i, i+1), fmt.Sprintf("%v %s", operations[0], of), "", fmt.Sprintf("a request to %v %s %s", operations[0], of, acted))
			made.Line, made.Column = m.object.Place(rules.to(i).String())
		}
	}
	excluded := at.to("excludeResourceRules")
	for i, rule := range m.mappings(excluded) {
		resources, _ := rule["resources"].([]any)
		of := texts(resources)
		made := m.add(Resource, excluded, slices.Delete(slices.Clone(excluded.get(m.object.Content).([]any)), i, i+1), "the exclusion of "+of, "", fmt.Sprintf("a request about %s that is allowed only because it is excluded", of))
		made.Line, made.Column = m.object.Place(excluded.to(i).String())
		made.Widens = true
	}
	m.widened(func() {
		m.selector(at.to("namespaceSelector"), "a request in a namespace ")
		m.selector(at.to("objectSelector"), "a request about an object ")
	})
}

// resources removes each resource from a rule, and the subresources from a pattern such as pods/*, which matches pods
// itself, too.
func (m *making) resources(at path, acted string) {
	list, _ := at.get(m.object.Content).([]any)
	for i, r := range list {
		text := fmt.Sprint(r)
		parent, all := strings.CutSuffix(text, "/*")
		var made *Mutant
		switch {
		case all && !slices.Contains(list, any(parent)):
			changed := slices.Clone(list)
			changed[i] = parent
			made = m.add(Subresource, at, changed, text, parent, fmt.Sprintf("a request about a subresource of %s %s", parent, acted))
		case len(list) > 1 && !slices.Contains(list, any(text+"/*")):
			made = m.add(resourceKind(text), at, slices.Delete(slices.Clone(list), i, i+1), text, "", fmt.Sprintf("a request about %s %s", text, acted))
		default:
			continue
		}
		made.Line, made.Column = m.object.Place(at.to(i).String())
	}
}

// resourceKind is the kind of the removal of a resource.
func resourceKind(name string) Kind {
	if strings.Contains(name, "/") {
		return Subresource
	}
	return Resource
}

// selector removes each requirement of a selector.
func (m *making) selector(at path, begin string) {
	const acted = ", that would be rejected or changed if it were selected"
	labels, _ := at.to("matchLabels").get(m.object.Content).(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		rest := runtime.DeepCopyJSON(labels)
		delete(rest, key)
		made := m.add(Selector, at.to("matchLabels"), rest, fmt.Sprintf("%s: %v", key, labels[key]), "", fmt.Sprintf("%swithout the label %s: %v%s", begin, key, labels[key], acted))
		made.Line, made.Column = m.object.Place(at.to("matchLabels").String() + "[" + key + "]")
	}
	expressions, _ := at.to("matchExpressions").get(m.object.Content).([]any)
	for i, one := range m.mappings(at.to("matchExpressions")) {
		key, values := one["key"], texts(one["values"])
		notice := map[any]string{
			"In":           fmt.Sprintf("whose label %v is none of %s", key, values),
			"NotIn":        fmt.Sprintf("whose label %v is %s", key, values),
			"Exists":       fmt.Sprintf("without the label %v", key),
			"DoesNotExist": fmt.Sprintf("with the label %v", key),
		}[one["operator"]]
		made := m.add(Selector, at.to("matchExpressions"), slices.Delete(slices.Clone(expressions), i, i+1), strings.TrimSpace(fmt.Sprintf("%v %v %s", key, one["operator"], values)), "", begin+notice+acted)
		made.Line, made.Column = m.object.Place(at.to("matchExpressions", i).String())
	}
}

// expression changes an expression.
func (m *making) expression(at path, r role) {
	text, _ := at.get(m.object.Content).(string)
	if text == "" {
		return
	}
	line, column := m.object.Place(at.String())
	places := manifests.Align(m.source, line, column, text)
	for _, e := range editsOf(text, r) {
		made := m.add(e.kind, at, e.text, e.was, e.is, e.notice)
		made.Line, made.Column = place(m.source, places, text, e.offset, line, column)
	}
}

// place returns the position of a character of a text in its file, or the line and column of its field if unknown.
func place(source string, places []int, text string, offset, line, column int) (int, int) {
	for i := range text {
		if offset--; offset >= 0 || places == nil || places[i] < 0 {
			continue
		}
		before := source[:places[i]]
		begin := strings.LastIndexByte(before, '\n') + 1
		return 1 + strings.Count(before, "\n"), 1 + utf8.RuneCountInString(before[begin:])
	}
	return line, column
}

// texts joins the elements of a list.
func texts(v any) string {
	list, _ := v.([]any)
	out := make([]string, len(list))
	for i := range list {
		out[i] = fmt.Sprint(list[i])
	}
	return strings.Join(out, ", ")
}
