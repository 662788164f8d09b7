package suite

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/offline"
	"github.com/gatehouse-dev/gatehouse/internal/commands/predict/rejection"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// The kind of documents with tests.
const (
	ownVersion = "gatehouse.dev/v1alpha1"
	ownKind    = "AdmissionTests"
)

// The operations of requests.
const (
	opCreate  = "CREATE"
	opUpdate  = "UPDATE"
	opDelete  = "DELETE"
	opConnect = "CONNECT"
)

// parser reads a document with tests.
type parser struct {
	decoder
	suite *Suite
	// object reads an object from a file that a test names.
	object func(n *yamlv3.Node, ref string) (map[string]any, error)
}

// parse reads one document of the kind AdmissionTests.
func (p *parser) parse(root *yamlv3.Node) {
	s := p.suite
	var tests *yamlv3.Node
	var ignored string
	p.fields(root, "the document", map[string]field{
		"apiVersion": p.text(&ignored, "apiVersion"), "kind": p.text(&ignored, "kind"),
		"metadata": func(n *yamlv3.Node) {
			p.fields(n, "metadata", map[string]field{"name": p.text(&ignored, "metadata.name")})
		},
		"world": func(n *yamlv3.Node) {
			s.own = true
			var paths []string
			p.texts(&paths, "world")(n)
			for i, path := range paths {
				if path == "" {
					continue
				}
				s.paths = append(s.paths, filepath.Join(filepath.Dir(s.File), filepath.FromSlash(path)))
				if _, err := os.Stat(s.paths[len(s.paths)-1]); err != nil {
					p.fail(target(n).Content[i], "world: %v", files.Plain(err))
				}
			}
		},
		"authorize": p.flag(&s.authorize, "authorize"),
		"webhooks":  func(n *yamlv3.Node) { s.answers = p.answers(n, "webhooks") },
		"programs":  func(n *yamlv3.Node) { s.programs = p.programs(n) },
		"tests":     func(n *yamlv3.Node) { tests = n },
	})
	if tests == nil {
		p.fail(root, "there are no tests")
		return
	}
	p.elements(tests, "tests", p.test)
	names := map[string]int{}
	for _, t := range s.Tests {
		if line, twice := names[t.Name]; twice {
			p.errors = append(p.errors, &FileError{p.file, t.Line, fmt.Sprintf("there is another test %q, in line %d", t.Name, line)})
		}
		names[t.Name] = t.Line
	}
	if len(s.Tests) == 0 && len(p.errors) == 0 {
		p.fail(tests, "there are no tests")
	}
}

// test reads a test, or the tests of a table.
func (p *parser) test(n *yamlv3.Node) {
	t := &Test{Suite: p.suite, Line: p.line(n)}
	var request, expected, rows *yamlv3.Node
	p.fields(n, "a test", map[string]field{
		"name":    p.text(&t.Name, "name"),
		"skip":    p.text(&t.Skip, "skip"),
		"request": func(n *yamlv3.Node) { request = n },
		"expect":  func(n *yamlv3.Node) { expected = n },
		"rows":    func(n *yamlv3.Node) { rows = n },
	})
	switch {
	case t.Name == "":
		p.fail(n, "a test has no name")
		return
	case request == nil:
		p.fail(n, "the test %q has no request", t.Name)
		return
	case expected == nil && rows == nil:
		p.fail(n, "the test %q expects nothing: say at least expect: {allowed: true}", t.Name)
	}
	t.place = place{test: n, expect: expected}
	if rows == nil {
		t.request = p.request(request)
		if expected != nil {
			t.expect = p.expect(expected)
		}
		p.suite.Tests = append(p.suite.Tests, t)
		return
	}
	before := len(p.suite.Tests)
	p.elements(rows, "rows", func(n *yamlv3.Node) { p.row(n, t, request, expected) })
	if len(p.suite.Tests) == before && len(p.errors) == 0 {
		p.fail(rows, "the table %q has no rows", t.Name)
	}
}

