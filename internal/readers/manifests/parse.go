package manifests

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	yamlv3 "go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/aliases"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
)

// Content is the content of a file.
type Content struct {
	// Objects, Problems and Notes are in the order of the file.
	Objects  []*Object
	Problems []Problem
	Notes    []Note
	// Acceptances are the comments that accept findings.
	Acceptances []Acceptance

	// left is the number of further elements that the file may have.
	left *atomic.Int64
}

// Parse parses the content of a file as kubectl does: YAML and JSON, several documents, and lists, whose items
// become separate objects. A file with too many of them is a Problem.
func Parse(file string, data []byte) *Content {
	c, err := parse(file, data, most)
	if err != nil {
		return &Content{Problems: []Problem{{File: file, Line: 1, Message: err.Error()}}}
	}
	return c
}

// parse is Parse with another bound. It is an error if the file exceeds the bound.
func parse(file string, data []byte, most int) (*Content, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	full := fmt.Errorf("has more than %d documents and elements of lists: split the file", most)
	// A document may be empty.
	if bytes.Count(data, []byte("\n---")) > 2*most+2 {
		return nil, full
	}
	parts := split(data)
	read := make([]Content, len(parts))
	left := &atomic.Int64{}
	left.Store(int64(most))
	workqueue.ParallelizeUntil(context.Background(), runtime.GOMAXPROCS(0), len(parts), func(i int) {
		p := parts[i]
		read[i].left = left
		if left.Load() < 0 {
			return
		}
		switch trimmed := bytes.TrimSpace(p.text); {
		case len(trimmed) == 0, string(trimmed) == "...":
		case trimmed[0] == '{':
			read[i].stream(file, p)
		default:
			read[i].Acceptances = acceptances(file, p)
			read[i].document(file, p)
		}
	})
	if left.Load() < 0 {
		return nil, full
	}
	c := &Content{}
	for i := range read {
		c.Objects = append(c.Objects, read[i].Objects...)
		c.Problems = append(c.Problems, read[i].Problems...)
		c.Notes = append(c.Notes, read[i].Notes...)
		c.Acceptances = append(c.Acceptances, read[i].Acceptances...)
	}
	return c, nil
}

// object adds and counts an object; problem and note do the same for Problems and Notes.
func (c *Content) object(o *Object) {
	c.Objects = append(c.Objects, o)
	c.left.Add(-1)
}

func (c *Content) problem(p Problem) {
	c.Problems = append(c.Problems, p)
	c.left.Add(-1)
}

func (c *Content) note(n Note) {
	c.Notes = append(c.Notes, n)
	c.left.Add(-1)
}

type part struct {
	text []byte
	line int
}

// split splits a file at its lines of three dashes.
func split(data []byte) []part {
	var parts []part
	current := part{line: 1}
	line, begin, offset := 0, 0, 0
	for text := range bytes.Lines(data) {
		line++
		if rest, ok := bytes.CutPrefix(text, []byte("---")); ok && (len(bytes.TrimSpace(rest)) == 0 || rest[0] == ' ' || rest[0] == '\t') {
			current.text = data[begin:offset]
			parts = append(parts, current)
			current = part{line: line}
			// Content after the dashes belongs to the document.
			begin = offset + len("---")
			if behind := bytes.TrimSpace(rest); len(behind) > 0 && behind[0] == '#' {
				// A comment may follow a tab, which is a YAML error there.
				begin = offset + len(bytes.TrimRight(text, "\r\n"))
			}
		}
		offset += len(text)
	}
	current.text = data[begin:]
	return append(parts, current)
}

// stream reads consecutive JSON values.
func (c *Content) stream(file string, p part) {
	decoder := json.NewDecoder(bytes.NewReader(p.text))
	line, counted := p.line, int64(0)
	lineAt := func(offset int64) int {
		line += bytes.Count(p.text[counted:offset], []byte("\n"))
		counted = offset
		return line
	}
	for c.left.Load() >= 0 {
		begin := decoder.InputOffset()
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return
		}
		rest := p.text[begin:]
		begin += int64(len(rest) - len(bytes.TrimLeft(rest, " \t\r\n")))
		if err != nil {
			if begin == 0 || bytes.IndexByte(p.text, '\n') >= 0 {
				// YAML may begin with a brace, too, and its errors have a line.
				c.document(file, p)
				return
			}
			c.problem(Problem{File: file, Line: lineAt(begin), Message: err.Error()})
			return
		}
		var content any
		if err := utiljson.Unmarshal(raw, &content); err != nil {
			c.problem(Problem{File: file, Line: lineAt(begin), Message: err.Error()})
			continue
		}
		c.value(file, part{text: raw, line: lineAt(begin)}, content, nil)
	}
}

