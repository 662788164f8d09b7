package suite

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/internal/aliases"
	"github.com/gatehouse-dev/gatehouse/internal/files"
	"github.com/gatehouse-dev/gatehouse/internal/nearest"
)

// FileError is what is wrong with a file.
type FileError struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// Error is the message behind the place.
func (e *FileError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Message)
}

// decoder reads a document strictly. It notes what is wrong and goes on.
type decoder struct {
	file string
	// first is the line of the file in which the document begins, less one.
	first  int
	errors []*FileError
}

func (d *decoder) line(n *yamlv3.Node) int { return d.first + n.Line }

func (d *decoder) fail(n *yamlv3.Node, format string, args ...any) {
	d.errors = append(d.errors, &FileError{d.file, d.line(n), fmt.Sprintf(format, args...)})
}

// field reads the value of a field.
type field func(n *yamlv3.Node)

// fields reads a mapping whose fields are known.
func (d *decoder) fields(n *yamlv3.Node, what string, known map[string]field) {
	n = target(n)
	if n.Kind != yamlv3.MappingNode {
		d.fail(n, "%s is %s, and must be a mapping", what, kindOf(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if seen[key.Value] {
			d.fail(key, "%s has the field %q twice", what, key.Value)
			continue
		}
		seen[key.Value] = true
		read, ok := known[key.Value]
		if !ok {
			names := make([]string, 0, len(known))
			for name := range known {
				names = append(names, name)
			}
			slices.Sort(names)
			hint := nearest.Suggestion("", key.Value, names)
			if hint == "" {
				hint = ": it may have " + strings.Join(names, ", ")
			}
			d.fail(key, "%s has no field %q%s", what, key.Value, hint)
			continue
		}
		if read != nil {
			read(value)
		}
	}
}

// each reads the elements of a list.
func (d *decoder) each(n *yamlv3.Node, what string, read func(*yamlv3.Node)) {
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
	n = target(n)
	if n.Kind != yamlv3.MappingNode {
		d.fail(n, "%s is %s, and must be a mapping", what, kindOf(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if seen[n.Content[i].Value] {
			d.fail(n.Content[i], "%s has %q twice", what, n.Content[i].Value)
			continue
		}
		seen[n.Content[i].Value] = true
		read(n.Content[i], n.Content[i+1])
	}
}

func (d *decoder) text(into *string, what string) field {
	return func(n *yamlv3.Node) {
		n = target(n)
		if n.Kind != yamlv3.ScalarNode || n.Tag != "!!str" {
			d.fail(n, "%s is %s, and must be a text", what, kindOf(n))
			return
		}
		*into = n.Value
	}
}

func (d *decoder) texts(into *[]string, what string) field {
	return func(n *yamlv3.Node) {
		*into = []string{}
		d.each(n, what, func(n *yamlv3.Node) {
			var one string
			d.text(&one, "an element of "+what)(n)
			*into = append(*into, one)
		})
	}
}

func (d *decoder) flag(into *bool, what string) field {
	return func(n *yamlv3.Node) {
		n = target(n)
		if n.Kind != yamlv3.ScalarNode || n.Tag != "!!bool" {
			d.fail(n, "%s is %s, and must be true or false", what, kindOf(n))
			return
		}
		*into = n.Value == "true"
	}
}

func (d *decoder) number(into *int64, what string) field {
	return func(n *yamlv3.Node) {
		n = target(n)
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if n.Kind != yamlv3.ScalarNode || n.Tag != "!!int" || err != nil {
			d.fail(n, "%s is %s, and must be a whole number", what, kindOf(n))
			return
		}
		*into = v
	}
}

// marshal returns the text of a node, with its aliases. It returns an error if they stand for too much.
func marshal(n *yamlv3.Node) ([]byte, error) {
	data, err := yamlv3.Marshal(n)
	if err == nil {
		err = aliases.Check(data, files.Configuration)
	}
	return data, err
}

// sameText matches texts without quotes that are texts in each version of YAML, but for words that stand for something.
var (
	sameText = regexp.MustCompile(`^[A-Za-z/][-A-Za-z0-9/._]*$`)
	word     = regexp.MustCompile(`(?i)^(y|yes|n|no|on|off|true|false|null)$`)
	sameInt  = regexp.MustCompile(`^(0|-?[1-9][0-9]{0,14})$`)
)

// plain is the value of a node whose scalars mean the same in each version of YAML. ok is false for other nodes. Objects
// that are written in plain style are read in a third of the time.
func plain(n *yamlv3.Node) (v any, ok bool) {
	switch n.Kind {
	case yamlv3.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, _ := plain(n.Content[i])
			name, text := key.(string)
			if _, twice := m[name]; !text || twice {
				return nil, false
			}
			if m[name], ok = plain(n.Content[i+1]); !ok {
				return nil, false
			}
		}
		return m, true
	case yamlv3.SequenceNode:
		list := make([]any, len(n.Content))
		for i := range n.Content {
			if list[i], ok = plain(n.Content[i]); !ok {
				return nil, false
			}
		}
		return list, true
	case yamlv3.ScalarNode:
		switch quoted := n.Style&(yamlv3.DoubleQuotedStyle|yamlv3.SingleQuotedStyle) != 0; {
		case n.Tag == "!!str" && (quoted || sameText.MatchString(n.Value) && !word.MatchString(n.Value)):
			return n.Value, true
		case n.Tag == "!!int" && sameInt.MatchString(n.Value):
			v, err := strconv.ParseInt(n.Value, 10, 64)
			return v, err == nil
		case n.Tag == "!!bool" && (n.Value == "true" || n.Value == "false"):
			return n.Value == "true", true
		}
	}
	return nil, false
}

// value is the node as the values that JSON has.
func (d *decoder) value(n *yamlv3.Node) any {
	if v, ok := plain(n); ok {
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
		d.fail(n, "%s", plainYAML(err))
		return nil
	}
	return v
}

// object is a node that must be a mapping.
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

var yamlPlace = regexp.MustCompile(`(?m)line (\d+): `)

// plainYAML is an error of the YAML library without its prefixes and places.
func plainYAML(err error) string {
	s := strings.ReplaceAll(err.Error(), "yaml: unmarshal errors:\n  ", "")
	s = strings.TrimPrefix(strings.TrimPrefix(s, "error converting YAML to JSON: "), "yaml: ")
	return yamlPlace.ReplaceAllString(s, "")
}

// lineIn is the line that an error of the YAML library names, 1 for none.
func lineIn(err error) int {
	if m := yamlPlace.FindStringSubmatch(err.Error()); m != nil {
		n, _ := strconv.Atoi(m[1])
		return max(n, 1)
	}
	return 1
}

func target(n *yamlv3.Node) *yamlv3.Node {
	for n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	return n
}

// kindOf names what a node is.
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