// row reads a row of a table: the request with some fields changed.
func (p *parser) row(n *yamlv3.Node, table *Test, request, expected *yamlv3.Node) {
	t := &Test{Suite: p.suite, Line: p.line(n), Skip: table.Skip, place: place{test: n}}
	name := ""
	changed := copyNode(request)
	p.fields(n, "a row", map[string]field{
		"name": p.text(&name, "name"),
		"skip": p.text(&t.Skip, "skip"),
		"set": func(n *yamlv3.Node) {
			p.expand(changed)
			p.pairs(n, "set", func(key, value *yamlv3.Node) {
				if err := setNode(changed, key, value); err != nil {
					p.fail(key, "%v", err)
				}
			})
		},
		"expect": func(n *yamlv3.Node) { t.place.expect = n },
	})
	if name == "" {
		p.fail(n, "a row of %q has no name", table.Name)
		return
	}
	t.Name = table.Name + "/" + name
	t.request = p.request(changed)
	t.request.line = p.line(n)
	switch {
	case t.place.expect != nil:
		t.expect = p.expect(t.place.expect)
	case expected != nil:
		t.expect = p.expect(expected)
		// An update for one row must not change the expectations of all rows.
		t.place.shared = true
	default:
		p.fail(n, "the row %q expects nothing, and neither does its table", name)
	}
	p.suite.Tests = append(p.suite.Tests, t)
}

// expand replaces the file names of a request's objects with the objects.
func (p *parser) expand(request *yamlv3.Node) {
	for key, value := range entries(request) {
		if key.Value != "object" && key.Value != "oldObject" || value.Kind != yamlv3.ScalarNode || value.Tag != "!!str" {
			continue
		}
		object, err := p.object(value, value.Value)
		if err != nil {
			// The error is reported when the request is read.
			continue
		}
		made := &yamlv3.Node{}
		if err := made.Encode(object); err == nil {
			placeAt(made, value)
			*value = *made
		}
	}
}

// placeAt gives nodes the position of another node.
func placeAt(n, other *yamlv3.Node) {
	n.Line, n.Column = other.Line, other.Column
	for _, c := range n.Content {
		placeAt(c, other)
	}
}

func (p *parser) request(n *yamlv3.Node) request {
	q := request{line: p.line(n)}
	timeout, of := "", ""
	object := func(into *map[string]any, what string) field {
		return func(n *yamlv3.Node) {
			n = target(n)
			if n.Kind != yamlv3.ScalarNode || n.Tag != "!!str" {
				*into = p.decoder.object(n, what)
				return
			}
			found, err := p.object(n, n.Value)
			if err != nil {
				p.fail(n, "%s: %v", what, err)
				return
			}
			*into = runtime.DeepCopyJSON(found)
		}
	}
	p.fields(n, "request", map[string]field{
		"operation": func(n *yamlv3.Node) {
			p.text(&q.operation, "operation")(n)
			if !slices.Contains([]string{opCreate, opUpdate, opDelete, opConnect}, q.operation) {
				p.fail(n, "operation %q is not one of CREATE, UPDATE, DELETE, CONNECT", q.operation)
			}
		},
		"object":      object(&q.object, "object"),
		"oldObject":   object(&q.old, "oldObject"),
		"patch":       func(n *yamlv3.Node) { q.patch = p.patch(n) },
		"of":          p.text(&of, "of"),
		"namespace":   p.text(&q.namespace, "namespace"),
		"subresource": p.text(&q.subresource, "subresource"),
		"user":        func(n *yamlv3.Node) { q.user = p.user(n) },
		"dryRun":      p.flag(&q.dryRun, "dryRun"),
		"fieldValidation": func(n *yamlv3.Node) {
			p.text(&q.fieldValidation, "fieldValidation")(n)
			if !slices.Contains([]string{"Strict", "Warn", "Ignore"}, q.fieldValidation) {
				p.fail(n, "fieldValidation %q is not one of Strict, Warn, Ignore", q.fieldValidation)
			}
		},
		"authorize":       func(n *yamlv3.Node) { q.authorize = new(bool); p.flag(q.authorize, "authorize")(n) },
		"timeout":         p.text(&timeout, "timeout"),
		"webhooks":        func(n *yamlv3.Node) { q.answers = p.answers(n, "webhooks") },
		"namespaceLabels": p.textMap(&q.labels, "namespaceLabels", "the label "),
	})
	if timeout != "" {
		var err error
		if q.timeout, err = time.ParseDuration(timeout); err != nil || q.timeout <= 0 {
			p.fail(n, "timeout %q is not a time such as 3s", timeout)
		}
	}
	if of != "" {
		// apps/v1 Deployment shop/web, or Deployment web.
		words := strings.Fields(of)
		if len(words) == 3 {
			q.apiVersion, words = words[0], words[1:]
		}
		if len(words) != 2 {
			p.fail(n, "of %q is not KIND NAME, KIND NAMESPACE/NAME or VERSION KIND NAMESPACE/NAME", of)
			return q
		}
		q.kind, q.name = words[0], words[1]
		if namespace, name, ok := strings.Cut(words[1], "/"); ok {
			q.namespace, q.name = namespace, name
		}
	}
	if q.operation == "" {
		switch {
		case q.subresource != "":
			q.operation = offline.OperationOf(q.subresource)
		case q.old != nil && q.object == nil && q.patch == nil:
			q.operation = opDelete
		case q.old != nil || q.patch != nil:
			q.operation = opUpdate
		default:
			q.operation = opCreate
		}
	}
	switch {
	case q.object != nil && q.patch != nil:
		p.fail(n, "a request has an object or a patch, and not both")
	case q.object == nil && q.patch == nil && (q.operation == opCreate || q.operation == opUpdate):
		p.fail(n, "a request that creates or updates needs an object, or a patch with oldObject or of")
	case q.operation == opCreate && q.old != nil && q.subresource == "":
		p.fail(n, "a request that creates has no oldObject")
	case q.object == nil && q.old == nil && of == "":
		p.fail(n, "the request names no object: give it an object, an oldObject or of")
	}
	return q
}