// document reads a YAML document.
func (c *Content) document(file string, p part) {
	if err := aliases.Check(p.text, files.Configuration); err != nil {
		c.problem(Problem{File: file, Line: p.line, Message: err.Error()})
		return
	}
	content, root, err := fromYAML(p.text)
	if err != nil {
		// For duplicate members, kubectl uses the last one.
		again, lenient := yaml.YAMLToJSON(p.text)
		c.problem(Problem{File: file, Line: p.line + min(max(LineOf(err), 1)-1, bytes.Count(p.text, []byte("\n"))), Message: wrong(err, p.text), Warning: lenient == nil})
		if lenient != nil {
			return
		}
		if err := utiljson.Unmarshal(again, &content); err != nil {
			c.problem(Problem{File: file, Line: p.line, Message: err.Error()})
			return
		}
	}
	if content != nil {
		c.value(file, p, content, root)
	}
}

var yamlLine = regexp.MustCompile(`(?m)line (\d+): `)

// LineOf returns the line in its document of an error of the YAML library, 0 if the error names none.
func LineOf(err error) int {
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// PlainYAML returns an error of the YAML library without its prefixes and lines.
func PlainYAML(err error) string {
	s := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "yaml: unmarshal errors:\n  ", ""), "error converting YAML to JSON: ")
	return yamlLine.ReplaceAllString(strings.TrimPrefix(s, "yaml: "), "")
}

// wrong returns an error of the YAML library in words for a reader who sees the line next to it.
func wrong(err error, text []byte) string {
	s := PlainYAML(err)
	if strings.Contains(s, "already set in map") {
		s += ": kubectl takes the last one"
	} else if bytes.Contains(text, []byte("{{")) {
		s += "; the file looks like a template: render it first, and give the command the output as -"
	}
	return s
}

// value adds the objects of a document.
func (c *Content) value(file string, p part, content any, root *yamlv3.Node) {
	o := &Object{File: file, document: p.line, Line: p.line + skipped(p.text)}
	object, ok := content.(map[string]any)
	if !ok {
		c.note(Note{File: file, Line: o.Line, Message: "not an object"})
		return
	}
	o.Content = object
	if _, list := object["items"]; !list {
		// Nodes take more memory than their text, and few objects need theirs, so they are parsed on demand. The
		// lines of list elements need them at once.
		root = nil
	}
	o.node = func() *yamlv3.Node { return root }
	if root == nil {
		o.node = nodeOf(p.text)
	}
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	switch {
	case filepath.Base(file) == chartFile && kind == "":
		c.note(Note{File: file, Line: o.Line, Message: "the description of a Helm chart is not an object"})
		return
	case strings.HasPrefix(apiVersion, "kustomize.config.k8s.io/"):
		c.note(Note{File: file, Line: o.Line, Message: "kustomize reads this " + kind + ", which is not an object of a cluster"})
		return
	case strings.HasPrefix(apiVersion, "gatehouse.dev/") && slices.Contains(ownKinds, kind):
		return
	case object["apiVersion"] == nil && object["kind"] == nil:
		c.note(Note{File: file, Line: o.Line, Message: "not a Kubernetes object: it has neither apiVersion nor kind"})
		return
	case (apiVersion == "" || kind == "") && object["metadata"] == nil && object["items"] == nil:
		// Such as the configuration of a program.
		c.note(Note{File: file, Line: o.Line, Message: "not a Kubernetes object: it has no metadata, and no " + missing(apiVersion)})
		return
	}
	c.flatten(o)
}

// nodeOf returns a function that parses the node of a document; nil if it has none. The node stays in memory while
// places in it are requested, and not for the duration of a check.
func nodeOf(text []byte) func() *yamlv3.Node {
	var mu sync.Mutex
	var kept weak.Pointer[yamlv3.Node]
	return func() *yamlv3.Node {
		mu.Lock()
		defer mu.Unlock()
		if n := kept.Value(); n != nil {
			return n
		}
		document := &yamlv3.Node{}
		if yamlv3.Unmarshal(text, document) != nil || len(document.Content) != 1 {
			return nil
		}
		kept = weak.Make(document.Content[0])
		return document.Content[0]
	}
}

