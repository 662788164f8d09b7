package suite

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/kit/aliases"
	"github.com/gatehouse-dev/gatehouse/internal/kit/files"
	"github.com/gatehouse-dev/gatehouse/internal/kit/nearest"
	"github.com/gatehouse-dev/gatehouse/internal/readers/manifests"
)

// FileError is a fault of a file.
type FileError struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// Error returns the message with its position.
func (e *FileError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Message)
}

// decoder reads a document strictly. It collects errors and continues.
type decoder struct {
	file string
	// first is the line of the file before the document.
	first  int
	errors []*FileError
}

func (d *decoder) line(n *yamlv3.Node) int { return d.first + n.Line }

func (d *decoder) fail(n *yamlv3.Node, format string, args ...any) {
	d.errors = append(d.errors, &FileError{d.file, d.line(n), fmt.Sprintf(format, args...)})
}

// field reads the value of a field.
type field func(n *yamlv3.Node)

// fields reads a mapping with known fields.
func (d *decoder) fields(n *yamlv3.Node, what string, known map[string]field) {
	d.members(n, what, "the field ", func(key, value *yamlv3.Node) {
		if read, ok := known[key.Value]; ok {
			read(value)
			return
		}
		names := slices.Sorted(maps.Keys(known))
		hint := cmp.Or(nearest.Suggestion("", key.Value, names), ": it may have "+strings.Join(names, ", "))
		d.fail(key, "%s has no field %q%s", what, key.Value, hint)
	})
}

// elements reads the elements of a list.
func (d *decoder) elements(n *yamlv3.Node, what string, read func(*yamlv3.Node)) {
	n = target(n)
	if n.Kind != yamlv3.SequenceNode {
		d.fail(n, "%s is %s, and must be a list", what, kindOf(n))
		return
	}
	for _, element := range n.Content {
		read(element)
	}
}

// pairs reads a mapping with any keys.
func (d *decoder) pairs(n *yamlv3.Node, what string, read func(key, value *yamlv3.Node)) {
	d.members(n, what, "", read)
}

// members reads a mapping, and reports duplicate keys. key is the description of a key in errors.
func (d *decoder) members(n *yamlv3.Node, what, key string, read func(key, value *yamlv3.Node)) {
	n = target(n)
	if n.Kind != yamlv3.MappingNode {
		d.fail(n, "%s is %s, and must be a mapping", what, kindOf(n))
		return
	}
	seen := map[string]bool{}
	for name, value := range entries(n) {
		if seen[name.Value] {
			d.fail(name, "%s has %s%q twice", what, key, name.Value)
			continue
		}
		seen[name.Value] = true
		read(name, value)
	}
}

// scalar reads a scalar of a tag. read reports whether it understands the text.
func (d *decoder) scalar(tag, must, what string, read func(text string) bool) field {
	return func(n *yamlv3.Node) {
		if n = target(n); n.Kind != yamlv3.ScalarNode || n.Tag != tag || !read(n.Value) {
			d.fail(n, "%s is %s, and must be %s", what, kindOf(n), must)
		}
	}
}

func (d *decoder) text(into *string, what string) field {
	return d.scalar("!!str", "a text", what, func(text string) bool { *into = text; return true })
}

func (d *decoder) texts(into *[]string, what string) field {
	return func(n *yamlv3.Node) {
		*into = []string{}
		d.elements(n, what, func(n *yamlv3.Node) {
			var one string
			d.text(&one, "an element of "+what)(n)
			*into = append(*into, one)
		})
	}
}

// textMap reads a mapping of strings. In errors, each is named by its key with a prefix.
func (d *decoder) textMap(into *map[string]string, what, prefix string) field {
	return func(n *yamlv3.Node) {
		*into = map[string]string{}
		d.pairs(n, what, func(key, value *yamlv3.Node) {
			var one string
			d.text(&one, prefix+key.Value)(value)
			(*into)[key.Value] = one
		})
	}
}

func (d *decoder) flag(into *bool, what string) field {
	return d.scalar("!!bool", "true or false", what, func(text string) bool { *into = text == "true"; return true })
}

func (d *decoder) number(into *int64, what string) field {
	return d.scalar("!!int", "a whole number", what, func(text string) (ok bool) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err == nil {
			*into = n
		}
		return err == nil
	})
}

// marshal returns the text of a node, with its aliases. It returns an error if the expanded aliases are too large.
func marshal(n *yamlv3.Node) ([]byte, error) {
	data, err := yamlv3.Marshal(n)
	if err == nil {
		err = aliases.Check(data, files.Configuration)
	}
	return data, err
}

// value converts the node to JSON values.
func (d *decoder) value(n *yamlv3.Node) any {
	if v, ok := manifests.Value(n); ok {
		return v
	}
	data, err := marshal(n)
	if err == nil {
		data, err = yaml.YAMLToJSONStrict(data)
	}
	var v any
	if err == nil {
		err = utiljson.Unmarshal(data, &v)
	}
	if err != nil {
		d.fail(n, "%s", manifests.PlainYAML(err))
		return nil
	}
	return v
}

// object converts a node, which must be a mapping.
func (d *decoder) object(n *yamlv3.Node, what string) map[string]any {
	v := d.value(target(n))
	if v == nil {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		d.fail(n, "%s is %s, and must be a mapping", what, kindOf(target(n)))
	}
	return m
}

// entries iterates over the keys and values of a mapping in order; other nodes have none.
func entries(n *yamlv3.Node) iter.Seq2[*yamlv3.Node, *yamlv3.Node] {
	return func(yield func(key, value *yamlv3.Node) bool) {
		for i := 0; n.Kind == yamlv3.MappingNode && i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}

// member returns the value of a field of a mapping; an empty node if absent.
func member(n *yamlv3.Node, name string) *yamlv3.Node {
	n = target(n)
	for key, value := range entries(n) {
		if key.Value == name {
			return target(value)
		}
	}
	return &yamlv3.Node{Line: n.Line}
}

// header returns the fields of a document that identify its type.
func header(root *yamlv3.Node) (apiVersion, kind string) {
	return member(root, "apiVersion").Value, member(root, "kind").Value
}

func target(n *yamlv3.Node) *yamlv3.Node {
	for n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	return n
}

// kindOf names the type of a node.
func kindOf(n *yamlv3.Node) string {
	switch n.Kind {
	case yamlv3.MappingNode:
		return "a mapping"
	case yamlv3.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "empty"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "a number"
	}
	return "a text"
}