func (p *parser) patch(n *yamlv3.Node) *patch {
	n = target(n)
	if n.Kind == yamlv3.SequenceNode {
		return &patch{types.JSONPatchType, p.value(n)}
	}
	out := &patch{kind: types.MergePatchType}
	body := func(kind types.PatchType) field {
		return func(n *yamlv3.Node) { out.kind, out.body = kind, p.value(n) }
	}
	p.fields(n, "patch", map[string]field{
		"json":      body(types.JSONPatchType),
		"merge":     body(types.MergePatchType),
		"strategic": body(types.StrategicMergePatchType),
		"apply":     body(types.ApplyYAMLPatchType),
	})
	if len(n.Content) != 2 {
		p.fail(n, "patch has one of json, merge, strategic and apply")
	}
	return out
}

func (p *parser) user(n *yamlv3.Node) *user.DefaultInfo {
	u := &user.DefaultInfo{}
	if n = target(n); n.Kind == yamlv3.ScalarNode {
		p.text(&u.Name, "user")(n)
		return u
	}
	p.fields(n, "user", map[string]field{
		"name":   p.text(&u.Name, "user.name"),
		"uid":    p.text(&u.UID, "user.uid"),
		"groups": p.texts(&u.Groups, "user.groups"),
		"extra": func(n *yamlv3.Node) {
			u.Extra = map[string][]string{}
			p.pairs(n, "user.extra", func(key, value *yamlv3.Node) {
				var list []string
				p.texts(&list, "user.extra")(value)
				u.Extra[key.Value] = list
			})
		},
	})
	if u.Name == "" {
		p.fail(n, "user has no name")
	}
	return u
}

