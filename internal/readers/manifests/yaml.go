package manifests

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	yamlv2 "go.yaml.in/yaml/v2"
	yamlv3 "go.yaml.in/yaml/v3"
)

// fromYAML decodes a document as kubectl does: as YAML 1.1 without duplicate keys, into the types of decoded JSON.
// root is the parsed document, if known.
//
// kubectl's library converts YAML to JSON and back, and knows no lines, so that a second library would have to parse
// the document again for them. Here one parse serves both if the document uses only common YAML; the usual library
// decodes the others.
func fromYAML(text []byte) (content any, root *yamlv3.Node, err error) {
	document := &yamlv3.Node{}
	if yamlv3.Unmarshal(text, document) == nil && len(document.Content) == 1 {
		root = document.Content[0]
		if content, ok := (&values{}).value(root); ok {
			return content, root, nil
		}
	}
	var found any
	if err := yamlv2.UnmarshalStrict(text, &found); err != nil {
		return nil, nil, err
	}
	content, err = asJSON(found)
	return content, root, err
}

// Value returns the value of a node, in the types of decoded JSON. ok is false if the node uses uncommon YAML.
func Value(n *yamlv3.Node) (value any, ok bool) { return (&values{}).value(n) }

// values converts nodes to values. It does not support uncommon YAML: tags, anchors, merged keys, duplicate keys, keys
// that are not strings.
type values struct {
	// known are the values of plain scalars that are not strings, by their text.
	known map[string]any
}

func (r *values) value(n *yamlv3.Node) (any, bool) {
	if n.Anchor != "" || n.Style&yamlv3.TaggedStyle != 0 {
		return nil, false
	}
	switch n.Kind {
	case yamlv3.ScalarNode:
		if n.Style == 0 {
			return r.plain(n.Value)
		}
		return n.Value, true
	case yamlv3.SequenceNode:
		list := make([]any, len(n.Content))
		for i, element := range n.Content {
			var ok bool
			if list[i], ok = r.value(element); !ok {
				return nil, false
			}
		}
		return list, true
	case yamlv3.MappingNode:
		object := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, ok := r.value(n.Content[i])
			name, isText := key.(string)
			if !ok || !isText || name == "<<" {
				return nil, false
			}
			if object[name], ok = r.value(n.Content[i+1]); !ok {
				return nil, false
			}
		}
		return object, len(object) == len(n.Content)/2
	}
	return nil, false
}

// words are the plain scalars with a special meaning in YAML 1.1, in lower case.
var words = []string{"", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n"}

// plain returns the value of an unquoted scalar.
func (r *values) plain(text string) (any, bool) {
	if !special(text) {
		return text, true
	}
	if value, ok := r.known[text]; ok {
		return value, true
	}
	var found any
	if err := yamlv2.UnmarshalStrict([]byte(text), &found); err != nil {
		return nil, false
	}
	value, err := asJSON(found)
	if err != nil {
		return nil, false
	}
	if r.known == nil {
		r.known = map[string]any{}
	}
	r.known[text] = value
	return value, true
}

// special reports whether a plain scalar may be something else than a string.
func special(text string) bool {
	if text == "" || text == "~" {
		return true
	}
	switch c := text[0]; {
	case c >= '0' && c <= '9', c == '-', c == '+', c == '.':
		// A number has no other characters.
		return !strings.ContainsFunc(text, func(c rune) bool {
			return !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' || c == '-' || c == '+' || c == '_')
		})
	}
	return len(text) <= len("false") && slices.Contains(words, strings.ToLower(text))
}

// asJSON converts a YAML value to the types of decoded JSON.
func asJSON(value any) (any, error) {
	switch v := value.(type) {
	case map[any]any:
		object := make(map[string]any, len(v))
		for key, member := range v {
			name, err := keyName(key)
			if err != nil {
				return nil, err
			}
			if object[name], err = asJSON(member); err != nil {
				return nil, err
			}
		}
		return object, nil
	case []any:
		list := make([]any, len(v))
		for i := range v {
			var err error
			if list[i], err = asJSON(v[i]); err != nil {
				return nil, err
			}
		}
		return list, nil
	case int:
		return int64(v), nil
	case uint64:
		if v > math.MaxInt64 {
			return float64(v), nil
		}
		return int64(v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("the number %v cannot be in an object", v)
		}
		// 1.0 is written 1 in JSON, and read as an integer.
		if math.Abs(v) < 1e21 {
			if whole, err := strconv.ParseInt(strconv.FormatFloat(v, 'f', -1, 64), 10, 64); err == nil {
				return whole, nil
			}
		}
		return v, nil
	case nil, bool, string, int64:
		return v, nil
	}
	return nil, fmt.Errorf("a value of type %T cannot be in an object", value)
}

// keyName returns the member name of a YAML key that is not a string.
func keyName(key any) (string, error) {
	switch k := key.(type) {
	case string:
		return k, nil
	case bool:
		return strconv.FormatBool(k), nil
	case int:
		return strconv.Itoa(k), nil
	case int64:
		return strconv.FormatInt(k, 10), nil
	case float64:
		switch text := strconv.FormatFloat(k, 'g', -1, 32); text {
		case "+Inf":
			return ".inf", nil
		case "-Inf":
			return "-.inf", nil
		case "NaN":
			return ".nan", nil
		default:
			return text, nil
		}
	case nil:
		return "", errors.New("a key is null")
	}
	return "", fmt.Errorf("a key of type %T cannot be in an object", key)
}
