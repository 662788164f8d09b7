package suite

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
)

// Update sets the expectations of failed tests to the actual results, in files of Gatehouse's own format. It returns
// the new text of each file, and the reasons why others cannot be updated. Comments, order and all other lines stay.
func (r *Report) Update() (texts map[string][]byte, refused []*FileError) {
	type edit struct {
		first, last int
		text        string
	}
	edits := map[string][]edit{}
	suites := map[string]*Suite{}
	for _, result := range r.Tests {
		t := result.test
		if result.Status != Failed || t.judgeBy != nil {
			continue
		}
		s := t.Suite
		refuse := func(why string) {
			refused = append(refused, &FileError{s.File, t.Line, fmt.Sprintf("the test %q cannot be updated: %s", t.Name, why)})
		}
		switch {
		case len(result.Outcome.Unanswered) > 0:
			refuse("a webhook has no answer")
			continue
		case t.place.expect == nil || t.place.shared:
			refuse("it expects what its table expects: give the row its own expect")
			continue
		}
		lines := bytes.SplitAfter(s.text, []byte("\n"))
		first, last, indent := block(lines, t.place.test, t.place.expect)
		if first == 0 {
			refuse("its expectations are not a block of lines of their own")
			continue
		}
		node := copyNode(t.place.expect)
		result.rewrite(node)
		text, err := encoded(node, indent)
		if err != nil {
			refuse(err.Error())
			continue
		}
		suites[s.File] = s
		edits[s.File] = append(edits[s.File], edit{first, last, text})
	}
	texts = map[string][]byte{}
	for file, list := range edits {
		// Edits are applied from the end, so that earlier line numbers stay valid.
		slices.SortFunc(list, func(a, b edit) int { return cmp.Compare(b.first, a.first) })
		lines := bytes.SplitAfter(suites[file].text, []byte("\n"))
		for _, e := range list {
			lines = slices.Replace(lines, e.first-1, e.last, []byte(e.text))
		}
		texts[file] = bytes.Join(lines, nil)
	}
	return texts, refused
}

// block finds the lines of the field expect of a test: from its key to its last line. They are 0 if other fields share
// these lines.
func block(lines [][]byte, test, expect *yamlv3.Node) (first, last, indent int) {
	for key, value := range entries(test) {
		if key.Value != "expect" || value != expect {
			continue
		}
		if test.Style&yamlv3.FlowStyle != 0 || key.Line > len(lines) || strings.TrimSpace(string(lines[key.Line-1][:key.Column-1])) != "" {
			return 0, 0, 0
		}
		first, indent = key.Line, key.Column-1
		last = first
		for n := first + 1; n <= len(lines); n++ {
			text := strings.TrimRight(string(lines[n-1]), "\r\n")
			trimmed := strings.TrimLeft(text, " ")
			switch {
			case trimmed == "":
				continue
			case len(text)-len(trimmed) <= indent:
				return first, last, indent
			case trimmed[0] != '#':
				last = n
			default:
				// A comment belongs to the following line, if that line belongs to the block.
				continue
			}
		}
		return first, last, indent
	}
	return 0, 0, 0
}

// encoded formats a field expect with a value, as lines with an indent.
func encoded(value *yamlv3.Node, indent int) (string, error) {
	field := &yamlv3.Node{Kind: yamlv3.MappingNode, Tag: "!!map", Content: []*yamlv3.Node{{Kind: yamlv3.ScalarNode, Tag: "!!str", Value: "expect"}, value}}
	var b bytes.Buffer
	e := yamlv3.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(field); err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(b.String()) {
		if strings.TrimSpace(line) != "" {
			out.WriteString(strings.Repeat(" ", indent))
		}
		out.WriteString(line)
	}
	return out.String(), nil
}

// rewrite sets unmet expectations to the actual result. If a request was rejected unexpectedly, it also sets the
// expected message and decider.
func (r *Result) rewrite(n *yamlv3.Node) {
	o := r.Outcome
	set := func(name string, value any) {
		made := &yamlv3.Node{}
		if err := made.Encode(value); err != nil {
			return
		}
		for key, old := range entries(n) {
			if key.Value == name {
				made.HeadComment, made.LineComment, made.FootComment = old.HeadComment, old.LineComment, old.FootComment
				made.Style |= old.Style & yamlv3.FlowStyle
				*old = *made
				return
			}
		}
		n.Content = append(n.Content, &yamlv3.Node{Kind: yamlv3.ScalarNode, Tag: "!!str", Value: name}, made)
	}
	remove := func(names ...string) {
		for i := len(n.Content) - 2; i >= 0; i -= 2 {
			if slices.Contains(names, n.Content[i].Value) {
				n.Content = slices.Delete(n.Content, i, i+2)
			}
		}
	}
	failed := map[string]bool{}
	for _, f := range r.Failures {
		failed[strings.FieldsFunc(f.Field, func(c rune) bool { return c == '.' || c == '[' || c == ' ' })[0]] = true
	}
	if o.Allowed {
		remove("reason", "message", "by", "causes")
	} else {
		remove("object", "patch")
	}
	correct := func(name string, value any) {
		if failed[name] {
			set(name, value)
		}
	}
	correct("allowed", o.Allowed)
	correct("code", o.Code)
	if !o.Allowed {
		// If the request was expected to be allowed, its decider and message are new.
		failed["message"], failed["by"] = failed["message"] || failed["allowed"], failed["by"] || failed["allowed"]
		correct("reason", o.Reason)
		correct("message", o.Message)
		correct("by", byOf(o.By))
		var list []map[string]string
		for _, c := range o.Causes {
			one := map[string]string{"message": c.Message}
			if c.Field != "" {
				one["field"] = c.Field
			}
			list = append(list, one)
		}
		correct("causes", list)
	}
	correct("warnings", append([]string{}, o.Warnings...))
	annotations := map[string]any{}
	for _, a := range r.test.expect.annotations {
		annotations[a.key] = nil
		if value, ok := o.Annotations[a.key]; ok {
			annotations[a.key] = value
		}
	}
	correct("auditAnnotations", annotations)
	correct("called", append([]string{}, o.Called...))
	if failed["notCalled"] {
		var left []string
		for _, name := range r.test.expect.notCalled {
			if !slices.ContainsFunc(o.Called, func(called string) bool { return rejection.IsCalled(name, called) }) {
				left = append(left, name)
			}
		}
		if remove("notCalled"); len(left) > 0 {
			set("notCalled", left)
		}
	}
	correct("costBelow", o.Cost+1)
	if o.Object != nil {
		correct("object", like(r.test.expect.object, o.Object))
		if failed["patch"] {
			remove("patch")
		}
	}
}

// byOf returns the decider of a rejection in the format of a test.
func byOf(by []rejection.Decider) map[string]any {
	out := map[string]any{}
	if len(by) == 0 {
		return out
	}
	d := by[0]
	switch {
	case d.Policy != "":
		out["policy"] = d.Policy
		if d.Binding != "" {
			out["binding"] = d.Binding
		}
		if d.Validation != nil {
			out["validation"] = *d.Validation
		}
	case d.Webhook != "":
		out["webhook"] = d.Webhook
	default:
		out["plugin"] = d.Plugin
	}
	return out
}