func (p *parser) expect(n *yamlv3.Node) expect {
	e := expect{line: p.line(n), lines: map[string]int{}}
	known := map[string]field{
		"allowed":   func(n *yamlv3.Node) { e.allowed = new(bool); p.flag(e.allowed, "allowed")(n) },
		"code":      func(n *yamlv3.Node) { e.code = new(int64); p.number(e.code, "code")(n) },
		"reason":    func(n *yamlv3.Node) { e.reason = p.match(n, "reason") },
		"message":   func(n *yamlv3.Node) { e.message = p.match(n, "message") },
		"by":        func(n *yamlv3.Node) { e.by = p.by(n) },
		"called":    p.texts(&e.called, "called"),
		"notCalled": p.texts(&e.notCalled, "notCalled"),
		"costBelow": func(n *yamlv3.Node) { e.costBelow = new(int64); p.number(e.costBelow, "costBelow")(n) },
		"object":    func(n *yamlv3.Node) { e.object = any(p.decoder.object(n, "object")) },
		"patch": func(n *yamlv3.Node) {
			list, ok := p.value(n).([]any)
			if !ok {
				p.fail(n, "patch is not a list of operations of a JSON patch")
			}
			e.patch = list
		},
		"warnings": func(n *yamlv3.Node) {
			p.elements(n, "warnings", func(n *yamlv3.Node) {
				if m := p.match(n, "a warning"); m != nil {
					e.warnings = append(e.warnings, *m)
				}
			})
		},
		"auditAnnotations": func(n *yamlv3.Node) {
			p.pairs(n, "auditAnnotations", func(key, value *yamlv3.Node) {
				a := annotation{key: key.Value}
				if target(value).Tag != "!!null" {
					a.value = p.match(value, "the annotation "+key.Value)
				}
				e.annotations = append(e.annotations, a)
			})
		},
		"causes": func(n *yamlv3.Node) {
			p.elements(n, "causes", func(n *yamlv3.Node) {
				var c cause
				p.fields(n, "a cause", map[string]field{
					"field":   func(n *yamlv3.Node) { c.field = p.match(n, "field") },
					"message": func(n *yamlv3.Node) { c.message = p.match(n, "message") },
					"reason":  func(n *yamlv3.Node) { c.reason = p.match(n, "reason") },
				})
				e.causes = append(e.causes, c)
			})
		},
	}
	for key, value := range entries(target(n)) {
		if known[key.Value] != nil {
			e.lines[key.Value] = p.line(value)
		}
	}
	p.fields(n, "expect", known)
	if len(e.lines) == 0 {
		p.fail(n, "expect is empty: say at least allowed: true or false")
	}
	if e.allowed != nil && *e.allowed {
		for _, name := range []string{"by", "causes", "reason", "message"} {
			if e.has(name) {
				p.errors = append(p.errors, &FileError{p.file, e.at(name), fmt.Sprintf("a request that is allowed has no %s", name)})
			}
		}
	}
	return e
}

// match reads an expected string.
func (p *parser) match(n *yamlv3.Node, what string) *match {
	n = target(n)
	if n.Kind == yamlv3.ScalarNode {
		m := &match{}
		p.text(&m.is, what)(n)
		return m
	}
	m := &match{}
	p.fields(n, what, map[string]field{
		"is":       p.text(&m.is, what+".is"),
		"contains": func(n *yamlv3.Node) { m.kind = containing; p.text(&m.contains, what+".contains")(n) },
		"matches": func(n *yamlv3.Node) {
			m.kind = matching
			text := ""
			p.text(&text, what+".matches")(n)
			var err error
			if m.matches, err = regexp.Compile(text); err != nil {
				p.fail(n, "%s.matches: %v", what, err)
				m.matches = regexp.MustCompile(`$^`)
			}
		},
	})
	if n.Kind == yamlv3.MappingNode && len(n.Content) != 2 {
		p.fail(n, "%s has one of is, contains and matches", what)
	}
	return m
}

func (p *parser) by(n *yamlv3.Node) *rejection.Decider {
	b := &rejection.Decider{}
	p.fields(n, "by", map[string]field{
		"plugin":     p.text(&b.Plugin, "by.plugin"),
		"policy":     p.text(&b.Policy, "by.policy"),
		"binding":    p.text(&b.Binding, "by.binding"),
		"webhook":    p.text(&b.Webhook, "by.webhook"),
		"validation": func(n *yamlv3.Node) { b.Validation = new(int64); p.number(b.Validation, "by.validation")(n) },
	})
	if *b == (rejection.Decider{}) {
		p.fail(n, "by is empty: name a plugin, policy, binding or webhook")
	}
	return b
}