// ownKinds are the kinds of Gatehouse's own files, which no server has. They are skipped in a directory without a
// note.
var ownKinds = []string{"AdmissionTests", "CheckReport", "ClusterSnapshot", "Configuration"}

// skipped counts the lines before the first line with content.
func skipped(text []byte) int {
	n := 0
	for line := range bytes.Lines(text) {
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 && trimmed[0] != '#' {
			return n
		}
		n++
	}
	return 0
}

// missing names the field that an object lacks beside apiVersion or kind.
func missing(apiVersion string) string {
	if apiVersion == "" {
		return "apiVersion"
	}
	return "kind"
}

// flatten adds an object, or the items of a list.
func (c *Content) flatten(o *Object) {
	apiVersion, _ := o.Content["apiVersion"].(string)
	kind, _ := o.Content["kind"].(string)
	if apiVersion == "" || kind == "" {
		c.problem(Problem{File: o.File, Line: o.Line, Message: missing(apiVersion) + " is missing"})
		return
	}
	items, ok := o.Content["items"].([]any)
	if !ok || !strings.HasSuffix(kind, "List") {
		c.object(o)
		return
	}
	for i, item := range items {
		if c.left.Load() < 0 {
			return
		}
		one := &Object{File: o.File, Line: o.Line, document: o.document, node: func() *yamlv3.Node { return child(o.node(), "items", i) }}
		if n := one.node(); n != nil {
			one.Line = o.document + n.Line - 1
		}
		content, ok := item.(map[string]any)
		if !ok {
			c.problem(Problem{File: o.File, Line: one.Line, Message: fmt.Sprintf("items[%d] is not an object", i)})
			continue
		}
		one.Content = content
		if of := strings.TrimSuffix(kind, "List"); of != "" && content["kind"] == nil && content["apiVersion"] == nil {
			// Typed lists need not repeat the kind in their items.
			content["apiVersion"], content["kind"] = apiVersion, of
		}
		c.flatten(one)
	}
}

// Place returns the line and the column of a field. The path has the form of API server errors:
// spec.containers[0].image, data[some.key]. For a missing field, it returns the place of the nearest parent.
func (o *Object) Place(path string) (line, column int) {
	if o.node == nil {
		return o.Line, 1
	}
	n := o.node()
	if n == nil {
		return o.Line, 1
	}
	line, column = o.document+n.Line-1, n.Column
	for _, step := range steps(path) {
		key, value := member(n, step)
		if value == nil {
			break
		}
		n = value
		line, column = o.document+key.Line-1, key.Column
	}
	return line, column
}

// stepForm matches a name in the path of a field, or the text in brackets, which may have brackets of its own.
var stepForm = regexp.MustCompile(`\[((?:[^\[\]]|\[[^\[\]]*\])+)\]|[^.\[\]]+`)

// steps splits the path of a field.
func steps(path string) (list []string) {
	for _, m := range stepForm.FindAllStringSubmatch(path, -1) {
		list = append(list, cmp.Or(m[1], m[0]))
	}
	return list
}

// member returns the member of a node at a step of a path: the node whose place is shown, and the value.
func member(n *yamlv3.Node, step string) (key, value *yamlv3.Node) {
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yamlv3.MappingNode:
		step = strings.Trim(step, `"'`)
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				key, value = n.Content[i], n.Content[i+1]
			}
		}
	case yamlv3.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
		// Keyed lists are written as list[name].
		i := slices.IndexFunc(n.Content, func(item *yamlv3.Node) bool {
			name := child(item, "name")
			return name != nil && name.Value == step
		})
		if i >= 0 {
			return n.Content[i], n.Content[i]
		}
	}
	return key, value
}

// ValueOf returns the line and the column of the value at a path of names and indexes, or of the last existing part
// of the path.
func (o *Object) ValueOf(path []any) (line, column int) {
	n := o.node()
	if n == nil {
		return o.Line, 1
	}
	for _, step := range path {
		_, value := member(n, fmt.Sprint(step))
		if value == nil {
			break
		}
		n = value
	}
	return o.document + n.Line - 1, n.Column
}

// At returns the place of the object as FILE:LINE.
func (o *Object) At() string { return fmt.Sprintf("%s:%d", o.File, o.Line) }

// child returns the node at a path of names and indexes, nil if it does not exist.
func child(n *yamlv3.Node, path ...any) *yamlv3.Node {
	for _, step := range path {
		if n == nil {
			return nil
		}
		_, n = member(n, fmt.Sprint(step))
	}
	return n
}