// namespaceOf returns the namespace of a request, as far as its file contains it.
func (q *request) namespaceOf() string {
	for _, object := range []map[string]any{q.object, q.old} {
		if object["kind"] == "Namespace" && object["apiVersion"] == "v1" {
			return at(object, "metadata", "name")
		}
	}
	if q.namespace != "" {
		return q.namespace
	}
	for _, object := range []map[string]any{q.object, q.old} {
		if namespace := at(object, "metadata", "namespace"); namespace != "" {
			return namespace
		}
	}
	return "default"
}

// at returns a string in an object; empty if there is none.
func at(object map[string]any, fields ...string) string {
	s, _, _ := unstructured.NestedString(object, fields...)
	return s
}

// copyNode copies a tree of nodes, without aliases.
func copyNode(n *yamlv3.Node) *yamlv3.Node {
	n = target(n)
	out := *n
	out.Anchor = ""
	out.Content = make([]*yamlv3.Node, len(n.Content))
	for i, c := range n.Content {
		out.Content[i] = copyNode(c)
	}
	return &out
}

var pathStep = regexp.MustCompile(`^(?:\.?([^.\[\]]+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\['([^']*)'\])`)

// setNode sets the value at a path, such as object.spec.containers[0].image; an empty value removes the field. Missing
// parent mappings are created.
func setNode(root *yamlv3.Node, key, value *yamlv3.Node) error {
	path := key.Value
	type step struct {
		name string
		// index is the index of a list element; -1 for a name.
		index int
	}
	var steps []step
	for rest := path; rest != ""; {
		m := pathStep.FindStringSubmatch(rest)
		if m == nil {
			return fmt.Errorf("the path %q is not understood at %q: write object.spec.containers[0].image or object.metadata.labels[\"a.b/c\"]", path, rest)
		}
		rest = rest[len(m[0]):]
		switch {
		case m[2] != "":
			n, err := strconv.Atoi(m[2])
			if err != nil {
				return fmt.Errorf("the path %q: %w", path, err)
			}
			steps = append(steps, step{index: n})
		default:
			steps = append(steps, step{m[1] + m[3] + m[4], -1})
		}
	}
	remove := target(value).Tag == "!!null"
	n := root
	for i, s := range steps {
		last := i == len(steps)-1
		// An element has width nodes, of which the last one is its value, starting at index at; -1 if absent.
		width, at := 1, s.index
		if s.index >= 0 {
			switch {
			case n.Kind != yamlv3.SequenceNode:
				return fmt.Errorf("the path %q: there is no list before [%d]", path, s.index)
			case s.index > len(n.Content) || s.index == len(n.Content) && (!last || remove):
				return fmt.Errorf("the path %q: the list has %d elements", path, len(n.Content))
			case s.index == len(n.Content):
				at = -1
			}
		} else {
			if n.Kind != yamlv3.MappingNode {
				return fmt.Errorf("the path %q: there is no mapping before %q", path, s.name)
			}
			width = 2
			for k := 0; k+1 < len(n.Content); k += 2 {
				if n.Content[k].Value == s.name {
					at = k + 1
				}
			}
			switch {
			case at < 0 && last && remove:
				return fmt.Errorf("the path %q: there is nothing to remove", path)
			case at < 0:
				n.Content = append(n.Content, &yamlv3.Node{Kind: yamlv3.ScalarNode, Tag: "!!str", Value: s.name, Line: key.Line, Column: key.Column})
			}
		}
		if last && remove {
			n.Content = slices.Delete(n.Content, at+1-width, at+1)
			return nil
		}
		if at < 0 {
			at = len(n.Content)
			n.Content = append(n.Content, &yamlv3.Node{Kind: yamlv3.MappingNode, Tag: "!!map", Line: key.Line, Column: key.Column})
		}
		if last {
			n.Content[at] = copyNode(value)
			return nil
		}
		n = n.Content[at]
	}
	return nil
}
